// Types that store one element on its own: floats of 8 to 64 bits, and integers (which hold no weights).
// Sources may be unaligned, as safetensors files allow, so elements are copied out byte by byte.
#include <array>
#include <cmath>
#include <cstring>

#include "core/half.h"
#include "quant/blocks.h"
#include "quant/codec.h"

namespace millrace::quant {
namespace {

template <typename T>
T load(const void* source, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(source) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void store(void* destination, int64_t i, T value) {
  std::memcpy(static_cast<char*>(destination) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

void decode_f32(const void* source, float* destination, int64_t count) {
  std::memcpy(destination, source, static_cast<size_t>(count) * sizeof(float));
}
void encode_f32(const float* source, void* destination, int64_t count, const float*) {
  std::memcpy(destination, source, static_cast<size_t>(count) * sizeof(float));
}

void decode_f16(const void* source, float* destination, int64_t count) {
  for (int64_t i = 0; i < count; ++i) destination[i] = fp16_to_float(load<fp16_t>(source, i));
}
void encode_f16(const float* source, void* destination, int64_t count, const float*) {
  for (int64_t i = 0; i < count; ++i) store(destination, i, float_to_fp16(source[i]));
}

void decode_bf16(const void* source, float* destination, int64_t count) {
  for (int64_t i = 0; i < count; ++i) destination[i] = bf16_to_float(load<bf16_t>(source, i));
}
void encode_bf16(const float* source, void* destination, int64_t count, const float*) {
  for (int64_t i = 0; i < count; ++i) store(destination, i, float_to_bf16(source[i]));
}

void decode_f64(const void* source, float* destination, int64_t count) {
  for (int64_t i = 0; i < count; ++i) destination[i] = static_cast<float>(load<double>(source, i));
}
void encode_f64(const float* source, void* destination, int64_t count, const float*) {
  for (int64_t i = 0; i < count; ++i) store(destination, i, static_cast<double>(source[i]));
}

template <float (*kConvert)(uint8_t)>
void decode_f8(const void* source, float* destination, int64_t count) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t;
    for (size_t i = 0; i < 256; ++i) t[i] = kConvert(static_cast<uint8_t>(i));
    return t;
  }();
  const auto* bytes = static_cast<const uint8_t*>(source);
  for (int64_t i = 0; i < count; ++i) destination[i] = table[bytes[i]];
}

/// Rounds to nearest even in the format with `mantissa_bits` and exponent `bias`; values beyond `largest`
/// become largest_code (saturation, as weights want), NaN nan_code.
uint8_t float_to_f8(float x, int mantissa_bits, int bias, float largest, uint8_t largest_code,
                    uint8_t nan_code) {
  const auto sign = static_cast<uint8_t>(std::signbit(x) ? 0x80 : 0);
  if (std::isnan(x)) return sign | nan_code;
  const float magnitude = std::fabs(x);
  if (magnitude == 0) return sign;
  if (magnitude >= largest) return sign | largest_code;
  int exponent;
  std::frexp(magnitude, &exponent);             // magnitude in [2^(exponent-1), 2^exponent)
  exponent = std::max(exponent - 1, 1 - bias);  // subnormals share the smallest exponent
  const float unit = std::ldexp(1.0f, exponent - mantissa_bits);
  const auto steps = static_cast<int>(std::nearbyint(magnitude / unit));
  // A carry out of the mantissa runs into the exponent, which is what rounding up to a power of two means.
  const int code = ((exponent + bias - 1) << mantissa_bits) + steps;
  return static_cast<uint8_t>(sign | std::min(code, static_cast<int>(largest_code)));
}

void encode_f8e4m3(const float* source, void* destination, int64_t count, const float*) {
  auto* out = static_cast<uint8_t*>(destination);
  for (int64_t i = 0; i < count; ++i) out[i] = float_to_f8(source[i], 3, 7, 448.0f, 0x7e, 0x7f);
}
void encode_f8e5m2(const float* source, void* destination, int64_t count, const float*) {
  auto* out = static_cast<uint8_t*>(destination);
  for (int64_t i = 0; i < count; ++i) out[i] = float_to_f8(source[i], 2, 15, 57344.0f, 0x7b, 0x7f);
}

}  // namespace

Codec plain_codec(DType type) {
  switch (type) {
    case DType::kF32:
      return {1, 4, decode_f32, encode_f32};
    case DType::kF16:
      return {1, 2, decode_f16, encode_f16};
    case DType::kBF16:
      return {1, 2, decode_bf16, encode_bf16};
    case DType::kF64:
      return {1, 8, decode_f64, encode_f64};
    case DType::kF8E4M3:
      return {1, 1, decode_f8<f8e4m3_to_float>, encode_f8e4m3};
    case DType::kF8E5M2:
      return {1, 1, decode_f8<f8e5m2_to_float>, encode_f8e5m2};
    case DType::kI8:
      return {1, 1, nullptr, nullptr};
    case DType::kI16:
      return {1, 2, nullptr, nullptr};
    case DType::kI32:
      return {1, 4, nullptr, nullptr};
    case DType::kI64:
      return {1, 8, nullptr, nullptr};
    default:
      return {};
  }
}

}  // namespace millrace::quant
