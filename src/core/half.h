// Scalar conversions of the 16-bit and 8-bit float formats, bit exact and portable (round to nearest even).
#pragma once

#include <bit>
#include <cstdint>

namespace millrace {

using fp16_t = uint16_t;  ///< IEEE binary16 bits
using bf16_t = uint16_t;  ///< bfloat16 bits

inline float fp16_to_float(fp16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1f;
  const uint32_t mantissa = h & 0x3ff;
  if (exponent == 0) {
    // Zero or subnormal: the mantissa counts in units of 2^-24.
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-08f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

inline fp16_t float_to_fp16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<fp16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<fp16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal result: adding 0.5 aligns the mantissa at units of 2^-24 and rounds to nearest even in
    // hardware.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<fp16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<fp16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float bf16_to_float(bf16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

inline bf16_t float_to_bf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<bf16_t>((bits >> 16) | 64u);  // keep NaN, make it quiet
  return static_cast<bf16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace millrace
