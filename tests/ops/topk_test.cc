// Selection of every ISA against a full sort.
#include "ops/topk.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "testing/kernels.h"

namespace millrace::ops {
namespace {

using testing::isa_levels;

class TopKTest : public ::testing::TestWithParam<IsaLevel> {
 protected:
  const kernels::Table& kernels() const { return kernels::table(GetParam()); }

  void check(const std::vector<float>& logits, int32_t k) {
    std::vector<int32_t> order;
    for (size_t i = 0; i < logits.size(); ++i)
      if (std::isfinite(logits[i])) order.push_back(static_cast<int32_t>(i));
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    order.resize(std::min(order.size(), static_cast<size_t>(k)));
    std::vector<int32_t> indices(static_cast<size_t>(k));
    std::vector<float> values(static_cast<size_t>(k));
    const int32_t count = top_k(kernels(), logits, k, indices.data(), values.data(), scratch_);
    indices.resize(static_cast<size_t>(count));
    ASSERT_EQ(indices, order) << k << " of " << logits.size();
    for (size_t i = 0; i < indices.size(); ++i) ASSERT_EQ(values[i], logits[static_cast<size_t>(indices[i])]);
  }

  Random random_{testing::seed()};
  TopKScratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(EveryIsa, TopKTest, ::testing::ValuesIn(isa_levels()),
                         millrace::testing::isa_test_name);

TEST_P(TopKTest, IsWhatSortingGives) {
  for (int64_t round = 0; round < testing::scaled(60); ++round) {
    std::vector<float> logits(1 + random_.below(round % 5 == 0 ? 50000 : 3000));
    const int kind = static_cast<int>(random_.below(4));
    for (float& x : logits) {
      x = 3.0f * random_.normal();
      if (kind == 1) x = std::round(x);                   // many equal
      if (kind == 2 && random_.below(10)) x = -INFINITY;  // a grammar's mask
      if (kind == 3) x = 1.0f;                            // all equal
    }
    check(logits, 1 + static_cast<int32_t>(random_.below(round % 2 ? 60 : 5000)));
  }
}

TEST_P(TopKTest, NothingFiniteGivesNothing) {
  check(std::vector<float>(1000, -INFINITY), 1);
  check(std::vector<float>(1000, -INFINITY), 40);
  EXPECT_EQ(log_sum_exp(kernels(), std::vector<float>(100, -INFINITY)), -INFINITY);
}

TEST_P(TopKTest, CollectsWhatIsWithinReach) {
  std::vector<float> logits(5003);
  for (float& x : logits) x = random_.below(3) ? random_.normal() * 4 : -INFINITY;
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<int32_t> indices, expected;
  std::vector<float> values;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= largest - 9.0f) expected.push_back(static_cast<int32_t>(i));
  indices.resize(static_cast<size_t>(collect_within(kernels(), logits, 9.0f, indices, values)));
  EXPECT_EQ(indices, expected);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x});
  EXPECT_NEAR(log_sum_exp(kernels(), logits), std::log(sum), 1e-5);
}

// Not a limit on time, which other processes can take: the figures are for the reader.
TEST_P(TopKTest, CostOverALargeVocabulary) {
  std::vector<float> logits(256000);
  for (float& x : logits) x = 3.0f * random_.normal();
  std::vector<int32_t> indices(40);
  std::vector<float> values(40);
  const auto best_of = [](auto&& run) {
    double best = 1e9;
    for (int i = 0; i < 8; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run();
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best * 1e6;
  };
  const double selection =
      best_of([&] { top_k(kernels(), logits, 40, indices.data(), values.data(), scratch_); });
  const double denominator = best_of([&] { EXPECT_GT(log_sum_exp(kernels(), logits), 0.0f); });
  fmt::print("256,000 logits, {}: top 40 in {:.0f} us, log-sum-exp in {:.0f} us\n", isa_name(GetParam()),
             selection, denominator);
  check(logits, 40);
}

}  // namespace
}  // namespace millrace::ops
