// Decoders against the `gguf` package's values bit for bit, and encoders against their formats' bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/half.h"
#include "core/random.h"
#include "quant/blocks.h"
#include "quant/traits.h"
#include "testing/testing.h"

namespace millrace::quant {
namespace {

std::vector<DType> weight_types() {
  std::vector<DType> types;
  for (size_t i = 0; i < static_cast<size_t>(DType::kCount); ++i)
    if (traits(static_cast<DType>(i)).decode) types.push_back(static_cast<DType>(i));
  return types;
}

/// A record of fixtures/blocks.bin; the layout is told in scripts/fixtures/quant_blocks.py.
struct Record {
  std::string name;
  bool is_encode;
  std::string bytes;
  std::vector<float> values;
};

std::vector<Record> read_records() {
  const std::string file = testing::read_file(testing::fixture("quant/fixtures/blocks.bin"));
  size_t at = 0;
  const auto u32 = [&] {
    uint32_t v;
    std::memcpy(&v, file.data() + at, 4);
    at += 4;
    return v;
  };
  std::vector<Record> records;
  while (at < file.size()) {
    Record r;
    const uint32_t length = u32();
    r.name = file.substr(at, length);
    at += length;
    r.is_encode = u32() == 1;
    const uint32_t elements = u32(), bytes = u32();
    r.bytes = file.substr(at, bytes);
    at += bytes;
    r.values.resize(elements);
    std::memcpy(r.values.data(), file.data() + at, elements * sizeof(float));
    at += elements * sizeof(float);
    records.push_back(std::move(r));
  }
  return records;
}

TEST(Codec, DecodesBitForBitLikeTheGgufPackage) {
  int types = 0;
  for (const Record& r : read_records()) {
    if (r.is_encode) continue;
    const auto type = dtype_from_name(r.name);
    ASSERT_TRUE(type) << r.name;
    const auto count = static_cast<int64_t>(r.values.size());
    ASSERT_EQ(row_bytes(*type, r.values.size()), r.bytes.size()) << r.name;
    std::vector<float> decoded(r.values.size());
    traits(*type).decode(r.bytes.data(), decoded.data(), count);
    for (size_t i = 0; i < decoded.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), std::bit_cast<uint32_t>(r.values[i]))
          << r.name << " element " << i << ": " << decoded[i] << " and " << r.values[i];
    ++types;
  }
  EXPECT_EQ(types, 25);
}

TEST(Codec, EncodesBitForBitLikeTheGgufPackageWhereItDoesSo) {
  int types = 0;
  for (const Record& r : read_records()) {
    if (!r.is_encode) continue;
    const DType type = dtype_from_name(r.name).value();
    std::string encoded(r.bytes.size(), '\xee');
    traits(type).encode(r.values.data(), encoded.data(), static_cast<int64_t>(r.values.size()), nullptr);
    for (size_t i = 0; i < encoded.size(); ++i)
      ASSERT_EQ(static_cast<int>(encoded[i]), static_cast<int>(r.bytes[i])) << r.name << " byte " << i;
    ++types;
  }
  EXPECT_EQ(types, 8);
}

/// Largest root-mean-square error, relative to that of the values, which encoding standard normal values may
/// leave: about 8 % above what the encoders reach, so that a worse search fails here.
double bound(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF64:
      return 0;
    case DType::kF16:
      return 2.5e-4;
    case DType::kBF16:
      return 2e-3;
    case DType::kF8E4M3:
      return 0.035;
    case DType::kF8E5M2:
      return 0.057;
    case DType::kQ8_0:
    case DType::kQ8_1:
      return 0.0058;
    case DType::kQ8_K:
      return 0.0078;
    case DType::kQ5_0:
      return 0.046;
    case DType::kQ5_1:
      return 0.041;
    case DType::kQ4_0:
      return 0.093;
    case DType::kQ4_1:
      return 0.085;
    case DType::kQ6_K:
      return 0.019;
    case DType::kQ5_K:
      return 0.039;
    case DType::kQ4_K:
      return 0.078;
    case DType::kQ3_K:
      return 0.157;
    case DType::kQ2_K:
      return 0.297;
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return 0.081;
    case DType::kIQ3_S:
      return 0.144;
    case DType::kIQ3_XXS:
      return 0.196;
    case DType::kIQ2_S:
      return 0.264;
    case DType::kIQ2_XS:
      return 0.315;
    case DType::kIQ2_XXS:
      return 0.363;
    case DType::kIQ1_M:
      return 0.46;
    case DType::kIQ1_S:
      return 0.497;
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return 0.85;  // ternary under the largest value: for weights that are ternary already
    case DType::kMXFP4:
      return 0.121;
    case DType::kNVFP4:
      return 0.1;
    default:
      return -1;
  }
}

double relative_error(DType type, const std::vector<float>& x,
                      const std::vector<float>* importance = nullptr) {
  const auto count = static_cast<int64_t>(x.size());
  std::vector<std::byte> bytes(row_bytes(type, x.size()).value());
  traits(type).encode(x.data(), bytes.data(), count, importance ? importance->data() : nullptr);
  std::vector<float> y(x.size());
  traits(type).decode(bytes.data(), y.data(), count);
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double w = importance ? (*importance)[i] : 1.0;
    error += w * (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
    norm += w * static_cast<double>(x[i]) * x[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : error;
}

TEST(Codec, EveryTypeRoundTripsWithinItsBound) {
  Random random(testing::seed());
  for (const DType type : weight_types()) {
    ASSERT_NE(traits(type).encode, nullptr) << dtype_name(type);
    for (const float scale : {0.02f, 1.0f, 30.0f}) {
      std::vector<float> x(256 * 64);
      for (float& v : x) v = random.normal() * scale;
      const double error = relative_error(type, x);
      EXPECT_LE(error, bound(type)) << dtype_name(type) << " at scale " << scale;
      EXPECT_GE(error, bound(type) * 0.7)
          << dtype_name(type) << " at scale " << scale << ": the bound is too loose";
    }
  }
}

TEST(Codec, ImportanceLowersTheErrorWhereItIsHigh) {
  Random random(testing::seed());
  std::vector<float> x(256 * 64), importance(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = random.normal();
    importance[i] = random.below(8) == 0 ? 30.0f : 0.1f;
  }
  for (const DType type :
       {DType::kQ4_0,    DType::kQ4_1,  DType::kQ5_0,  DType::kQ5_1,    DType::kQ2_K,   DType::kQ3_K,
        DType::kQ4_K,    DType::kQ5_K,  DType::kQ6_K,  DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
        DType::kIQ3_XXS, DType::kIQ3_S, DType::kIQ1_S, DType::kIQ1_M,   DType::kIQ4_NL, DType::kIQ4_XS,
        DType::kTQ1_0,   DType::kTQ2_0, DType::kMXFP4, DType::kNVFP4}) {
    std::vector<std::byte> plain(row_bytes(type, x.size()).value());
    std::vector<float> y(x.size());
    traits(type).encode(x.data(), plain.data(), static_cast<int64_t>(x.size()), nullptr);
    traits(type).decode(plain.data(), y.data(), static_cast<int64_t>(x.size()));
    double error = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += importance[i] * (x[i] - y[i]) * (x[i] - y[i]);
      norm += importance[i] * x[i] * x[i];
    }
    EXPECT_LT(relative_error(type, x, &importance), std::sqrt(error / norm)) << dtype_name(type);
  }
}

TEST(Codec, KeepsZerosAndConstants) {
  for (const DType type : weight_types()) {
    for (const float value : {0.0f, 1.0f}) {
      const std::vector<float> x(512, value);
      std::vector<std::byte> bytes(row_bytes(type, x.size()).value(), std::byte{0x5a});
      std::vector<float> y(x.size(), -7.0f);
      traits(type).encode(x.data(), bytes.data(), 512, nullptr);
      traits(type).decode(bytes.data(), y.data(), 512);
      for (size_t i = 0; i < y.size(); ++i) {
        const double tolerance = value == 0 ? 0 : std::max(0.02, bound(type));
        ASSERT_NEAR(y[i], value, tolerance) << dtype_name(type) << " element " << i;
      }
    }
  }
}

TEST(Codec, SurvivesWeightsThatAreNoNumbers) {
  Random random(testing::seed());
  const float odd[] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 1e-45f, 0.0f, -0.0f};
  for (const DType type : weight_types()) {
    std::vector<float> x(256 * 8), y(x.size());
    for (float& v : x) v = random.below(4) ? random.normal() : odd[random.below(8)];
    std::vector<std::byte> bytes(row_bytes(type, x.size()).value());
    traits(type).encode(x.data(), bytes.data(), static_cast<int64_t>(x.size()), nullptr);
    traits(type).decode(bytes.data(), y.data(), static_cast<int64_t>(x.size()));
  }
}

TEST(Codec, EightBitFloatsRoundToNearest) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (int code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      float value;
      traits(type).decode(&byte, &value, 1);
      if (!std::isfinite(value)) continue;
      uint8_t again;
      traits(type).encode(&value, &again, 1, nullptr);
      EXPECT_EQ(again, byte) << dtype_name(type);
    }
  }
  const float above[] = {1e9f, -1e9f};
  uint8_t bytes[2];
  traits(DType::kF8E4M3).encode(above, bytes, 2, nullptr);
  EXPECT_EQ(bytes[0], 0x7e);
  EXPECT_EQ(bytes[1], 0xfe);
}

TEST(Codec, BlockQ8_1CarriesItsSum) {
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i) - 10.0f;
  BlockQ8_1 block;
  traits(DType::kQ8_1).encode(x.data(), &block, 32, nullptr);
  EXPECT_NEAR(fp16_to_float(block.s), 176.0f, 1.0f);  // the sum of -10..21
  BlockQ8_K big;
  std::vector<float> wide(256, 1.0f);
  traits(DType::kQ8_K).encode(wide.data(), &big, 256, nullptr);
  for (const int16_t sum : big.bsums) EXPECT_EQ(sum, 16 * 127);
}

TEST(Traits, RowsAreWholeBlocks) {
  EXPECT_EQ(row_bytes(DType::kQ4_0, 64), 36u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 512), 288u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 500), std::nullopt);
  EXPECT_EQ(row_bytes(DType::kF64, ~uint64_t{0}), std::nullopt);
  EXPECT_TRUE(is_quantized(DType::kNVFP4));
  EXPECT_FALSE(is_quantized(DType::kF8E4M3));
  EXPECT_FALSE(is_quantized(DType::kI32));
  EXPECT_EQ(traits(DType::kI32).decode, nullptr);
}

}  // namespace
}  // namespace millrace::quant
