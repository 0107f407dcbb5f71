// Eight floats at a time: the verbs of vector_avx512.h for AVX2 and FMA.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace millrace::kernels {
namespace {

using F = __m256;
using I = __m256i;
inline constexpr int kLanes = 8;

inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F x) { _mm256_storeu_ps(p, x); }
inline I lane_integers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
inline I first(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane_integers());
}
inline F load_some(const float* p, int64_t n, F fill) {
  const I mask = first(n);
  return _mm256_blendv_ps(fill, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}
inline void store_some(float* p, F x, int64_t n) { _mm256_maskstore_ps(p, first(n), x); }
/// To the lanes whose bit is set.
inline void store_lanes(float* p, F x, uint32_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i here = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
  _mm256_maskstore_ps(p, _mm256_cmpeq_epi32(here, lane), x);
}

inline F set(float x) { return _mm256_set1_ps(x); }
inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F div(F a, F b) { return _mm256_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
inline F larger(F a, F b) { return _mm256_max_ps(a, b); }
inline F smaller(F a, F b) { return _mm256_min_ps(a, b); }
inline F absolute(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline F round_even(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// In two steps, since 2^n of -150 .. 128 is not one float. Not a number stays: its n is any integer.
inline F scale_by_power(F x, F n) {
  const I whole = _mm256_cvtps_epi32(n);
  const I half = _mm256_srai_epi32(whole, 1);
  const I bias = _mm256_set1_epi32(127);
  const F low = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const F high =
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(x, low), high);
}
inline F zero_where_less(F a, F b, F x) { return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), x); }
inline F where_less(F a, F b, F x, F y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
inline F copy_sign(F magnitude, F sign) {
  const F mask = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_and_ps(mask, sign), _mm256_andnot_ps(mask, magnitude));
}
inline bool any_equal(F a, F b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) != 0; }
inline uint32_t lanes_at_least(F a, F b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
}
inline float total(F a) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(F a) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline F lane_numbers() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
inline F keep_lanes(F x, int32_t begin, int32_t end) {
  const I lane = lane_integers();
  const I before = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane);
  const I inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane);
  return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x,
                          _mm256_castsi256_ps(_mm256_andnot_si256(before, inside)));
}
inline void deinterleave(F a, F b, F& even, F& odd) {
  const F e = _mm256_shuffle_ps(a, b, 0x88), o = _mm256_shuffle_ps(a, b, 0xdd);
  even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xd8));
  odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xd8));
}
inline void interleave(F even, F odd, F& a, F& b) {
  const F l = _mm256_unpacklo_ps(even, odd), h = _mm256_unpackhi_ps(even, odd);
  a = _mm256_permute2f128_ps(l, h, 0x20);
  b = _mm256_permute2f128_ps(l, h, 0x31);
}

inline I set_i32(int32_t x) { return _mm256_set1_epi32(x); }
inline I load_i32(const void* p) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
inline I load_i16(const void* p) {
  return _mm256_cvtepi16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline I load_byte_pairs(const void* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline I dot_halves(I sum, I a, I b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
inline void store_i16(void* p, F x) {
  const I whole = _mm256_cvtps_epi32(x);
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storeu_si128(static_cast<__m128i*>(p), halves);
}
inline I load_u8(const void* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
template <int kBits>
inline I shift_left(I x) {
  return _mm256_slli_epi32(x, kBits);
}
template <int kBits>
inline I shift_right(I x) {
  return _mm256_srai_epi32(x, kBits);
}
inline I mask_bits(I x, uint32_t bits) {
  return _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(bits)));
}
inline F bits_as_float(I x) { return _mm256_castsi256_ps(x); }
inline F to_float(I x) { return _mm256_cvtepi32_ps(x); }

}  // namespace
}  // namespace millrace::kernels
