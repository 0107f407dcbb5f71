// K-quants: 256 elements in sub-blocks whose integer scales (and offsets) share one fp16 scale each. Encoders
// search each sub-block's scale for the least weighted error, quantise the scales, and round the codes once
// more with the scales as stored. Weights: the importance matrix when given, and larger elements count more
// in any case, because their errors move a dot product most.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/search.h"

namespace millrace::quant {
namespace {

void decode_q2_k(const BlockQ2_K& b, float* y) {
  const float d = fp16_to_float(b.d), dmin = fp16_to_float(b.dmin);
  for (int i = 0; i < kSuperBlock; i += 16) {
    const float scale = d * static_cast<float>(b.scales[i / 16] & 15);
    const float min = dmin * static_cast<float>(b.scales[i / 16] >> 4);
    const uint8_t* qs = b.qs + i / 128 * 32 + i % 32;
    const int shift = i % 128 / 32 * 2;
    for (int j = 0; j < 16; ++j) y[i + j] = scale * static_cast<float>(qs[j] >> shift & 3) - min;
  }
}

/// 6-bit scale `j` (0 to 15) of a Q3_K block, with its bias of 32.
int q3_scale(const uint8_t* scales, int j) {
  const int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
  return low | (scales[8 + j % 4] >> (j / 4 * 2) & 3) << 4;
}

void decode_q3_k(const BlockQ3_K& b, float* y) {
  const float d = fp16_to_float(b.d);
  for (int i = 0; i < kSuperBlock; i += 16) {
    const float scale = d * static_cast<float>(q3_scale(b.scales, i / 16) - 32);
    const uint8_t* qs = b.qs + i / 128 * 32 + i % 32;
    const uint8_t* high = b.hmask + i % 32;
    const int shift = i % 128 / 32 * 2;
    for (int j = 0; j < 16; ++j) {
      // A set bit in hmask means 0 is added, a clear one -4.
      const int q = (qs[j] >> shift & 3) - ((high[j] >> (i / 32) & 1) ? 0 : 4);
      y[i + j] = scale * static_cast<float>(q);
    }
  }
}

void decode_q4_k(const BlockQ4_K& b, float* y) {
  const float d = fp16_to_float(b.d), dmin = fp16_to_float(b.dmin);
  for (int i = 0; i < kSuperBlock; i += 32) {
    int scale, min;
    k4_scale_min(b.scales, i / 32, scale, min);
    const float s = d * static_cast<float>(scale), m = dmin * static_cast<float>(min);
    const uint8_t* qs = b.qs + i / 64 * 32;
    const int shift = i % 64 / 32 * 4;
    for (int j = 0; j < 32; ++j) y[i + j] = s * static_cast<float>(qs[j] >> shift & 15) - m;
  }
}

void decode_q5_k(const BlockQ5_K& b, float* y) {
  const float d = fp16_to_float(b.d), dmin = fp16_to_float(b.dmin);
  for (int i = 0; i < kSuperBlock; i += 32) {
    int scale, min;
    k4_scale_min(b.scales, i / 32, scale, min);
    const float s = d * static_cast<float>(scale), m = dmin * static_cast<float>(min);
    const uint8_t* qs = b.qs + i / 64 * 32;
    const int shift = i % 64 / 32 * 4;
    for (int j = 0; j < 32; ++j) {
      const int q = (qs[j] >> shift & 15) | (b.qh[j] >> (i / 32) & 1) << 4;
      y[i + j] = s * static_cast<float>(q) - m;
    }
  }
}

void decode_q6_k(const BlockQ6_K& b, float* y) {
  const float d = fp16_to_float(b.d);
  for (int i = 0; i < kSuperBlock; i += 16) {
    const int8_t sub_scale = b.scales[i / 16];
    const float scale = d * static_cast<float>(sub_scale);
    const uint8_t* ql = b.ql + i / 128 * 64 + i % 64;
    const uint8_t* qh = b.qh + i / 128 * 32 + i % 32;
    const int low_shift = i % 128 / 64 * 4, high_shift = i % 128 / 32 * 2;
    for (int j = 0; j < 16; ++j) {
      const int q = (ql[j] >> low_shift & 15) | (qh[j] >> high_shift & 3) << 4;
      y[i + j] = scale * static_cast<float>(q - 32);
    }
  }
}

void decode_q8_k(const BlockQ8_K& b, float* y) {
  for (int i = 0; i < kSuperBlock; ++i) y[i] = b.d * static_cast<float>(b.qs[i]);
}

/// Scales and offsets of the sub-blocks of an asymmetric format, as stored: d, dmin and their integer
/// factors.
template <int kSub>
struct AsymmetricScales {
  static constexpr int kCount = kSuperBlock / kSub;
  fp16_t d, dmin;
  uint8_t scale[kCount], min[kCount];

  /// `code_max`: largest code; `factor_max`: largest integer factor.
  void fit(const float* x, const float* w, int code_max, int factor_max, int half_steps) {
    ScaleAndMin fits[kCount];
    float largest_scale = 0, largest_min = 0;
    for (int i = 0; i < kCount; ++i) {
      fits[i] = fit_scale_min<kSub>(x + i * kSub, w + i * kSub, code_max, half_steps, true);
      largest_scale = std::max(largest_scale, fits[i].scale);
      largest_min = std::max(largest_min, -fits[i].min);
    }
    const auto top = static_cast<float>(factor_max);
    d = float_to_fp16(largest_scale / top);
    dmin = float_to_fp16(largest_min / top);
    // Factors are rounded against the scales as fp16 keeps them.
    const float inverse_d = inverse_or_zero(fp16_to_float(d)),
                inverse_dmin = inverse_or_zero(fp16_to_float(dmin));
    for (int i = 0; i < kCount; ++i) {
      scale[i] = static_cast<uint8_t>(truncate(fits[i].scale * inverse_d + 0.5f, 0, factor_max));
      min[i] = static_cast<uint8_t>(truncate(-fits[i].min * inverse_dmin + 0.5f, 0, factor_max));
    }
  }

  void codes(const float* x, int code_max, uint8_t* out) const {
    for (int i = 0; i < kCount; ++i) {
      const float inverse = inverse_or_zero(fp16_to_float(d) * static_cast<float>(scale[i]));
      const float offset = fp16_to_float(dmin) * static_cast<float>(min[i]);
      for (int j = i * kSub; j < (i + 1) * kSub; ++j)
        out[j] = static_cast<uint8_t>(truncate((x[j] + offset) * inverse + 0.5f, 0, code_max));
    }
  }
};

/// Scales of the sixteen sub-blocks of a symmetric format, as stored.
struct SymmetricScales {
  fp16_t d;
  int scale[16];

  void fit(const float* x, const float* w, int code_low, int code_high, int factor_low, int half_steps) {
    float fits[16], largest = 0;
    for (int i = 0; i < 16; ++i) {
      fits[i] = fit_scale<16>(x + i * 16, w + i * 16, code_low, code_high, half_steps);
      if (std::fabs(fits[i]) > std::fabs(largest)) largest = fits[i];
    }
    // The largest scale takes the end of the factors' range that reaches further.
    d = float_to_fp16(largest / static_cast<float>(factor_low));
    const float inverse = inverse_or_zero(fp16_to_float(d));
    for (int i = 0; i < 16; ++i) {
      const float scaled = fits[i] * inverse;
      scale[i] = truncate(scaled + std::copysign(0.5f, scaled), factor_low, -factor_low - 1);
    }
  }

  /// Codes from 0, biased by -code_low.
  void codes(const float* x, int code_low, int code_high, uint8_t* out) const {
    for (int i = 0; i < 16; ++i) {
      const float inverse = inverse_or_zero(fp16_to_float(d) * static_cast<float>(scale[i]));
      const float bias = static_cast<float>(-code_low) + 0.5f;
      for (int j = i * 16; j < (i + 1) * 16; ++j)
        out[j] = static_cast<uint8_t>(truncate(x[j] * inverse + bias, 0, code_high - code_low));
    }
  }
};

/// The two low bits of all codes in the layout that Q2_K and Q3_K share.
void pack_two_bits(const uint8_t* codes, uint8_t* qs) {
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 32; ++j) {
      const uint8_t* c = codes + half * 128 + j;
      qs[half * 32 + j] =
          static_cast<uint8_t>((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
    }
}

/// The four low bits of all codes in the layout that Q4_K and Q5_K share.
void pack_four_bits(const uint8_t* codes, uint8_t* qs) {
  for (int pair = 0; pair < 4; ++pair)
    for (int j = 0; j < 32; ++j) {
      const uint8_t* c = codes + pair * 64 + j;
      qs[pair * 32 + j] = static_cast<uint8_t>((c[0] & 15) | (c[32] & 15) << 4);
    }
}

/// Bit `bit` of element 32 i + j becomes bit i of byte j.
void pack_bit_plane(const uint8_t* codes, int bit, uint8_t* plane) {
  std::memset(plane, 0, 32);
  for (int i = 0; i < kSuperBlock; ++i)
    plane[i % 32] |= static_cast<uint8_t>((codes[i] >> bit & 1) << (i / 32));
}

void pack_k4_scales(const uint8_t* scale, const uint8_t* min, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<uint8_t>(scale[j] | (scale[j + 4] >> 4) << 6);
    out[j + 4] = static_cast<uint8_t>(min[j] | (min[j + 4] >> 4) << 6);
    out[j + 8] = static_cast<uint8_t>((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
  }
}

void encode_q2_k(const float* x, BlockQ2_K& b, const float* importance) {
  float w[kSuperBlock];
  error_weights<kSuperBlock>(x, importance, w);
  AsymmetricScales<16> s;
  s.fit(x, w, 3, 15, 8);
  uint8_t codes[kSuperBlock];
  s.codes(x, 3, codes);
  b.d = s.d;
  b.dmin = s.dmin;
  for (int i = 0; i < 16; ++i) b.scales[i] = static_cast<uint8_t>(s.scale[i] | s.min[i] << 4);
  pack_two_bits(codes, b.qs);
}

void encode_q3_k(const float* x, BlockQ3_K& b, const float* importance) {
  float w[kSuperBlock];
  error_weights<kSuperBlock>(x, importance, w);
  SymmetricScales s;
  s.fit(x, w, -4, 3, -32, 8);
  uint8_t codes[kSuperBlock];
  s.codes(x, -4, 3, codes);
  b.d = s.d;
  std::memset(b.scales, 0, sizeof b.scales);
  for (int j = 0; j < 16; ++j) {
    const int biased = s.scale[j] + 32;
    b.scales[j % 8] |= static_cast<uint8_t>((biased & 15) << (j / 8 * 4));
    b.scales[8 + j % 4] |= static_cast<uint8_t>((biased >> 4) << (j / 4 * 2));
  }
  pack_two_bits(codes, b.qs);
  pack_bit_plane(codes, 2, b.hmask);
}

void encode_q4_k(const float* x, BlockQ4_K& b, const float* importance) {
  float w[kSuperBlock];
  error_weights<kSuperBlock>(x, importance, w);
  AsymmetricScales<32> s;
  s.fit(x, w, 15, 63, 10);
  uint8_t codes[kSuperBlock];
  s.codes(x, 15, codes);
  b.d = s.d;
  b.dmin = s.dmin;
  pack_k4_scales(s.scale, s.min, b.scales);
  pack_four_bits(codes, b.qs);
}

void encode_q5_k(const float* x, BlockQ5_K& b, const float* importance) {
  float w[kSuperBlock];
  error_weights<kSuperBlock>(x, importance, w);
  AsymmetricScales<32> s;
  s.fit(x, w, 31, 63, 8);
  uint8_t codes[kSuperBlock];
  s.codes(x, 31, codes);
  b.d = s.d;
  b.dmin = s.dmin;
  pack_k4_scales(s.scale, s.min, b.scales);
  pack_four_bits(codes, b.qs);
  pack_bit_plane(codes, 4, b.qh);
}

void encode_q6_k(const float* x, BlockQ6_K& b, const float* importance) {
  float w[kSuperBlock];
  error_weights<kSuperBlock>(x, importance, w);
  SymmetricScales s;
  s.fit(x, w, -32, 31, -128, 8);
  uint8_t codes[kSuperBlock];
  s.codes(x, -32, 31, codes);
  b.d = s.d;
  for (int i = 0; i < 16; ++i) b.scales[i] = static_cast<int8_t>(s.scale[i]);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* c = codes + half * 128;
    for (int j = 0; j < 64; ++j)
      b.ql[half * 64 + j] = static_cast<uint8_t>((c[j] & 15) | (c[j + 64] & 15) << 4);
    for (int j = 0; j < 32; ++j)
      b.qh[half * 32 + j] = static_cast<uint8_t>(c[j] >> 4 | (c[j + 32] >> 4) << 2 | (c[j + 64] >> 4) << 4 |
                                                 (c[j + 96] >> 4) << 6);
  }
}

void encode_q8_k(const float* x, BlockQ8_K& b, const float*) {
  float largest = 0;
  for (int i = 0; i < kSuperBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  b.d = largest / 127.0f;
  const float inverse = inverse_or_zero(b.d);
  for (int i = 0; i < 16; ++i) {
    int sum = 0;
    for (int j = i * 16; j < (i + 1) * 16; ++j) {
      const float scaled = x[j] * inverse;
      const int code = truncate(scaled + std::copysign(0.5f, scaled), -127, 127);
      b.qs[j] = static_cast<int8_t>(code);
      sum += code;
    }
    b.bsums[i] = static_cast<int16_t>(sum);
  }
}

template <typename Block, void (*kDecode)(const Block&, float*),
          void (*kEncode)(const float*, Block&, const float*)>
constexpr Codec codec() {
  return {kSuperBlock, static_cast<int>(sizeof(Block)), decode_blocks<Block, kSuperBlock, kDecode>,
          encode_blocks<Block, kSuperBlock, kEncode>};
}

}  // namespace

Codec k_codec(DType type) {
  switch (type) {
    case DType::kQ2_K:
      return codec<BlockQ2_K, decode_q2_k, encode_q2_k>();
    case DType::kQ3_K:
      return codec<BlockQ3_K, decode_q3_k, encode_q3_k>();
    case DType::kQ4_K:
      return codec<BlockQ4_K, decode_q4_k, encode_q4_k>();
    case DType::kQ5_K:
      return codec<BlockQ5_K, decode_q5_k, encode_q5_k>();
    case DType::kQ6_K:
      return codec<BlockQ6_K, decode_q6_k, encode_q6_k>();
    case DType::kQ8_K:
      return codec<BlockQ8_K, decode_q8_k, encode_q8_k>();
    default:
      return {};
  }
}

}  // namespace millrace::quant
