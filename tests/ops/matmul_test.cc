// Matmuls against sums in double precision over decoded weights.
#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/traits.h"
#include "testing/testing.h"

namespace millrace::ops {
namespace {

void plain_rms_norm(float* y, const float* x, const float* weight, float epsilon, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * scale * (weight ? weight[i] : 1.0f));
}

struct Rig {
  explicit Rig(int threads) : pool(threads) { table.rms_norm = plain_rms_norm; }
  ThreadPool pool;
  kernels::Table table{};
  Arena arena;
  Context context() { return {pool, table, arena, nullptr}; }
};

std::vector<float> random_values(int64_t n, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

TEST(Matmul, F32WithEveryEpilogue) {
  std::mt19937_64 random(testing::seed());
  Rig rig(2);
  const int64_t rows = 38, cols = 45, tokens = 5;
  const auto weights = random_values(rows * cols, random), x = random_values(tokens * cols, random);
  const auto bias = random_values(rows, random);
  const MatrixSource parts[] = {{{weights.data(), DType::kF32, {20, cols}}, {}},
                                {{weights.data() + 20 * cols, DType::kF32, {18, cols}}, {}}};
  const PackedMatrix w = pack_matrix(parts, best_isa(), rig.pool);
  auto expected = [&](int64_t t, int64_t row) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += double{weights[row * cols + c]} * x[t * cols + c];
    return sum * 0.5 + bias[row];
  };
  for (auto kind :
       {Epilogue::Kind::kStore, Epilogue::Kind::kAdd, Epilogue::Kind::kSwiGlu, Epilogue::Kind::kGeGluTanh}) {
    const bool gated = kind == Epilogue::Kind::kSwiGlu || kind == Epilogue::Kind::kGeGluTanh;
    const int64_t out = gated ? rows / 2 : rows, stride = out + 3;
    std::vector<float> y(static_cast<size_t>(tokens * stride), 2.0f);
    MatmulInput input = make_input(x.data(), tokens, cols);
    matmul(rig.context(), w, input, y.data(), stride, {kind, bias.data(), 0.5f});
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < out; ++r) {
        double want = expected(t, r);
        if (kind == Epilogue::Kind::kAdd) want += 2.0;
        if (kind == Epilogue::Kind::kSwiGlu) want = want / (1 + std::exp(-want)) * expected(t, r + out);
        if (kind == Epilogue::Kind::kGeGluTanh)
          want = 0.5 * want * (1 + std::tanh(0.7978845608028654 * (want + 0.044715 * want * want * want))) *
                 expected(t, r + out);
        EXPECT_NEAR(y[t * stride + r], want, 2e-5 * (1 + std::abs(want))) << t << " " << r;
      }
      EXPECT_EQ(y[t * stride + out], 2.0f);
    }
  }
}

TEST(Matmul, GroupedIsEachExpertAlone) {
  std::mt19937_64 random(testing::seed());
  Rig rig(2);
  const int64_t rows = 24, cols = 32, tokens = 7;
  const auto x = random_values(tokens * cols, random);
  std::vector<std::vector<float>> weights;
  std::vector<PackedMatrix> experts;
  for (int e = 0; e < 4; ++e) {
    weights.push_back(random_values(rows * cols, random));
    const MatrixSource part[] = {{{weights.back().data(), DType::kF32, {rows, cols}}, {}}};
    experts.push_back(pack_matrix(part, best_isa(), rig.pool));
  }
  const int32_t offsets[] = {0, 3, 3, 4, 7};
  std::vector<float> together(static_cast<size_t>(tokens * rows)), alone = together;
  MatmulInput input = make_input(x.data(), tokens, cols);
  grouped_matmul(rig.context(), experts, input, offsets, together.data(), rows);
  for (size_t e = 0; e < 4; ++e) {
    if (offsets[e] == offsets[e + 1]) continue;
    MatmulInput part = make_input(x.data() + offsets[e] * cols, offsets[e + 1] - offsets[e], cols);
    matmul(rig.context(), experts[e], part, alone.data() + offsets[e] * rows, rows);
  }
  EXPECT_EQ(together, alone);
}

TEST(Matmul, NormInputAndEmbeddings) {
  std::mt19937_64 random(testing::seed());
  Rig rig(1);
  const auto x = random_values(3 * 40, random), weight = random_values(40, random);
  const InputForm forms[] = {InputForm::kF32};
  const MatmulInput input =
      norm_input(rig.context(), x.data(), 3, 40, {NormSpec::Kind::kRms, weight.data()}, forms);
  std::vector<float> want(40);
  for (int64_t t = 0; t < 3; ++t) {
    plain_rms_norm(want.data(), x.data() + t * 40, weight.data(), 1e-5f, 40);
    for (int64_t i = 0; i < 40; ++i) EXPECT_NEAR(input.f32[t * 40 + i], want[static_cast<size_t>(i)], 1e-5);
  }
  std::vector<float> rows(80);
  const int32_t ids[] = {2, 0};
  embedding_lookup(rig.context(), {x.data(), DType::kF32, {3, 40}}, ids, rows.data());
  EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 40, x.begin() + 80));
  EXPECT_TRUE(std::equal(rows.begin() + 40, rows.end(), x.begin()));
  const int32_t bad[] = {3};
  EXPECT_ANY_THROW(embedding_lookup(rig.context(), {x.data(), DType::kF32, {3, 40}}, bad, rows.data()));
}

}  // namespace
}  // namespace millrace::ops
