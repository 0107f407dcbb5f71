// Sixteen floats at a time, in the few verbs that the shared kernels (*.inc) are written in. Everything has
// internal linkage: each file that includes this is compiled for AVX-512 only.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own intrinsics start from "undefined" vectors and then warn of them (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include <cstdint>

namespace millrace::kernels {
namespace {

using F = __m512;
using I = __m512i;  ///< as many 32-bit integers
inline constexpr int kLanes = 16;

inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline __mmask16 first(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
/// The first n < kLanes lanes; the rest is `fill`.
inline F load_some(const float* p, int64_t n, F fill) { return _mm512_mask_loadu_ps(fill, first(n), p); }
inline void store_some(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, first(n), x); }
/// To the lanes whose bit is set.
inline void store_lanes(float* p, F x, uint32_t bits) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(bits), x);
}

inline F set(float x) { return _mm512_set1_ps(x); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
/// a * b + c, rounded once
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
/// c - a * b
inline F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
/// Not a number in b stays.
inline F larger(F a, F b) { return _mm512_max_ps(a, b); }
inline F smaller(F a, F b) { return _mm512_min_ps(a, b); }
inline F absolute(F a) { return _mm512_abs_ps(a); }
inline F round_even(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// x * 2^n for integral n
inline F scale_by_power(F x, F n) { return _mm512_scalef_ps(x, n); }
/// a < b ? 0 : x
inline F zero_where_less(F a, F b, F x) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
}
/// a < b ? x : y
inline F where_less(F a, F b, F x, F y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
inline F copy_sign(F magnitude, F sign) {
  const I mask = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  return _mm512_castsi512_ps(
      _mm512_ternarylogic_epi32(mask, _mm512_castps_si512(sign), _mm512_castps_si512(magnitude), 0xca));
}
inline bool any_equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) != 0; }
/// One bit per lane.
inline uint32_t lanes_at_least(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
inline float total(F a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(F a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
/// 0, 1, 2, ...
inline F lane_numbers() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
/// x where begin <= lane < end, -infinity elsewhere
inline F keep_lanes(F x, int32_t begin, int32_t end) {
  const I lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 keep = _mm512_cmp_epi32_mask(lane, _mm512_set1_epi32(begin), _MM_CMPINT_NLT) &
                         _mm512_cmp_epi32_mask(lane, _mm512_set1_epi32(end), _MM_CMPINT_LT);
  return _mm512_mask_blend_ps(keep, _mm512_set1_ps(-__builtin_inff()), x);
}
/// Pairs (x0 x1)(x2 x3)... to evens and odds of two vectors, and back.
inline void deinterleave(F a, F b, F& even, F& odd) {
  const I e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const I o = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  even = _mm512_permutex2var_ps(a, e, b);
  odd = _mm512_permutex2var_ps(a, o, b);
}
inline void interleave(F even, F odd, F& a, F& b) {
  const I l = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const I h = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  a = _mm512_permutex2var_ps(even, l, odd);
  b = _mm512_permutex2var_ps(even, h, odd);
}

inline I set_i32(int32_t x) { return _mm512_set1_epi32(x); }
inline I load_i32(const void* p) { return _mm512_loadu_si512(p); }
inline I load_i16(const void* p) {
  return _mm512_cvtepi16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
/// Signed bytes as 16-bit halves of 32-bit lanes.
inline I load_byte_pairs(const void* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
/// sum + a0 * b0 + a1 * b1 over the 16-bit halves of each lane
/// As assembly: around its intrinsic GCC 12 copies every sum and spills some.
inline I dot_halves(I sum, I a, I b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
/// Rounded to integers of 16 bits.
inline void store_i16(void* p, F x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
}
inline I load_u8(const void* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
template <int kBits>
inline I shift_left(I x) {
  return _mm512_slli_epi32(x, kBits);
}
/// Keeps the sign.
template <int kBits>
inline I shift_right(I x) {
  return _mm512_srai_epi32(x, kBits);
}
inline I mask_bits(I x, uint32_t bits) {
  return _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(bits)));
}
inline F bits_as_float(I x) { return _mm512_castsi512_ps(x); }
inline F to_float(I x) { return _mm512_cvtepi32_ps(x); }

}  // namespace
}  // namespace millrace::kernels
