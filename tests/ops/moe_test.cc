// Routing against sorting, and the way of rows to experts and back against a loop.
#include "ops/moe.h"

#include <cmath>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "testing/kernels.h"

namespace millrace::ops {
namespace {

using testing::random_floats;

class MoeTest : public ::testing::Test {
 protected:
  Random random_{testing::seed()};
  ThreadPool pool_{3};
  Arena arena_;
  Context context_{pool_, kernels::table(best_isa()), arena_};
};

/// Choice and weights of one row, by sorting.
std::pair<std::vector<int32_t>, std::vector<double>> routed(const RouterOptions& o, const float* logits) {
  const int32_t n = o.num_experts, size = n / o.num_groups;
  std::vector<double> scores(logits, logits + n);
  if (o.scoring == RouterOptions::Scoring::kSoftmax) {
    double sum = 0;
    for (double& s : scores) sum += s = std::exp(s);
    for (double& s : scores) s /= sum;
  } else if (o.scoring == RouterOptions::Scoring::kSigmoid) {
    for (double& s : scores) s = 1 / (1 + std::exp(-s));
  }
  std::vector<double> choice = scores;
  if (o.selection_bias)
    for (int32_t e = 0; e < n; ++e) choice[static_cast<size_t>(e)] += o.selection_bias[e];
  std::vector<std::pair<double, int32_t>> groups;
  for (int32_t g = 0; g < o.num_groups; ++g) {
    std::vector<double> in(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(in.rbegin(), in.rend());
    groups.push_back(
        {-(o.group_score == RouterOptions::GroupScore::kMaximum || size == 1 ? in[0] : in[0] + in[1]), g});
  }
  std::sort(groups.begin(), groups.end());
  std::set<int32_t> kept;
  for (int32_t i = 0; i < o.top_groups; ++i) kept.insert(groups[static_cast<size_t>(i)].second);
  std::vector<int32_t> order;
  for (int32_t e = 0; e < n; ++e)
    if (kept.count(e / size)) order.push_back(e);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return choice[static_cast<size_t>(a)] > choice[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(o.top_k));
  std::vector<double> weights;
  double sum = 0;
  for (const int32_t e : order) {
    const double s = scores[static_cast<size_t>(e)];
    weights.push_back(o.scoring == RouterOptions::Scoring::kSoftmaxOfChosen ? std::exp(s) : s);
    sum += weights.back();
  }
  for (double& w : weights) {
    if (o.normalize || o.scoring == RouterOptions::Scoring::kSoftmaxOfChosen) w /= sum;
    w *= o.scale;
  }
  return {order, weights};
}

TEST_F(MoeTest, RoutesAsSortingDoes) {
  const RouterOptions::Scoring scorings[] = {RouterOptions::Scoring::kSoftmax,
                                             RouterOptions::Scoring::kSigmoid,
                                             RouterOptions::Scoring::kSoftmaxOfChosen};
  for (int64_t round = 0; round < testing::scaled(60); ++round) {
    RouterOptions o;
    o.scoring = scorings[round % 3];
    o.num_groups = 1 + static_cast<int32_t>(random_.below(4));
    const int32_t size = 2 + static_cast<int32_t>(random_.below(20));
    o.num_experts = o.num_groups * size;
    o.top_groups = 1 + static_cast<int32_t>(random_.below(static_cast<uint32_t>(o.num_groups)));
    o.top_k =
        1 + static_cast<int32_t>(random_.below(static_cast<uint32_t>(std::min(8, size * o.top_groups))));
    o.group_score =
        random_.below(2) ? RouterOptions::GroupScore::kSumOfTwo : RouterOptions::GroupScore::kMaximum;
    o.normalize = random_.below(2) != 0;
    o.scale = 0.5f + random_.uniform();
    const auto bias = random_floats(random_, o.num_experts);
    if (random_.below(2)) o.selection_bias = bias.data();
    const int64_t rows = 40;
    const auto logits = random_floats(random_, rows * o.num_experts);
    std::vector<int32_t> experts(static_cast<size_t>(rows * o.top_k));
    std::vector<float> weights(experts.size());
    route_tokens(context_, o, logits.data(), o.num_experts, rows, experts.data(), weights.data());
    for (int64_t r = 0; r < rows; ++r) {
      const auto [order, expected] = routed(o, logits.data() + r * o.num_experts);
      for (int32_t i = 0; i < o.top_k; ++i) {
        EXPECT_EQ(experts[static_cast<size_t>(r * o.top_k + i)], order[static_cast<size_t>(i)]);
        EXPECT_NEAR(weights[static_cast<size_t>(r * o.top_k + i)], expected[static_cast<size_t>(i)], 2e-6);
      }
    }
  }
}

TEST_F(MoeTest, EqualScoresGoToTheLowerId) {
  RouterOptions o;
  o.num_experts = 6;
  o.top_k = 3;
  const std::vector<float> logits{1, 2, 2, 1, 2, 2};
  int32_t experts[3];
  float weights[3];
  route_tokens(context_, o, logits.data(), 6, 1, experts, weights);
  EXPECT_THAT(experts, ::testing::ElementsAre(1, 2, 4));
}

TEST_F(MoeTest, RowsComeBackWhereTheyWent) {
  const int64_t rows = 37, n = 19;
  const int32_t top_k = 3, num_experts = 11;
  std::vector<int32_t> experts;
  for (int64_t i = 0; i < rows * top_k; ++i)
    experts.push_back(static_cast<int32_t>(random_.below(num_experts)));
  const auto x = random_floats(random_, rows * n), weights = random_floats(random_, rows * top_k);
  const ExpertRows order = group_by_expert(context_, experts.data(), rows, top_k, num_experts, 20);
  for (size_t e = 0; e < static_cast<size_t>(num_experts); ++e) {
    const auto begin = order.source.begin() + order.row_offsets[e],
               end = order.source.begin() + order.row_offsets[e + 1];
    EXPECT_TRUE(std::is_sorted(begin, end));
    EXPECT_EQ(order.rounded[e], std::lower_bound(begin, end, 20) - begin);
  }
  EXPECT_EQ(order.row_offsets.front(), 0);
  EXPECT_EQ(order.row_offsets.back(), rows * top_k);
  float* gathered = gather_rows(context_, order, x.data(), n, n);
  // Each expert multiplies by its number.
  for (int32_t e = 0; e < num_experts; ++e)
    for (int64_t i = order.row_offsets[static_cast<size_t>(e)];
         i < order.row_offsets[static_cast<size_t>(e) + 1]; ++i)
      for (int64_t j = 0; j < n; ++j) gathered[i * n + j] *= static_cast<float>(e);
  std::vector<float> out(static_cast<size_t>(rows * n), 1.0f);
  scatter_add(context_, order, weights.data(), top_k, gathered, n, n, out.data(), n);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < n; ++j) {
      double expected = 1;
      for (int64_t i = 0; i < top_k; ++i)
        expected += double{weights[static_cast<size_t>(r * top_k + i)]} *
                    experts[static_cast<size_t>(r * top_k + i)] * x[static_cast<size_t>(r * n + j)];
      EXPECT_NEAR(out[static_cast<size_t>(r * n + j)], expected, 1e-4);
    }
}

TEST_F(MoeTest, ShapesThatCannotBeRoutedAreRefused) {
  RouterOptions o;
  o.num_experts = 8;
  o.num_groups = 4;
  o.top_groups = 1;
  o.top_k = 3;  // a group has two
  float logits[8] = {}, weights[3];
  int32_t experts[3];
  EXPECT_THROW(route_tokens(context_, o, logits, 8, 1, experts, weights), Error);
}

}  // namespace
}  // namespace millrace::ops
