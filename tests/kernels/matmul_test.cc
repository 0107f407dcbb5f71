// Every matmul kernel that this CPU runs against sums over decoded weights, on random shapes.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/half.h"
#include "quant/blocks.h"
#include "quant/traits.h"
#include "testing/kernels.h"
#include "testing/testing.h"

namespace millrace::kernels {
namespace {

using testing::isa_levels;

constexpr DType kTypes[] = {DType::kF32,    DType::kF16,     DType::kBF16,   DType::kF8E4M3, DType::kF8E5M2,
                            DType::kQ4_0,   DType::kQ4_1,    DType::kQ5_0,   DType::kQ5_1,   DType::kQ8_0,
                            DType::kQ2_K,   DType::kQ3_K,    DType::kQ4_K,   DType::kQ5_K,   DType::kQ6_K,
                            DType::kIQ4_NL, DType::kIQ4_XS,  DType::kMXFP4,  DType::kNVFP4,  DType::kTQ1_0,
                            DType::kTQ2_0,  DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,  DType::kIQ3_XXS,
                            DType::kIQ3_S,  DType::kIQ1_S,   DType::kIQ1_M};

/// Byte offsets of a block's fp16 fields, which random bytes must not make infinite.
std::vector<size_t> half_fields(DType type) {
  using namespace quant;
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kIQ1_S:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)};
    case DType::kQ3_K:
      return {offsetof(BlockQ3_K, d)};
    case DType::kQ6_K:
      return {offsetof(BlockQ6_K, d)};
    case DType::kTQ1_0:
      return {offsetof(BlockTQ1_0, d)};
    case DType::kTQ2_0:
      return {offsetof(BlockTQ2_0, d)};
    default:
      return {};
  }
}

struct Weights {
  std::vector<uint8_t> bytes;
  size_t row_bytes;
  std::vector<float> values;  // decoded
};

/// Any bytes are codes; scales are kept near one.
Weights random_weights(DType type, int64_t rows, int64_t cols, std::mt19937_64& random) {
  const quant::Traits& traits = quant::traits(type);
  Weights w;
  w.row_bytes = static_cast<size_t>(*quant::row_bytes(type, static_cast<uint64_t>(cols)));
  w.bytes.resize(w.row_bytes * static_cast<size_t>(rows));
  w.values.resize(static_cast<size_t>(rows * cols));
  std::normal_distribution<float> normal;
  if (traits.block_elements == 1) {
    for (float& v : w.values) v = normal(random);
    traits.encode(w.values.data(), w.bytes.data(), rows * cols, nullptr);
  } else {
    for (uint8_t& b : w.bytes) b = static_cast<uint8_t>(random());
    for (size_t block = 0; block < w.bytes.size(); block += static_cast<size_t>(traits.block_bytes)) {
      for (size_t at : half_fields(type)) {
        const fp16_t scale = float_to_fp16(normal(random) * 0.1f);
        std::memcpy(&w.bytes[block + at], &scale, 2);
      }
      if (type == DType::kMXFP4) w.bytes[block] = static_cast<uint8_t>(120 + random() % 8);
      if (type == DType::kNVFP4)
        for (size_t i = 0; i < 4; ++i) w.bytes[block + i] = static_cast<uint8_t>(random() % 128);
      if (type == DType::kIQ1_M)  // the scale's exponent lies in the high nibble of the last byte
        w.bytes[block + offsetof(quant::BlockIQ1_M, scales) + 7] =
            static_cast<uint8_t>((w.bytes[block + offsetof(quant::BlockIQ1_M, scales) + 7] & 15) | 0x20);
    }
  }
  traits.decode(w.bytes.data(), w.values.data(), rows * cols);
  return w;
}

struct Packed {
  std::vector<std::byte> bytes;
  int64_t panel_bytes;
  int64_t panels;
};

Packed pack(const MatmulLayout& layout, const Weights& w, int64_t rows, int64_t cols) {
  Packed p;
  p.panel_bytes = layout.panel_bytes(cols);
  p.panels = (rows + kMatmulRows - 1) / kMatmulRows;
  p.bytes.resize(static_cast<size_t>(p.panel_bytes * p.panels) + 64);
  const std::vector<uint8_t> zeros(w.row_bytes);
  for (int64_t panel = 0; panel < p.panels; ++panel) {
    const std::byte* sources[kMatmulRows];
    for (int64_t i = 0; i < kMatmulRows; ++i) {
      const int64_t row = panel * kMatmulRows + i;
      sources[i] = reinterpret_cast<const std::byte*>(
          row < rows ? w.bytes.data() + static_cast<size_t>(row) * w.row_bytes : zeros.data());
    }
    layout.pack(sources, cols, p.bytes.data() + panel * p.panel_bytes);
  }
  return p;
}

struct Prepared {
  std::vector<ActivationBlock> int8;
  std::vector<uint16_t> bf16;
  std::vector<float> values;  // what the kernel really multiplies with
  const std::byte* data;
  int64_t stride;
};

Prepared prepare(MatmulInput form, IsaLevel isa, const std::vector<float>& x, int64_t tokens, int64_t cols) {
  Prepared p;
  p.values = x;
  p.data = reinterpret_cast<const std::byte*>(x.data());
  p.stride = cols * 4;
  const MatmulInputKernels& convert = matmul_input_kernels(isa);
  if (form == MatmulInput::kInt8 || form == MatmulInput::kInt8Super) {
    const int64_t blocks = cols / kBlockCols;
    p.int8.resize(static_cast<size_t>(tokens * blocks));
    (form == MatmulInput::kInt8 ? convert.quantize : convert.quantize_super)(x.data(), tokens * cols,
                                                                             p.int8.data());
    for (size_t i = 0; i < x.size(); ++i)
      p.values[i] =
          static_cast<float>(p.int8[i / kBlockCols].values[i % kBlockCols]) * p.int8[i / kBlockCols].scale;
    p.data = reinterpret_cast<const std::byte*>(p.int8.data());
    p.stride = blocks * static_cast<int64_t>(sizeof(ActivationBlock));
  } else if (form == MatmulInput::kBF16) {
    const int64_t padded = (cols + 1) / 2 * 2;
    p.bf16.resize(static_cast<size_t>(tokens * padded));
    for (int64_t t = 0; t < tokens; ++t)
      convert.to_bf16(x.data() + t * cols, cols, p.bf16.data() + t * padded);
    for (int64_t i = 0; i < tokens * cols; ++i)
      p.values[static_cast<size_t>(i)] =
          bf16_to_float(p.bf16[static_cast<size_t>(i / cols * padded + i % cols)]);
    p.data = reinterpret_cast<const std::byte*>(p.bf16.data());
    p.stride = padded * 2;
  } else if (form == MatmulInput::kF16) {
    p.stride = cols * 2 + 64;
    p.bf16.resize(static_cast<size_t>(tokens * p.stride / 2));
    p.data = reinterpret_cast<const std::byte*>(p.bf16.data());
    for (int64_t t = 0; t < tokens; ++t) {
      uint16_t* row = p.bf16.data() + t * p.stride / 2;
      convert.to_f16(x.data() + t * cols, cols, row);
      float factor;
      std::memcpy(&factor, row + cols, sizeof factor);
      for (int64_t c = 0; c < cols; ++c) {
        constexpr int64_t kOrder[] = {0, 2, 1, 3};
        p.values[static_cast<size_t>(t * cols + c)] =
            fp16_to_float(fp16_t{row[c / 4 * 4 + kOrder[c % 4]]}) * factor * kF16WeightScale;
      }
    }
  }
  return p;
}

std::vector<float> run(const MatmulKernel& kernel, const Packed& w, const Prepared& x, int64_t first,
                       int64_t tokens, int64_t cols) {
  const int64_t stride = w.panels * kMatmulRows;
  std::vector<float> out(static_cast<size_t>(tokens * stride), -1.0f);
  alignas(64) static std::byte scratch[kMatmulScratchBytes];
  // Two tasks of one call, the second of which may find what the first made of the input.
  static uint64_t call = 0;
  ++call;
  for (int64_t panel = 0; panel < w.panels; panel += std::max<int64_t>(1, w.panels - 1)) {
    const int64_t panels = panel == 0 ? std::max<int64_t>(1, w.panels - 1) : 1;
    kernel.run({w.bytes.data() + panel * w.panel_bytes, w.panel_bytes, panels, cols,
                x.data + first * x.stride, x.stride, tokens, out.data() + panel * kMatmulRows, stride,
                scratch, call});
  }
  return out;
}

struct Sum {
  double sum = 0, magnitude = 0;
};
/// Of a row's products with what the kernel really multiplies.
Sum exact_sum(const Weights& w, int64_t row, const Prepared& input, int64_t token, int64_t cols) {
  Sum s;
  for (int64_t c = 0; c < cols; ++c) {
    const double product = double{w.values[static_cast<size_t>(row * cols + c)]} *
                           input.values[static_cast<size_t>(token * cols + c)];
    s.sum += product;
    s.magnitude += std::abs(product);
  }
  return s;
}

class MatmulKernels : public ::testing::TestWithParam<DType> {};

TEST_P(MatmulKernels, AgreesWithDecodedSumsAtEveryShape) {
  const DType type = GetParam();
  const quant::Traits& traits = quant::traits(type);
  ASSERT_TRUE(traits.decode);
  std::mt19937_64 random(testing::seed() + static_cast<uint64_t>(type));
  std::normal_distribution<float> normal;
  for (int64_t round = 0; round < testing::scaled(6); ++round) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 50);
    const int64_t unit = traits.block_elements == 1 ? 1 : traits.block_elements;
    const int64_t cols =
        unit == 1 ? 1 + static_cast<int64_t>(random() % 600)
                  : unit * (1 + static_cast<int64_t>(random() % static_cast<uint64_t>(1024 / unit)));
    const int64_t tokens = round < 4 ? 1 + round : 1 + static_cast<int64_t>(random() % 90);
    const Weights w = random_weights(type, rows, cols, random);
    std::vector<float> x(static_cast<size_t>(tokens * cols));
    for (float& v : x) v = normal(random);
    for (IsaLevel isa : isa_levels()) {
      SCOPED_TRACE(fmt::format("{} rows {} cols {} tokens {}", isa_name(isa), rows, cols, tokens));
      const MatmulLayout* layout = matmul_layout(type, isa);
      ASSERT_NE(layout, nullptr);
      const Packed packed = pack(*layout, w, rows, cols);
      const int64_t padded_rows = packed.panels * kMatmulRows;
      if (rows % kMatmulRows == 0 && cols % 2 == 0) {
        EXPECT_LE(packed.panel_bytes * packed.panels, static_cast<int64_t>(w.bytes.size()));
      }
      const MatmulKernel& kernel =
          layout->rounded.run && random() % 2 ? layout->rounded : layout->kernel(tokens, cols);
      const Prepared input = prepare(kernel.input, isa, x, tokens, cols);
      const std::vector<float> out = run(kernel, packed, input, 0, tokens, cols);
      // Rounding weights moves each by up to 2^-8 of itself in BF16; in half precision its scale and the
      // product by 2^-11, which counts more where codes and an offset cancel.
      const double of_weights = kernel.input == MatmulInput::kF16                            ? 1.0 / 512
                                : kernel.input == MatmulInput::kBF16 && type != DType::kBF16 ? 1.0 / 256
                                                                                             : 1e-5;
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t row = 0; row < rows; ++row) {
          const auto [sum, magnitude] = exact_sum(w, row, input, t, cols);
          // Float rounding alone: the kernel's activations are those of the sum. Offsets cancel against
          // codes, which makes terms larger than the products; eight times is enough for that.
          ASSERT_NEAR(out[static_cast<size_t>(t * padded_rows + row)], sum, of_weights * magnitude + 1e-6)
              << "token " << t << " row " << row;
        }
        for (int64_t row = rows; row < padded_rows; ++row)
          ASSERT_EQ(out[static_cast<size_t>(t * padded_rows + row)], 0.0f);
      }
    }
  }
}

TEST_P(MatmulKernels, TheNumberOfTokensChangesNoBit) {
  const DType type = GetParam();
  const quant::Traits& traits = quant::traits(type);
  std::mt19937_64 random(testing::seed() ^ static_cast<uint64_t>(type));
  std::normal_distribution<float> normal;
  const int64_t rows = 64, cols = traits.block_elements == 1 ? 555 : traits.block_elements >= 256 ? 768 : 576;
  const int64_t most = 60;
  const Weights w = random_weights(type, rows, cols, random);
  std::vector<float> x(static_cast<size_t>(most * cols));
  for (float& v : x) v = normal(random);
  for (IsaLevel isa : isa_levels()) {
    const MatmulLayout* layout = matmul_layout(type, isa);
    const Packed packed = pack(*layout, w, rows, cols);
    std::vector<float> all;
    for (const MatmulKernel* kernel : {&layout->few, &layout->some, &layout->rounded}) {
      if (!kernel->run) continue;
      // Where kernels read the same form, a token's sums are the same by each.
      const Prepared input = prepare(kernel->input, isa, x, most, cols);
      if (all.empty() || kernel->input != layout->few.input) all = run(*kernel, packed, input, 0, most, cols);
      for (int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17, 24, 25, 29, 32, 33, 41, 47, 60}) {
        const int64_t first = static_cast<int64_t>(random() % static_cast<uint64_t>(most - tokens + 1));
        const std::vector<float> part = run(*kernel, packed, input, first, tokens, cols);
        ASSERT_EQ(std::memcmp(part.data(), all.data() + first * rows, part.size() * 4), 0)
            << isa_name(isa) << ": " << tokens << " tokens";
      }
    }
  }
}

/// A prompt's kernel has a way of its own for one or two tiles of tokens, for up to sixteen, which take the
/// columns in parts where these are many, and for more.
TEST_P(MatmulKernels, TheLengthOfAPromptChangesNoBit) {
  const DType type = GetParam();
  std::mt19937_64 random(testing::seed() ^ static_cast<uint64_t>(type));
  std::normal_distribution<float> normal;
  const int64_t rows = 64, cols = 2560, most = 300;
  const Weights w = random_weights(type, rows, cols, random);
  std::vector<float> x(static_cast<size_t>(most * cols));
  for (float& v : x) v = normal(random);
  for (IsaLevel isa : isa_levels()) {
    const MatmulLayout* layout = matmul_layout(type, isa);
    const MatmulKernel& kernel = layout->rounded.run ? layout->rounded : layout->some;
    if (kernel.input != MatmulInput::kBF16 && kernel.input != MatmulInput::kF16) continue;
    const Packed packed = pack(*layout, w, rows, cols);
    const Prepared input = prepare(kernel.input, isa, x, most, cols);
    const std::vector<float> all = run(kernel, packed, input, 0, most, cols);
    for (int64_t tokens : {20, 40, 96, 203, 256, 257, 289}) {
      const int64_t first = static_cast<int64_t>(random() % static_cast<uint64_t>(most - tokens + 1));
      const std::vector<float> part = run(kernel, packed, input, first, tokens, cols);
      ASSERT_EQ(std::memcmp(part.data(), all.data() + first * rows, part.size() * 4), 0)
          << isa_name(isa) << ": " << tokens << " tokens";
    }
  }
}

/// The largest codes, scales and activations there are, of one sign and of turning signs: sums of whole
/// numbers hold them, in every kernel.
TEST_P(MatmulKernels, HoldTheLargestSums) {
  const DType type = GetParam();
  const quant::Traits& traits = quant::traits(type);
  const MatmulInput read = matmul_layout(type, isa_levels().front())->few.input;
  if (read != MatmulInput::kInt8 && read != MatmulInput::kInt8Super) return;
  std::mt19937_64 random(testing::seed());
  const int64_t rows = 32, cols = 512, most = 33;
  for (const uint8_t byte : {uint8_t{0}, uint8_t{0x7f}, uint8_t{0x80}, uint8_t{0xff}}) {
    Weights w = random_weights(type, rows, cols, random);
    std::vector<uint8_t> keep = w.bytes;
    std::fill(w.bytes.begin(), w.bytes.end(), byte);
    for (size_t block = 0; block < w.bytes.size(); block += static_cast<size_t>(traits.block_bytes)) {
      for (size_t at : half_fields(type)) std::memcpy(&w.bytes[block + at], &keep[block + at], 2);
      if (type == DType::kMXFP4 || type == DType::kNVFP4)
        std::memcpy(&w.bytes[block], &keep[block], type == DType::kMXFP4 ? 1 : 4);
    }
    traits.decode(w.bytes.data(), w.values.data(), rows * cols);
    std::vector<float> x(static_cast<size_t>(most * cols));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = (i / cols % 3 == 1 && i % 2) || i / cols % 3 == 2 ? -1.0f : 1.0f;
    for (IsaLevel isa : isa_levels()) {
      const MatmulLayout* layout = matmul_layout(type, isa);
      const Packed packed = pack(*layout, w, rows, cols);
      const Prepared input = prepare(layout->few.input, isa, x, most, cols);
      const Prepared read_by_some = prepare(layout->some.input, isa, x, most, cols);
      const std::vector<float> all = run(layout->some, packed, read_by_some, 0, most, cols);
      for (int64_t t = 0; t + 8 <= most; t += 8) {
        const std::vector<float> eight = run(layout->some, packed, read_by_some, t, 8, cols);
        ASSERT_EQ(std::memcmp(eight.data(), all.data() + t * rows, eight.size() * 4), 0)
            << isa_name(isa) << ": eight tokens from " << t << ", bytes " << int{byte};
      }
      for (int64_t t = 0; t < most; ++t) {
        const std::vector<float> one = run(layout->few, packed, input, t, 1, cols);
        ASSERT_EQ(std::memcmp(one.data(), all.data() + t * rows, one.size() * 4), 0)
            << isa_name(isa) << ": token " << t << ", bytes " << int{byte};
        for (int64_t row = 0; row < rows; ++row) {
          const auto [sum, magnitude] = exact_sum(w, row, input, t, cols);
          // As in the test above, of float rounding alone; of products that are all alike nothing cancels but
          // between signs, where codes less their offset may be nothing.
          ASSERT_NEAR(one[static_cast<size_t>(row)], sum, 1e-5 * magnitude + 2e-3)
              << isa_name(isa) << ": token " << t << " row " << row << ", bytes " << int{byte};
        }
      }
    }
  }
}

std::string type_name(const ::testing::TestParamInfo<DType>& info) {
  return std::string(dtype_name(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, MatmulKernels, ::testing::ValuesIn(kTypes), type_name);

TEST(MatmulInputKernels, Int8ErrorIsThatOfQ8_0) {
  std::mt19937_64 random(testing::seed());
  std::normal_distribution<float> normal;
  std::vector<float> x(4096);
  for (float& v : x) v = normal(random) * std::exp(normal(random));
  std::fill(x.begin() + 64, x.begin() + 96, 0.0f);
  for (int i = 96; i < 128; ++i)
    x[static_cast<size_t>(i)] *= 1e-38f;  // too small for a scale: zero, not infinity
  for (IsaLevel isa : isa_levels()) {
    std::vector<ActivationBlock> blocks(x.size() / kBlockCols);
    matmul_input_kernels(isa).quantize(x.data(), static_cast<int64_t>(x.size()), blocks.data());
    for (size_t b = 0; b < blocks.size(); ++b) {
      float largest = 0;
      int sum = 0, half = 0;
      for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[b * 32 + i]));
      for (size_t i = 0; i < 32; ++i) {
        const float value = static_cast<float>(blocks[b].values[i]) * blocks[b].scale;
        EXPECT_LE(std::abs(value - x[b * 32 + i]), largest * (0.5001f / 127.0f + 0x1p-11f) + 1e-36f);
        sum += blocks[b].values[i];
        if (i < 16) half += blocks[b].values[i];
      }
      EXPECT_EQ(blocks[b].negative_sum, -sum);
      EXPECT_EQ(blocks[b].negative_half_sums[0], -half);
      EXPECT_EQ(blocks[b].negative_half_sums[1], half - sum);
      EXPECT_FLOAT_EQ(blocks[b].offset_sum, blocks[b].scale * static_cast<float>(sum));
      EXPECT_FLOAT_EQ(blocks[b].offset_half_sums[1], blocks[b].scale * static_cast<float>(sum - half));
    }
  }
}

/// What is not finite must not vanish: it reaches the result.
TEST(MatmulInputKernels, InfinityHasAScale) {
  for (IsaLevel isa : isa_levels()) {
    std::vector<float> x(kSuperCols, 1.0f);
    x[40] = std::numeric_limits<float>::infinity();
    std::vector<ActivationBlock> blocks(x.size() / kBlockCols);
    matmul_input_kernels(isa).quantize(x.data(), kSuperCols, blocks.data());
    EXPECT_TRUE(std::isfinite(blocks[0].scale) && std::isinf(blocks[1].scale));
    matmul_input_kernels(isa).quantize_super(x.data(), kSuperCols, blocks.data());
    EXPECT_TRUE(std::isinf(blocks[0].scale));
  }
}

TEST(MatmulInputKernels, SuperBlocksShareAScaleAndKeepTheirSums) {
  std::mt19937_64 random(testing::seed());
  std::normal_distribution<float> normal;
  std::vector<float> x(2048);
  for (float& v : x) v = normal(random) * std::exp(normal(random));
  std::fill(x.begin() + 256, x.begin() + 512, 0.0f);
  for (size_t i = 512; i < 768; ++i) x[i] *= 1e-38f;  // too small for a scale: zero, not infinity
  for (IsaLevel isa : isa_levels()) {
    std::vector<ActivationBlock> blocks(x.size() / kBlockCols);
    matmul_input_kernels(isa).quantize_super(x.data(), static_cast<int64_t>(x.size()), blocks.data());
    for (size_t b = 0; b < blocks.size(); ++b) {
      const size_t super = b / 8 * 256;
      float largest = 0;
      int sum = 0, half = 0;
      for (size_t i = 0; i < 256; ++i) largest = std::max(largest, std::abs(x[super + i]));
      EXPECT_FLOAT_EQ(blocks[b].scale, largest > 1e-35f ? largest / 127.0f : 0.0f);
      for (size_t i = 0; i < 32; ++i) {
        const float value = static_cast<float>(blocks[b].values[i]) * blocks[b].scale;
        EXPECT_LE(std::abs(value - x[b * 32 + i]), largest * (0.5001f / 127.0f) + 1e-36f);
        sum += blocks[b].values[i];
        if (i < 16) half += blocks[b].values[i];
      }
      EXPECT_EQ(blocks[b].negative_sum, -sum);
      EXPECT_EQ(blocks[b].negative_half_sums[0], -half);
      EXPECT_EQ(blocks[b].negative_half_sums[1], half - sum);
      EXPECT_EQ(blocks[b].offset_sum, static_cast<float>(sum));
      EXPECT_EQ(blocks[b].offset_half_sums[0], static_cast<float>(half));
      EXPECT_EQ(blocks[b].offset_half_sums[1], static_cast<float>(sum - half));
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
