// The legacy formats: 32 elements under one fp16 scale (and offset). Nibble i of the low halves is element i,
// of the high halves element i + 16. Without importance the encoders round to the grid that the extreme value
// sets, as the `gguf` package does, bit for bit; with it they search the scale.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/search.h"

namespace millrace::quant {
namespace {

constexpr int kBlock = 32;
constexpr int kHalf = 16;
constexpr int kSearchSteps = 9;

uint32_t load_bits(const uint8_t* bytes) {
  uint32_t bits;
  std::memcpy(&bits, bytes, 4);
  return bits;
}

void decode_q4_0(const BlockQ4_0& b, float* y) {
  const float d = fp16_to_float(b.d);
  for (int i = 0; i < kHalf; ++i) {
    y[i] = d * static_cast<float>((b.qs[i] & 15) - 8);
    y[i + kHalf] = d * static_cast<float>((b.qs[i] >> 4) - 8);
  }
}

void decode_q4_1(const BlockQ4_1& b, float* y) {
  const float d = fp16_to_float(b.d), m = fp16_to_float(b.m);
  for (int i = 0; i < kHalf; ++i) {
    y[i] = d * static_cast<float>(b.qs[i] & 15) + m;
    y[i + kHalf] = d * static_cast<float>(b.qs[i] >> 4) + m;
  }
}

void decode_q5_0(const BlockQ5_0& b, float* y) {
  const float d = fp16_to_float(b.d);
  const uint32_t high = load_bits(b.qh);
  for (int i = 0; i < kHalf; ++i) {
    const int low_q = (b.qs[i] & 15) | static_cast<int>((high >> i & 1) << 4);
    const int high_q = (b.qs[i] >> 4) | static_cast<int>((high >> (i + kHalf) & 1) << 4);
    y[i] = d * static_cast<float>(low_q - 16);
    y[i + kHalf] = d * static_cast<float>(high_q - 16);
  }
}

void decode_q5_1(const BlockQ5_1& b, float* y) {
  const float d = fp16_to_float(b.d), m = fp16_to_float(b.m);
  const uint32_t high = load_bits(b.qh);
  for (int i = 0; i < kHalf; ++i) {
    const int low_q = (b.qs[i] & 15) | static_cast<int>((high >> i & 1) << 4);
    const int high_q = (b.qs[i] >> 4) | static_cast<int>((high >> (i + kHalf) & 1) << 4);
    y[i] = d * static_cast<float>(low_q) + m;
    y[i + kHalf] = d * static_cast<float>(high_q) + m;
  }
}

void decode_q8_0(const BlockQ8_0& b, float* y) {
  const float d = fp16_to_float(b.d);
  for (int i = 0; i < kBlock; ++i) y[i] = static_cast<float>(b.qs[i]) * d;
}

void decode_q8_1(const BlockQ8_1& b, float* y) {
  const float d = fp16_to_float(b.d);
  for (int i = 0; i < kBlock; ++i) y[i] = static_cast<float>(b.qs[i]) * d;
}

/// Codes of all 32 elements as nibbles, and bit 4 of each in the returned word.
uint32_t pack_codes(const uint8_t* codes, uint8_t* qs) {
  uint32_t high = 0;
  for (int i = 0; i < kHalf; ++i) {
    qs[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + kHalf] & 15) << 4);
    high |= static_cast<uint32_t>(codes[i] >> 4) << i;
    high |= static_cast<uint32_t>(codes[i + kHalf] >> 4) << (i + kHalf);
  }
  return high;
}

/// Symmetric codes 0..2*middle-1, biased by `middle` (8 or 16); returns the scale as stored.
fp16_t symmetric_codes(const float* x, const float* importance, int middle, uint8_t* codes) {
  const auto m = static_cast<float>(middle);
  if (importance) {
    const fp16_t stored = float_to_fp16(fit_scale<kBlock>(x, importance, -middle, middle - 1, kSearchSteps));
    const float d = fp16_to_float(stored);
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    for (int i = 0; i < kBlock; ++i)
      codes[i] = static_cast<uint8_t>(truncate(x[i] * inverse + (m + 0.5f), 0, 2 * middle - 1));
    return stored;
  }
  float largest = 0, magnitude = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(x[i]) > magnitude) {
      magnitude = std::fabs(x[i]);
      largest = x[i];
    }
  }
  const float d = largest / -m;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  for (int i = 0; i < kBlock; ++i)
    codes[i] = static_cast<uint8_t>(truncate(x[i] * inverse + (m + 0.5f), 0, 2 * middle - 1));
  return float_to_fp16(d);
}

struct StoredScaleMin {
  fp16_t d, m;
};

/// Asymmetric codes 0..high; returns scale and offset as stored.
StoredScaleMin asymmetric_codes(const float* x, const float* importance, int high, uint8_t* codes) {
  ScaleAndMin fit;
  if (importance) {
    fit = fit_scale_min<kBlock>(x, importance, high, kSearchSteps, false);
  } else {
    const auto [low_x, high_x] = std::minmax_element(x, x + kBlock);
    fit = {(*high_x - *low_x) / static_cast<float>(high), *low_x};
  }
  const float inverse = fit.scale != 0 ? 1.0f / fit.scale : 0.0f;
  for (int i = 0; i < kBlock; ++i)
    codes[i] = static_cast<uint8_t>(truncate((x[i] - fit.min) * inverse + 0.5f, 0, high));
  return {float_to_fp16(fit.scale), float_to_fp16(fit.min)};
}

void encode_q4_0(const float* x, BlockQ4_0& b, const float* importance) {
  uint8_t codes[kBlock];
  b.d = symmetric_codes(x, importance, 8, codes);
  pack_codes(codes, b.qs);
}

void encode_q5_0(const float* x, BlockQ5_0& b, const float* importance) {
  uint8_t codes[kBlock];
  b.d = symmetric_codes(x, importance, 16, codes);
  const uint32_t high = pack_codes(codes, b.qs);
  std::memcpy(b.qh, &high, 4);
}

void encode_q4_1(const float* x, BlockQ4_1& b, const float* importance) {
  uint8_t codes[kBlock];
  const StoredScaleMin stored = asymmetric_codes(x, importance, 15, codes);
  b.d = stored.d;
  b.m = stored.m;
  pack_codes(codes, b.qs);
}

void encode_q5_1(const float* x, BlockQ5_1& b, const float* importance) {
  uint8_t codes[kBlock];
  const StoredScaleMin stored = asymmetric_codes(x, importance, 31, codes);
  b.d = stored.d;
  b.m = stored.m;
  const uint32_t high = pack_codes(codes, b.qs);
  std::memcpy(b.qh, &high, 4);
}

/// Codes of Q8_0 and Q8_1; returns the scale before rounding to fp16, and the sum of the codes.
float eight_bit_codes(const float* x, int8_t* codes, int& sum) {
  float magnitude = 0;
  for (int i = 0; i < kBlock; ++i) magnitude = std::max(magnitude, std::fabs(x[i]));
  const float d = magnitude / 127.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  sum = 0;
  for (int i = 0; i < kBlock; ++i) {
    // Halves away from zero.
    const float scaled = x[i] * inverse;
    const int code = truncate(scaled + std::copysign(0.5f, scaled), -127, 127);
    codes[i] = static_cast<int8_t>(code);
    sum += code;
  }
  return d;
}

void encode_q8_0(const float* x, BlockQ8_0& b, const float*) {
  int sum;
  b.d = float_to_fp16(eight_bit_codes(x, b.qs, sum));
}

void encode_q8_1(const float* x, BlockQ8_1& b, const float*) {
  int sum;
  const float d = eight_bit_codes(x, b.qs, sum);
  b.d = float_to_fp16(d);
  b.s = float_to_fp16(d * static_cast<float>(sum));
}

template <typename Block, void (*kDecode)(const Block&, float*),
          void (*kEncode)(const float*, Block&, const float*)>
constexpr Codec codec() {
  return {kBlock, static_cast<int>(sizeof(Block)), decode_blocks<Block, kBlock, kDecode>,
          encode_blocks<Block, kBlock, kEncode>};
}

}  // namespace

Codec legacy_codec(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return codec<BlockQ4_0, decode_q4_0, encode_q4_0>();
    case DType::kQ4_1:
      return codec<BlockQ4_1, decode_q4_1, encode_q4_1>();
    case DType::kQ5_0:
      return codec<BlockQ5_0, decode_q5_0, encode_q5_0>();
    case DType::kQ5_1:
      return codec<BlockQ5_1, decode_q5_1, encode_q5_1>();
    case DType::kQ8_0:
      return codec<BlockQ8_0, decode_q8_0, encode_q8_0>();
    case DType::kQ8_1:
      return codec<BlockQ8_1, decode_q8_1, encode_q8_1>();
    default:
      return {};
  }
}

}  // namespace millrace::quant
