// Matmuls against sums in double precision over decoded weights.
#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
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
  explicit Rig(int threads, IsaLevel isa = best_isa()) : pool(threads), table(kernels::table(isa)) {}
  ThreadPool pool;
  const kernels::Table& table;
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
  grouped_matmul(rig.context(), experts, input, offsets, {}, together.data(), rows);
  for (size_t e = 0; e < 4; ++e) {
    if (offsets[e] == offsets[e + 1]) continue;
    MatmulInput part = make_input(x.data() + offsets[e] * cols, offsets[e + 1] - offsets[e], cols);
    matmul(rig.context(), experts[e], part, alone.data() + offsets[e] * rows, rows);
  }
  EXPECT_EQ(together, alone);

  // Gate and up rows: halves of 12 do not begin at a panel's edge.
  const Epilogue gated{Epilogue::Kind::kSwiGlu};
  std::vector<float> paired(static_cast<size_t>(tokens * rows / 2));
  grouped_matmul(rig.context(), experts, input, offsets, {}, paired.data(), rows / 2, gated);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows / 2; ++r) {
      const float gate = together[t * rows + r];
      const float want = gate / (1 + std::exp(-gate)) * together[t * rows + rows / 2 + r];
      EXPECT_NEAR(paired[t * rows / 2 + r], want, 1e-5 * (1 + std::abs(want)));
    }
  }
}

/// Rows of an expert of which some are rounded get what each kind gets in a product of its own.
TEST(Matmul, GroupedRowsOfBothKinds) {
  std::mt19937_64 random(testing::seed());
  Rig rig(2, fastest_isa());
  const int64_t rows = 64, cols = 256, tokens = 61;
  const auto x = random_values(tokens * cols, random), values = random_values(4 * rows * cols, random);
  const uint64_t bytes = static_cast<uint64_t>(rows) * *quant::row_bytes(DType::kQ4_0, cols);
  std::vector<uint8_t> source(4 * bytes);
  quant::traits(DType::kQ4_0).encode(values.data(), source.data(), 4 * rows * cols, nullptr);
  std::vector<PackedMatrix> experts;
  for (uint64_t e = 0; e < 4; ++e) {
    const MatrixSource part[] = {{{source.data() + e * bytes, DType::kQ4_0, {rows, cols}}, {}}};
    experts.push_back(pack_matrix(part, fastest_isa(), rig.pool));
  }
  const int32_t offsets[] = {0, 20, 20, 31, 61}, rounded[] = {7, 0, 11, 0};
  std::vector<float> together(static_cast<size_t>(tokens * rows)), alone = together;
  MatmulInput input = make_input(x.data(), tokens, cols);
  grouped_matmul(rig.context(), experts, input, offsets, rounded, together.data(), rows);
  for (size_t e = 0; e < 4; ++e) {
    MatmulInput part =
        make_input(x.data() + offsets[e] * cols, offsets[e + 1] - offsets[e], cols, 0, rounded[e]);
    matmul(rig.context(), experts[e], part, alone.data() + offsets[e] * rows, rows);
  }
  EXPECT_EQ(together, alone);
}

/// Quantised and plain weights: neither threads nor the batch change a bit, wherever in it the border between
/// rounded tokens and others lies.
void check_threads_and_batch(IsaLevel isa) {
  std::mt19937_64 random(testing::seed());
  const int64_t rows = 1056, cols = 512, most = 130;
  const auto values = random_values(rows * cols, random), x = random_values(most * cols, random);
  for (DType type : {DType::kF32, DType::kBF16, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    std::vector<uint8_t> bytes(static_cast<size_t>(rows) * *quant::row_bytes(type, cols));
    quant::traits(type).encode(values.data(), bytes.data(), rows * cols, nullptr);
    const MatrixSource parts[] = {{{bytes.data(), type, {rows, cols}}, {}}};
    std::array<std::vector<float>, 2> reference;  // exact, rounded
    for (int threads : {1, 2, 3}) {
      Rig rig(threads, isa);
      const PackedMatrix w = pack_matrix(parts, isa, rig.pool);
      EXPECT_LE(w.bytes(), bytes.size());
      auto product = [&](int64_t first, int64_t tokens, int64_t rounded) {
        std::vector<float> y(static_cast<size_t>(tokens * rows / 2));
        MatmulInput input = make_input(x.data() + first * cols, tokens, cols, 0, rounded);
        matmul(rig.context(), w, input, y.data(), rows / 2, {Epilogue::Kind::kSwiGlu});
        rig.arena.reset();
        return y;
      };
      const std::vector<float> exact = product(0, most, 0), rounded = product(0, most, most);
      if (reference[0].empty()) reference = {exact, rounded};
      EXPECT_EQ(exact, reference[0]) << dtype_name(type) << " with " << threads << " threads";
      EXPECT_EQ(rounded, reference[1]) << dtype_name(type) << " with " << threads << " threads";
      EXPECT_EQ(exact != rounded, kernels::matmul_layout(type, isa)->rounded.run != nullptr)
          << dtype_name(type) << ": rounded tokens take another kernel exactly where there is one";
      for (int64_t tokens : {1, 3, 8, 33, 65, 100}) {
        const auto first = static_cast<int64_t>(random() % static_cast<uint64_t>(most - tokens));
        const auto border = static_cast<int64_t>(random() % static_cast<uint64_t>(tokens + 1));
        const std::vector<float> part = product(first, tokens, border);
        const auto begin = part.begin(), middle = begin + border * rows / 2;
        EXPECT_TRUE(std::equal(begin, middle, reference[1].begin() + first * rows / 2) &&
                    std::equal(middle, part.end(), reference[0].begin() + (first + border) * rows / 2))
            << dtype_name(type) << ": " << border << " of " << tokens << " tokens rounded";
      }
    }
  }
}

TEST(Matmul, ThreadsAndBatchChangeNoBit) {
  for (IsaLevel isa : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmxInt8,
                       IsaLevel::kAmx, IsaLevel::kAmxFp16})
    if (isa <= fastest_isa()) check_threads_and_batch(isa);
}

/// Results that kernels put to y themselves are those that pass through scratch, and nothing beside them is
/// written.
TEST(Matmul, ResultsAreTheSameWhereverTheyAreSummed) {
  std::mt19937_64 random(testing::seed());
  const int64_t cols = 1280, most = 130;
  const auto x = random_values(most * cols, random);
  for (const int64_t rows : {1056, 1000}) {
    const auto values = random_values(rows * cols, random);
    const std::vector<float> zeros(static_cast<size_t>(rows));
    for (DType type : {DType::kF32, DType::kBF16, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
      std::vector<uint8_t> bytes(static_cast<size_t>(rows) * *quant::row_bytes(type, cols));
      quant::traits(type).encode(values.data(), bytes.data(), rows * cols, nullptr);
      const MatrixSource parts[] = {{{bytes.data(), type, {rows, cols}}, {}}};
      for (IsaLevel isa : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmxInt8,
                           IsaLevel::kAmx, IsaLevel::kAmxFp16}) {
        if (isa > fastest_isa()) continue;
        Rig rig(2, isa);
        const PackedMatrix w = pack_matrix(parts, isa, rig.pool);
        for (int64_t tokens : {1, 5, 33, 130}) {
          const int64_t stride = rows + 3;
          std::vector<float> direct(static_cast<size_t>(tokens * stride), 7.0f), copied = direct;
          MatmulInput input = make_input(x.data(), tokens, cols, 0, tokens / 2);
          matmul(rig.context(), w, input, direct.data(), stride);
          matmul(rig.context(), w, input, copied.data(), stride, {.bias = zeros.data()});
          EXPECT_EQ(direct, copied) << dtype_name(type) << ", " << rows << " rows, " << tokens << " tokens";
          rig.arena.reset();
        }
      }
    }
  }
}

/// What the epilogue of gate and up makes for the next product is what is made of the result in memory.
TEST(Matmul, EpilogueMakesTheNextInput) {
  std::mt19937_64 random(testing::seed());
  const int64_t rows = 3072, cols = 256, width = rows / 2, most = 130;
  const auto values = random_values(rows * cols, random), x = random_values(most * cols, random);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * *quant::row_bytes(DType::kQ4_0, cols));
  quant::traits(DType::kQ4_0).encode(values.data(), bytes.data(), rows * cols, nullptr);
  const MatrixSource parts[] = {{{bytes.data(), DType::kQ4_0, {rows, cols}}, {}}};
  for (IsaLevel isa : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmxFp16}) {
    if (isa > fastest_isa()) continue;
    for (int threads : {1, 3}) {
      Rig rig(threads, isa);
      const PackedMatrix w = pack_matrix(parts, isa, rig.pool);
      for (InputForm form : {InputForm::kInt8, InputForm::kInt8Super}) {
        for (int64_t tokens : {1, 7, 40, 130}) {
          for (int64_t rounded : {int64_t{0}, tokens / 2}) {
            const Epilogue::Kind kind = tokens % 2 ? Epilogue::Kind::kSwiGlu : Epilogue::Kind::kGeGluTanh;
            MatmulInput input = make_input(x.data(), tokens, cols, 0, rounded);
            std::vector<float> y(static_cast<size_t>(tokens * width));
            matmul(rig.context(), w, input, y.data(), width, {kind});
            MatmulInput want = make_input(y.data(), tokens, width);
            prepare_rows(rig.context(), want, form, 0, tokens);
            ASSERT_TRUE(epilogue_makes(rig.context(), form, 0));
            MatmulInput made = make_input_of_form(rig.context(), tokens, width, form);
            matmul(rig.context(), w, input, nullptr, 0, {.kind = kind, .input = &made, .form = form});
            const auto at = static_cast<size_t>(form);
            for (int64_t t = 0; t < tokens; ++t)
              ASSERT_EQ(std::memcmp(made.prepared[at].rows + t * prepared_stride(form, made),
                                    want.prepared[at].rows + t * prepared_stride(form, want),
                                    static_cast<size_t>(width / 32 * 64)),
                        0)
                  << tokens << " tokens, " << rounded << " rounded, " << threads << " threads, token " << t;
            rig.arena.reset();
          }
        }
      }
      EXPECT_FALSE(epilogue_makes(rig.context(), InputForm::kF32, 0));
    }
  }
}

/// The two kinds of product of a matrix unit's level agree within the rounding of int8 and BF16 activations.
TEST(Matmul, RoundedTokensAndOthersAgree) {
  std::mt19937_64 random(testing::seed());
  const int64_t rows = 96, cols = 1024, most = 600;
  const auto values = random_values(rows * cols, random), normal = random_values(most * cols, random);
  // As large on average, and the largest of 256, which share a scale in super-blocks, hardly above that
  // of 32.
  std::uniform_real_distribution<float> any(-std::sqrt(3.0f), std::sqrt(3.0f));
  std::vector<float> uniform(normal.size());
  for (float& v : uniform) v = any(random);
  for (DType type : {DType::kBF16, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kIQ4_NL}) {
    std::vector<uint8_t> bytes(static_cast<size_t>(rows) * *quant::row_bytes(type, cols));
    quant::traits(type).encode(values.data(), bytes.data(), rows * cols, nullptr);
    const MatrixSource parts[] = {{{bytes.data(), type, {rows, cols}}, {}}};
    Rig rig(2, fastest_isa());
    const PackedMatrix w = pack_matrix(parts, fastest_isa(), rig.pool);
    const auto& x = w.input_form() == InputForm::kInt8Super ? uniform : normal;
    std::vector<float> many(static_cast<size_t>(most * rows)), one(static_cast<size_t>(rows));
    MatmulInput input = make_input(x.data(), most, cols, 0, most);
    matmul(rig.context(), w, input, many.data(), rows);
    for (int64_t t : {int64_t{0}, int64_t{255}, most - 1}) {
      MatmulInput alone = make_input(x.data() + t * cols, 1, cols);
      matmul(rig.context(), w, alone, one.data(), rows);
      // Each of 1,024 products of about one is off by at most 1/127 of the largest value that shares its
      // scale: 0.02 or so.
      for (int64_t r = 0; r < rows; ++r)
        EXPECT_NEAR(one[static_cast<size_t>(r)], many[static_cast<size_t>(t * rows + r)],
                    0.02 * std::sqrt(1024.0))
            << dtype_name(type) << " token " << t;
    }
  }
}

TEST(Matmul, PackingReleasesEverySourceByteOnce) {
  std::mt19937_64 random(testing::seed());
  Rig rig(2);
  const int64_t cols = 4096;
  const auto a = random_values(1000 * cols, random), b = random_values(77 * cols, random);
  size_t released = 0;
  const std::function<void(const void*, size_t)> release = [&](const void* begin, size_t bytes) {
    const auto* p = static_cast<const float*>(begin);
    const bool in_a = p >= a.data() && p + bytes / 4 <= a.data() + a.size();
    const bool in_b = p >= b.data() && p + bytes / 4 <= b.data() + b.size();
    EXPECT_TRUE(in_a || in_b);
    released += bytes;
  };
  const MatrixSource parts[] = {{{a.data(), DType::kF32, {1000, cols}}, release},
                                {{b.data(), DType::kF32, {77, cols}}, release}};
  const PackedMatrix w = pack_matrix(parts, best_isa(), rig.pool);
  EXPECT_EQ(w.rows(), 1077);
  EXPECT_EQ(released, (a.size() + b.size()) * 4);
}

TEST(Matmul, NormInputAndEmbeddings) {
  std::mt19937_64 random(testing::seed());
  Rig rig(1);
  const auto x = random_values(3 * 40, random), weight = random_values(40, random);
  const InputForm forms[] = {InputForm::kF32, InputForm::kBF16};
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
