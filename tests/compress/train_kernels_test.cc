// Every table of the trainer's kernels that this CPU can run against plain loops.

#include <gtest/gtest.h>

#include <cmath>

#include "compress/train/kernels.h"
#include "compress/train/orthogonal.h"
#include "core/half.h"
#include "core/random.h"
#include "testing/testing.h"

namespace millrace::train {
namespace {

std::vector<float> random_floats(Random& random, int64_t count, float scale = 1.0f) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = random.normal() * scale;
  return values;
}

class TrainKernels : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() >= num_kernel_tables()) GTEST_SKIP() << "skipped: this CPU has no such instruction set";
  }
  const Kernels& table() const { return kernel_table(GetParam()); }
  Random random_{testing::seed()};
};

TEST_P(TrainKernels, TilesSumProducts) {
  for (int round = 0; round < testing::scaled(20); ++round) {
    const int64_t k = 2 * (1 + random_.below(70));
    for (const bool half : {false, true}) {
      std::vector<float> a = random_floats(random_, kTileRows * k),
                         b = random_floats(random_, k * kPanelColumns);
      std::vector<float> c = random_floats(random_, kTileRows * kPanelColumns);
      if (half)
        for (auto* values : {&a, &b})
          for (float& v : *values) v = bf16_to_float(float_to_bf16(v));
      std::vector<double> expected(c.begin(), c.end());
      for (int64_t r = 0; r < kTileRows; ++r)
        for (int64_t i = 0; i < kPanelColumns; ++i)
          for (int64_t j = 0; j < k; ++j)
            expected[static_cast<size_t>(r * kPanelColumns + i)] +=
                static_cast<double>(a[static_cast<size_t>(r * k + j)]) *
                b[static_cast<size_t>(j * kPanelColumns + i)];
      std::vector<Word> panel(static_cast<size_t>(k * kPanelColumns));
      if (half) {
        std::vector<uint16_t> a16(a.size()), b16(b.size());
        table().to_bf16(a.data(), a16.data(), static_cast<int64_t>(a.size()));
        table().to_bf16(b.data(), b16.data(), static_cast<int64_t>(b.size()));
        table().pack_bf16(b16.data(), k, kPanelColumns, kPanelColumns, panel.data());
        std::vector<Word> words(a16.size() / 2);
        std::memcpy(words.data(), a16.data(), a16.size() * 2);
        table().gemm_bf16(words.data(), k / 2, 1, panel.data(), k / 2, c.data(), kPanelColumns, Into::kAdd);
      } else {
        table().pack_f32(b.data(), k, kPanelColumns, kPanelColumns, panel.data());
        table().gemm_f32(reinterpret_cast<const Word*>(a.data()), k, 1, panel.data(), k, c.data(),
                         kPanelColumns, Into::kAdd);
      }
      for (size_t i = 0; i < c.size(); ++i)
        ASSERT_NEAR(c[i], expected[i], 2e-3) << table().name << " half " << half;
    }
  }
}

TEST_P(TrainKernels, ExponentialsAreCloseAtEveryLength) {
  for (int64_t count = 1; count < 70; ++count) {
    std::vector<float> x = random_floats(random_, count, 8.0f);
    const std::vector<float> before = x;
    double expected = 0;
    const float sum = table().exp_sum(x.data(), 0.5f, 1.25f, count);
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(0.5 * before[i] - 1.25);
      ASSERT_NEAR(x[i] / exact, 1.0, 2e-6) << before[i];
      expected += exact;
    }
    ASSERT_NEAR(sum / expected, 1.0, 1e-5);
    ASSERT_EQ(table().maximum(before.data(), count), *std::max_element(before.begin(), before.end()));
  }
}

TEST_P(TrainKernels, NormsAndGatesFollowTheirFormulas) {
  constexpr int64_t kCount = 96;
  const auto x = random_floats(random_, kCount), weight = random_floats(random_, kCount),
             up = random_floats(random_, kCount);
  std::vector<float> y(kCount), gated(kCount);
  const float rstd = table().rms_norm(x.data(), weight.data(), y.data(), kCount, 1e-5f);
  double square = 0;
  for (const float v : x) square += static_cast<double>(v) * v;
  EXPECT_NEAR(rstd, 1.0 / std::sqrt(square / kCount + 1e-5), 1e-5);
  table().swiglu(x.data(), up.data(), gated.data(), kCount);
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(y[i], x[i] * rstd * weight[i], 1e-5);
    EXPECT_NEAR(gated[i], x[i] / (1.0 + std::exp(-static_cast<double>(x[i]))) * up[i], 1e-5);
  }
}

TEST_P(TrainKernels, RotationKeepsLengthsAndTurnsByTheAngle) {
  std::vector<float> x(64, 0.0f), cosine(64), sine(64);
  for (size_t i = 0; i < 64; i += 2) {
    x[i] = 1.0f;
    const double angle = 0.1 * static_cast<double>(i);
    cosine[i] = cosine[i + 1] = static_cast<float>(std::cos(angle));
    sine[i] = static_cast<float>(-std::sin(angle));
    sine[i + 1] = -sine[i];
  }
  table().rope(x.data(), cosine.data(), sine.data(), 64);
  for (size_t i = 0; i < 64; i += 2) {
    EXPECT_NEAR(x[i], cosine[i], 1e-6);
    EXPECT_NEAR(x[i + 1], sine[i + 1], 1e-6);
  }
}

TEST_P(TrainKernels, OrthogonalisedMatricesHaveSingularValuesNearOne) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{32, 96}, {96, 32}, {64, 64}}) {
    auto matrix = random_floats(random_, rows * columns);
    OrthogonalScratch scratch;
    orthogonalise(table(), matrix.data(), rows, columns, scratch);
    // The quintic's plateau is 0.7 to 1.2, so the rows (or columns) of the smaller side have such lengths
    // too.
    const bool wide = rows <= columns;
    for (int64_t i = 0; i < std::min(rows, columns); ++i) {
      double square = 0;
      for (int64_t j = 0; j < std::max(rows, columns); ++j) {
        const float v = matrix[static_cast<size_t>(wide ? i * columns + j : j * columns + i)];
        square += static_cast<double>(v) * v;
      }
      EXPECT_GT(std::sqrt(square), 0.3);
      EXPECT_LT(std::sqrt(square), 1.3);
    }
  }
  std::vector<float> zero(32 * 32, 0.0f);
  OrthogonalScratch scratch;
  orthogonalise(table(), zero.data(), 32, 32, scratch);
  for (const float v : zero) EXPECT_EQ(v, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Tables, TrainKernels, ::testing::Range(0, 4), [](const auto& info) {
  return info.param < num_kernel_tables() ? std::string(kernel_table(info.param).name)
                                          : fmt::format("absent{}", info.param);
});

}  // namespace
}  // namespace millrace::train
