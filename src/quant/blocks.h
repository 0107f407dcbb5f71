// The block structs of ggml's quantised formats, as they lie in files. `d` is a block's scale, `m`/`dmin` its
// offset, `qs` the low bits of its values, `qh` the high bits. How the bits combine is told at each decoder.
#pragma once

#include <bit>
#include <cstdint>

#include "core/half.h"

namespace millrace::quant {

inline constexpr int kSuperBlock = 256;  ///< elements in a block of the K- and i-quants

// Legacy formats: 32 elements.
struct BlockQ4_0 {
  fp16_t d;
  uint8_t qs[16];
};
struct BlockQ4_1 {
  fp16_t d, m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  fp16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ5_1 {
  fp16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {
  fp16_t d;
  int8_t qs[32];
};
struct BlockQ8_1 {
  fp16_t d;
  fp16_t s;  ///< d * sum of qs
  int8_t qs[32];
};

// K-quants: 256 elements in sub-blocks of 16 or 32 with integer scales of their own.
struct BlockQ2_K {
  uint8_t scales[16];  ///< low nibble: scale, high nibble: offset
  uint8_t qs[64];
  fp16_t d, dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];  ///< sixteen 6-bit scales, biased by 32
  fp16_t d;
};
struct BlockQ4_K {
  fp16_t d, dmin;
  uint8_t scales[12];  ///< eight pairs of 6-bit scale and offset
  uint8_t qs[128];
};
struct BlockQ5_K {
  fp16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  fp16_t d;
};
struct BlockQ8_K {
  float d;
  int8_t qs[256];
  int16_t bsums[16];  ///< sums of sixteen neighbouring qs
};

// i-quants: indices into code books (quant/iq_grids.h), signs, and 4-bit (or 3-bit) scales.
struct BlockIQ2_XXS {
  fp16_t d;
  uint16_t qs[32];
};
struct BlockIQ2_XS {
  fp16_t d;
  uint16_t qs[32];
  uint8_t scales[8];
};
struct BlockIQ2_S {
  fp16_t d;
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];
  uint8_t scales[8];
};
struct BlockIQ3_XXS {
  fp16_t d;
  uint8_t qs[64];
  uint8_t scales_and_signs[32];  ///< eight little-endian uint32: four 7-bit sign indices and a 4-bit scale
};
struct BlockIQ3_S {
  fp16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};
struct BlockIQ1_S {
  fp16_t d;
  uint8_t qs[32];
  uint16_t qh[8];
};
struct BlockIQ1_M {
  uint8_t qs[32];
  uint8_t qh[16];
  uint8_t
      scales[8];  ///< four little-endian uint16: 4 x 3-bit scales each; the high nibbles together are fp16 d
};
struct BlockIQ4_NL {
  fp16_t d;
  uint8_t qs[16];
};
struct BlockIQ4_XS {
  fp16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

// Ternary: 256 elements of -1, 0, 1.
struct BlockTQ1_0 {
  uint8_t qs[48];  ///< five base-3 digits a byte
  uint8_t qh[4];   ///< four base-3 digits a byte
  fp16_t d;
};
struct BlockTQ2_0 {
  uint8_t qs[64];
  fp16_t d;
};

// 4-bit floats (E2M1) under a shared scale.
struct BlockMXFP4 {
  uint8_t e;  ///< E8M0: the scale is 2^(e-127), halved because the value table is doubled
  uint8_t qs[16];
};
struct BlockNVFP4 {
  uint8_t d[4];  ///< unsigned E4M3, one for 16 elements
  uint8_t qs[32];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ8_1) == 36);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockQ8_K) == 292);
static_assert(sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110 && sizeof(BlockIQ1_S) == 50);
static_assert(sizeof(BlockIQ1_M) == 56 && sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66);
static_assert(sizeof(BlockMXFP4) == 17 && sizeof(BlockNVFP4) == 36);

/// The 16 values of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
/// The 16 values of E2M1, doubled so that they are whole.
inline constexpr int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Scale and offset number `j` (0 to 7) of a Q4_K or Q5_K block.
inline void k4_scale_min(const uint8_t* scales, int j, int& scale, int& min) {
  if (j < 4) {
    scale = scales[j] & 63;
    min = scales[j + 4] & 63;
  } else {
    scale = (scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4);
    min = (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4);
  }
}

/// The MXFP4 scale of exponent byte `e`, halved (2^(e-128)) to go with kE2m1Doubled.
inline float e8m0_half(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

/// The NVFP4 scale of unsigned E4M3 byte `x`, halved to go with kE2m1Doubled. 0x7f counts as zero.
inline float ue4m3_half(uint8_t x) {
  if (x == 0 || x == 0x7f) return 0.0f;
  const uint32_t exponent = (x >> 3) & 15, mantissa = x & 7;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>(((exponent + 119) << 23) | (mantissa << 20));
}

/// OCP FP8 E4M3 (no infinities; 0x7f and 0xff are NaN).
inline float f8e4m3_to_float(uint8_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x80) << 24, exponent = (x >> 3) & 15, mantissa = x & 7;
  if (exponent == 0)
    return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-9f) | sign);
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

/// OCP FP8 E5M2: the upper half of an IEEE binary16.
inline float f8e5m2_to_float(uint8_t x) { return fp16_to_float(static_cast<fp16_t>(x << 8)); }

}  // namespace millrace::quant
