// Row operations: strides, in place, split over threads, every activation.
#include "ops/elementwise.h"

#include <cmath>

#include "core/random.h"

namespace millrace::ops {
namespace {

class ElementwiseTest : public ::testing::Test {
 protected:
  std::vector<float> random_floats(int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& f : x) f = 2.0f * random_.normal();
    return x;
  }
  Random random_{testing::seed()};
  ThreadPool pool_{3};
  Arena arena_;
  Context context_{pool_, kernels::table(best_isa()), arena_};
};

double activated(Activation a, double x) {
  switch (a) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluQuick:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kReluSquared:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kNone:
      return x;
  }
  return NAN;
}

TEST_F(ElementwiseTest, ActivationsMatchTheirFormulas) {
  const int64_t rows = 7, n = 3001, stride = 3010;
  const auto gate = random_floats(rows * stride), up = random_floats(rows * stride);
  for (int i = 0; i <= static_cast<int>(Activation::kNone); ++i) {
    const auto a = static_cast<Activation>(i);
    std::vector<float> y(static_cast<size_t>(rows * n)), x = gate;
    activate_mul(context_, a, gate.data(), stride, up.data(), stride, y.data(), n, rows, n);
    activate(context_, a, x.data(), stride, rows, n);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < stride; ++j) {
        const auto at = static_cast<size_t>(r * stride + j);
        if (j >= n) {
          ASSERT_EQ(x[at], gate[at]) << "past the row's end";
          continue;
        }
        const double expected = activated(a, gate[at]);
        ASSERT_NEAR(x[at], expected, 2e-6 * (1 + std::fabs(expected))) << "activation " << i;
        ASSERT_NEAR(y[static_cast<size_t>(r * n + j)], expected * up[at],
                    4e-6 * (1 + std::fabs(expected * up[at])));
      }
  }
}

TEST_F(ElementwiseTest, NormsOfRowsAndHeads) {
  const int64_t rows = 9, n = 2500, stride = 2600;
  const auto x = random_floats(rows * stride), weight = random_floats(n), bias = random_floats(n);
  for (const auto kind : {NormSpec::Kind::kRms, NormSpec::Kind::kLayer}) {
    std::vector<float> y(static_cast<size_t>(rows * n));
    norm_rows(context_, {kind, weight.data(), kind == NormSpec::Kind::kLayer ? bias.data() : nullptr, 1e-3f},
              x.data(), stride, y.data(), n, rows, n);
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, squares = 0;
      const float* row = x.data() + r * stride;
      if (kind == NormSpec::Kind::kLayer)
        for (int64_t j = 0; j < n; ++j) mean += row[j] / static_cast<double>(n);
      for (int64_t j = 0; j < n; ++j) squares += (row[j] - mean) * (row[j] - mean);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-3);
      for (int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<size_t>(j);
        const double expected =
            (row[j] - mean) * factor * weight[at] + (kind == NormSpec::Kind::kLayer ? bias[at] : 0);
        ASSERT_NEAR(y[static_cast<size_t>(r * n + j)], expected, 2e-5);
      }
    }
  }
  // Heads of 50 in rows of 2,600: 52 heads, in place.
  auto heads = x;
  norm_heads(context_, {NormSpec::Kind::kRms, weight.data(), nullptr, 1e-6f}, heads.data(), rows, stride, 52,
             50);
  for (size_t at = 0; at < x.size(); at += 50) {
    double squares = 0;
    for (size_t j = 0; j < 50; ++j) squares += double{x[at + j]} * x[at + j];
    for (size_t j = 0; j < 50; ++j)
      ASSERT_NEAR(heads[at + j], x[at + j] / std::sqrt(squares / 50 + 1e-6) * weight[j], 2e-5);
  }
}

TEST_F(ElementwiseTest, AddScaleAndCap) {
  const int64_t n = 40001;
  const auto x = random_floats(n), y = random_floats(n);
  auto sum = y, scaled = x, capped = x, plain = y;
  add_rows(context_, sum.data(), x.data(), n, 0.25f);
  add_rows(context_, plain.data(), x.data(), n);
  scale_rows(context_, scaled.data(), n, 3.0f);
  softcap_rows(context_, capped.data(), n, 1.5f);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(sum[i], y[i] + 0.25 * x[i], 1e-5);
    ASSERT_EQ(plain[i], y[i] + x[i]);
    ASSERT_EQ(scaled[i], x[i] * 3.0f);
    ASSERT_NEAR(capped[i], 1.5 * std::tanh(x[i] / 1.5), 2e-6);
  }
}

TEST_F(ElementwiseTest, ProfilerSeesEveryOperation) {
  struct Log : Profiler {
    std::vector<std::string> names;
    void record(std::string_view name, int64_t begin, int64_t end, double bytes, double) override {
      EXPECT_LE(begin, end);
      EXPECT_GT(bytes, 0);
      names.emplace_back(name);
    }
  } log;
  context_.profiler = &log;
  auto x = random_floats(10);
  scale_rows(context_, x.data(), 10, 2.0f);
  add_rows(context_, x.data(), x.data(), 10);
  EXPECT_THAT(log.names, ::testing::ElementsAre("scale", "add"));
}

}  // namespace
}  // namespace millrace::ops
