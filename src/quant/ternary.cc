// Ternary formats (TriLM, BitNet): 256 elements of -1, 0 or 1 times one fp16 scale. Both encoders agree with
// the `gguf` package's bit for bit when there is no importance.
#include <algorithm>
#include <cmath>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/search.h"

namespace millrace::quant {
namespace {

constexpr int kPowersOf3[5] = {1, 3, 9, 27, 81};

/// Digit `n` (0: most significant) of a byte that holds base-3 digits as the fraction byte / 256.
int ternary_digit(uint8_t byte, int n) {
  const auto shifted = static_cast<uint8_t>(byte * kPowersOf3[n]);
  return (shifted * 3) >> 8;
}

void decode_tq1_0(const BlockTQ1_0& b, float* y) {
  const float d = fp16_to_float(b.d);
  // Bytes 0-31 hold digits of elements 0-159 (digit n of byte j: element 32 n + j), bytes 32-47 of 160-239.
  for (int n = 0; n < 5; ++n)
    for (int j = 0; j < 32; ++j) *y++ = d * static_cast<float>(ternary_digit(b.qs[j], n) - 1);
  for (int n = 0; n < 5; ++n)
    for (int j = 0; j < 16; ++j) *y++ = d * static_cast<float>(ternary_digit(b.qs[32 + j], n) - 1);
  for (int n = 0; n < 4; ++n)
    for (int j = 0; j < 4; ++j) *y++ = d * static_cast<float>(ternary_digit(b.qh[j], n) - 1);
}

void decode_tq2_0(const BlockTQ2_0& b, float* y) {
  const float d = fp16_to_float(b.d);
  for (int half = 0; half < 64; half += 32)
    for (int shift = 0; shift < 8; shift += 2)
      for (int j = 0; j < 32; ++j) *y++ = d * static_cast<float>((b.qs[half + j] >> shift & 3) - 1);
}

/// Codes 0, 1, 2 for -1, 0, 1; returns the scale as stored.
fp16_t ternary_codes(const float* x, const float* importance, uint8_t* codes) {
  float d = 0;
  for (int i = 0; i < kSuperBlock; ++i) d = std::max(d, std::fabs(x[i]));
  if (importance) {
    // Lloyd's iteration: round with the scale, then take the least-squares scale of those codes.
    for (int step = 0; step < 4; ++step) {
      float sum_xl = 0, sum_ll = 0;
      for (int i = 0; i < kSuperBlock; ++i) {
        if (std::fabs(x[i]) * 2 < d) continue;
        sum_xl += importance[i] * std::fabs(x[i]);
        sum_ll += importance[i];
      }
      if (!(sum_ll > 0)) break;
      d = sum_xl / sum_ll;
    }
  }
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  for (int i = 0; i < kSuperBlock; ++i) {
    const float scaled = x[i] * inverse;
    codes[i] = static_cast<uint8_t>(truncate(scaled + std::copysign(0.5f, scaled), -1, 1) + 1);
  }
  return float_to_fp16(d);
}

/// Packs `digits` codes that lie `stride` apart into one byte, rounded up so that decoding's truncation gets
/// them back.
uint8_t pack_ternary(const uint8_t* codes, int digits, int stride) {
  int value = 0;
  for (int n = 0; n < digits; ++n) value += codes[n * stride] * kPowersOf3[4 - n];
  return static_cast<uint8_t>((value * 256 + 242) / 243);
}

void encode_tq1_0(const float* x, BlockTQ1_0& b, const float* importance) {
  uint8_t codes[kSuperBlock];
  b.d = ternary_codes(x, importance, codes);
  for (int j = 0; j < 32; ++j) b.qs[j] = pack_ternary(codes + j, 5, 32);
  for (int j = 0; j < 16; ++j) b.qs[32 + j] = pack_ternary(codes + 160 + j, 5, 16);
  for (int j = 0; j < 4; ++j) b.qh[j] = pack_ternary(codes + 240 + j, 4, 4);
}

void encode_tq2_0(const float* x, BlockTQ2_0& b, const float* importance) {
  uint8_t codes[kSuperBlock];
  b.d = ternary_codes(x, importance, codes);
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 32; ++j) {
      const uint8_t* c = codes + half * 128 + j;
      b.qs[half * 32 + j] = static_cast<uint8_t>(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
    }
}

}  // namespace

Codec ternary_codec(DType type) {
  switch (type) {
    case DType::kTQ1_0:
      return {kSuperBlock, sizeof(BlockTQ1_0), decode_blocks<BlockTQ1_0, kSuperBlock, decode_tq1_0>,
              encode_blocks<BlockTQ1_0, kSuperBlock, encode_tq1_0>};
    case DType::kTQ2_0:
      return {kSuperBlock, sizeof(BlockTQ2_0), decode_blocks<BlockTQ2_0, kSuperBlock, decode_tq2_0>,
              encode_blocks<BlockTQ2_0, kSuperBlock, encode_tq2_0>};
    default:
      return {};
  }
}

}  // namespace millrace::quant
