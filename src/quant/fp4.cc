// 4-bit floats E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives) under a shared scale: MXFP4 of the OCP
// Microscaling specification 1.0 (32 elements, power-of-two scale) and NVFP4 (16 elements, unsigned E4M3
// scale, four scales a block).
#include <algorithm>
#include <cmath>

#include "quant/blocks.h"
#include "quant/codec.h"

namespace millrace::quant {
namespace {

/// Code of the doubled E2M1 value nearest to `x`; halves go to the smaller magnitude.
uint8_t nearest_e2m1(float x) {
  constexpr float kMidpoints[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
  const float magnitude = std::fabs(x);
  uint8_t code = 0;
  for (float midpoint : kMidpoints) code = static_cast<uint8_t>(code + (magnitude > midpoint));
  return static_cast<uint8_t>(code | (x < 0 && code ? 8 : 0));
}

/// Codes of `n` elements under `scale` (of the doubled values), and their weighted squared error.
float encode_with_scale(const float* x, const float* importance, int n, float scale, uint8_t* codes) {
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  float error = 0;
  for (int i = 0; i < n; ++i) {
    codes[i] = nearest_e2m1(x[i] * inverse);
    const float difference = x[i] - scale * static_cast<float>(kE2m1Doubled[codes[i]]);
    error += (importance ? importance[i] : 1.0f) * difference * difference;
  }
  return error;
}

float largest_magnitude(const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

void decode_mxfp4(const BlockMXFP4& b, float* y) {
  const float d = e8m0_half(b.e);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(kE2m1Doubled[b.qs[i] & 15]);
    y[i + 16] = d * static_cast<float>(kE2m1Doubled[b.qs[i] >> 4]);
  }
}

void encode_mxfp4(const float* x, BlockMXFP4& b, const float* importance) {
  const float largest = largest_magnitude(x, 32);
  int exponent = 0;
  if (largest > 0 && std::isfinite(largest)) {
    std::frexp(largest, &exponent);
    exponent = exponent - 1 - 2 + 127;  // the largest E2M1 value, 6, lies in [2^2, 2^3)
  }
  // The specification's exponent clips what lies above 6 units; the next one rounds coarser but clips
  // nothing.
  float best_error = INFINITY;
  uint8_t codes[32], best[32] = {};
  b.e = 0;
  for (int e = std::max(exponent, 0); e <= std::min(exponent + 1, 254); ++e) {
    const float error = encode_with_scale(x, importance, 32, e8m0_half(static_cast<uint8_t>(e)), codes);
    if (error < best_error) {
      best_error = error;
      b.e = static_cast<uint8_t>(e);
      std::copy(codes, codes + 32, best);
    }
  }
  for (int i = 0; i < 16; ++i) b.qs[i] = static_cast<uint8_t>(best[i] | best[i + 16] << 4);
}

void decode_nvfp4(const BlockNVFP4& b, float* y) {
  for (int group = 0; group < 4; ++group) {
    const float d = ue4m3_half(b.d[group]);
    for (int i = 0; i < 8; ++i) {
      y[group * 16 + i] = d * static_cast<float>(kE2m1Doubled[b.qs[group * 8 + i] & 15]);
      y[group * 16 + 8 + i] = d * static_cast<float>(kE2m1Doubled[b.qs[group * 8 + i] >> 4]);
    }
  }
}

/// The largest code whose halved scale is at most `scale`.
int ue4m3_floor(float scale) {
  int low = 0, high = 0x7e;  // values grow with the code
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (ue4m3_half(static_cast<uint8_t>(middle)) <= scale)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

void encode_nvfp4(const float* x, BlockNVFP4& b, const float* importance) {
  for (int group = 0; group < 4; ++group) {
    const float* xg = x + group * 16;
    const float* wg = importance ? importance + group * 16 : nullptr;
    const int at = ue4m3_floor(largest_magnitude(xg, 16) / 12.0f);
    float best_error = INFINITY;
    uint8_t codes[16], best[16] = {};
    b.d[group] = 0;
    for (int code = std::max(at - 1, 0); code <= std::min(at + 2, 0x7e); ++code) {
      const float error = encode_with_scale(xg, wg, 16, ue4m3_half(static_cast<uint8_t>(code)), codes);
      if (error < best_error) {
        best_error = error;
        b.d[group] = static_cast<uint8_t>(code);
        std::copy(codes, codes + 16, best);
      }
    }
    for (int i = 0; i < 8; ++i) b.qs[group * 8 + i] = static_cast<uint8_t>(best[i] | best[i + 8] << 4);
  }
}

}  // namespace

Codec fp4_codec(DType type) {
  switch (type) {
    case DType::kMXFP4:
      return {32, sizeof(BlockMXFP4), decode_blocks<BlockMXFP4, 32, decode_mxfp4>,
              encode_blocks<BlockMXFP4, 32, encode_mxfp4>};
    case DType::kNVFP4:
      return {64, sizeof(BlockNVFP4), decode_blocks<BlockNVFP4, 64, decode_nvfp4>,
              encode_blocks<BlockNVFP4, 64, encode_nvfp4>};
    default:
      return {};
  }
}

}  // namespace millrace::quant
