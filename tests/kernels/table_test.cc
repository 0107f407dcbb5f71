// Every ISA's element-wise kernels against the plain ones.
#include "kernels/table.h"

#include <cmath>

#include "core/random.h"
#include "testing/kernels.h"

namespace millrace::kernels {
namespace {

using testing::isa_levels;
using testing::random_floats;

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::fabs(b[i])))
        << what << ", element " << i << " of " << a.size();
}

class TableTest : public ::testing::TestWithParam<IsaLevel> {
 protected:
  const Table& fast() const { return table(GetParam()); }
  const Table& plain() const { return table(IsaLevel::kScalar); }
  Random random_{testing::seed()};
};

INSTANTIATE_TEST_SUITE_P(EveryIsa, TableTest, ::testing::ValuesIn(isa_levels()),
                         millrace::testing::isa_test_name);

/// Sizes around the vector widths, and larger odd ones.
std::vector<int64_t> sizes(Random& random) {
  std::vector<int64_t> all;
  for (int64_t n = 1; n <= 70; ++n) all.push_back(n);
  for (int i = 0; i < 20; ++i) all.push_back(1 + random.below(5000));
  return all;
}

/// Runs both versions on the same input with a guard behind the output.
template <typename Run>
void compare(const Table& fast, const Table& plain, int64_t n, double tolerance, const std::string& what,
             Run&& run) {
  constexpr float kGuard = 12345.0f;
  std::vector<float> a(static_cast<size_t>(n + 8), kGuard), b = a;
  run(fast, a.data());
  run(plain, b.data());
  for (size_t i = static_cast<size_t>(n); i < a.size(); ++i)
    ASSERT_EQ(a[i], kGuard) << what << " wrote past its end";
  expect_near(a, b, tolerance, fmt::format("{} of {}", what, n));
}

TEST_P(TableTest, MapsMatchThePlainOnes) {
  for (const int64_t n : sizes(random_)) {
    const auto x = random_floats(random_, n, 3.0f), y = random_floats(random_, n),
               w = random_floats(random_, n);
    const auto check = [&](const std::string& what, double tolerance, auto&& run) {
      compare(fast(), plain(), n, tolerance, what, run);
    };
    const auto copied = [&](float* out) { std::copy(y.begin(), y.end(), out); };
    check("add", 0, [&](const Table& t, float* out) { copied(out), t.add(out, x.data(), n); });
    check("scale", 0, [&](const Table& t, float* out) { t.scale(out, x.data(), 0.7f, n); });
    check("scale_add", 1e-6,
          [&](const Table& t, float* out) { copied(out), t.scale_add(out, 0.3f, x.data(), 1.9f, n); });
    check("rms_norm", 2e-6,
          [&](const Table& t, float* out) { t.rms_norm(out, x.data(), w.data(), 1e-5f, n); });
    check("rms_norm without weight", 2e-6,
          [&](const Table& t, float* out) { t.rms_norm(out, x.data(), nullptr, 1e-5f, n); });
    check("layer_norm", 5e-6,
          [&](const Table& t, float* out) { t.layer_norm(out, x.data(), w.data(), y.data(), 1e-2f, n); });
    check("layer_norm without weight", 5e-6,
          [&](const Table& t, float* out) { t.layer_norm(out, x.data(), nullptr, nullptr, 1e-2f, n); });
    check("silu_mul", 2e-6, [&](const Table& t, float* out) { t.silu_mul(out, x.data(), y.data(), n); });
    check("gelu_tanh_mul", 2e-6,
          [&](const Table& t, float* out) { t.gelu_tanh_mul(out, x.data(), y.data(), n); });
    check("gelu_erf_mul", 2e-6,
          [&](const Table& t, float* out) { t.gelu_erf_mul(out, x.data(), y.data(), n); });
    check("softmax", 2e-6, [&](const Table& t, float* out) { copied(out), t.softmax(out, n); });
    check("exp_sum", 2e-6, [&](const Table& t, float* out) { t.exp_sum(out, x.data(), -0.3f, n); });
    std::vector<uint64_t> bits(static_cast<size_t>(n + 63) / 64);
    // Words of all, of none and of some; the last has bits beyond the end.
    for (uint64_t& word : bits)
      word = random_.below(3) == 0 ? 0 : random_.below(2) ? ~uint64_t{0} : random_.next();
    check("set_unmarked", 0,
          [&](const Table& t, float* out) { copied(out), t.set_unmarked(out, bits.data(), -7.5f, n); });
    check("softcap", 2e-6, [&](const Table& t, float* out) { copied(out), t.softcap(out, 0.8f, n); });
  }
}

TEST_P(TableTest, RotationsMatchThePlainOnes) {
  for (const int64_t half : {1, 2, 3, 7, 8, 15, 16, 17, 20, 32, 40, 48, 64, 128}) {
    const auto x = random_floats(random_, 2 * half), c = random_floats(random_, half),
               s = random_floats(random_, half);
    const auto copied = [&](float* out) { std::copy(x.begin(), x.end(), out); };
    compare(fast(), plain(), 2 * half, 1e-6, "rope_half",
            [&](const Table& t, float* out) { copied(out), t.rope_half(out, c.data(), s.data(), half); });
    compare(fast(), plain(), 2 * half, 1e-6, "rope_interleaved", [&](const Table& t, float* out) {
      copied(out), t.rope_interleaved(out, c.data(), s.data(), half);
    });
  }
}

TEST_P(TableTest, ReductionsMatchThePlainOnes) {
  for (const int64_t n : sizes(random_)) {
    auto x = random_floats(random_, n), y = random_floats(random_, n);
    const double size = std::sqrt(static_cast<double>(n));
    EXPECT_NEAR(fast().dot(x.data(), y.data(), n), plain().dot(x.data(), y.data(), n), 1e-6 * size) << n;
    EXPECT_EQ(fast().max(x.data(), n), plain().max(x.data(), n)) << n;
    EXPECT_EQ(fast().argmax(x.data(), n), plain().argmax(x.data(), n)) << n;
    // Of equal elements the first wins.
    x[random_.below(static_cast<uint32_t>(n))] = 9.0f;
    x[random_.below(static_cast<uint32_t>(n))] = 9.0f;
    EXPECT_EQ(fast().argmax(x.data(), n), plain().argmax(x.data(), n)) << n;
    for (float& f : x) f = -INFINITY;
    EXPECT_EQ(fast().argmax(x.data(), n), 0) << n;
  }
}

double ulps(float a, double exact) {
  const auto rounded = static_cast<float>(exact);
  const double step = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded);
  return std::fabs(a - exact) / step;
}

TEST_P(TableTest, ExponentialIsAccurateAndExactAtItsEnds) {
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> x(kCount), y(kCount);
  for (int64_t i = 0; i < kCount; ++i)
    x[static_cast<size_t>(i)] = -87.0f + 175.0f * static_cast<float>(i) / static_cast<float>(kCount);
  fast().exp_sum(y.data(), x.data(), 0.0f, kCount);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], std::exp(double{x[i]})));
  EXPECT_LT(worst, 1.5);
  RecordProperty("worst_ulps", std::to_string(worst));
  float ends[] = {-INFINITY, -1000.0f, 0.0f, 200.0f, NAN};
  fast().exp_sum(ends, ends, 0.0f, 5);
  EXPECT_EQ(ends[0], 0.0f);
  EXPECT_EQ(ends[1], 0.0f);
  EXPECT_EQ(ends[2], 1.0f);
  EXPECT_EQ(ends[3], INFINITY);
  EXPECT_TRUE(std::isnan(ends[4]));
}

}  // namespace
}  // namespace millrace::kernels
