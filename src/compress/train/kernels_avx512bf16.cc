// The trainer's kernels for AVX-512 with BF16: VDPBF16PS adds two products of bfloat16 pairs to each float
// lane.

#include <cstdint>
#include <cstring>

#include "compress/train/kernels.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

namespace millrace::train {
namespace {

#include "compress/train/kernels_body.inc"

inline __m512 multiply_pairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

void gemm_pairs(const Word* a, int64_t a_row, int64_t a_k, const Word* b, int64_t k_words, float* c,
                int64_t ldc, Into into) {
  __m512 sums[kTileRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
    sums[r][0] = into == Into::kAdd ? _mm512_loadu_ps(c + r * ldc) : _mm512_setzero_ps();
    sums[r][1] = into == Into::kAdd ? _mm512_loadu_ps(c + r * ldc + 16) : _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < k_words; ++k, a += a_k, b += kPanelColumns) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const __m512i value = _mm512_set1_epi32(static_cast<int>(a[r * a_row]));
      sums[r][0] = multiply_pairs(sums[r][0], value, b0);
      sums[r][1] = multiply_pairs(sums[r][1], value, b1);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
    _mm512_storeu_ps(c + r * ldc, sums[r][0]);
    _mm512_storeu_ps(c + r * ldc + 16, sums[r][1]);
  }
}

double peak_pairs(int64_t rounds) {
  __m512 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512i a = _mm512_set1_epi32(0x3f003f00), b = _mm512_set1_epi32(0x3e803e80);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = multiply_pairs(sums[i], a, b);
    __asm__ volatile("" : "+x"(a), "+x"(b));
  }
  __m512 total = _mm512_setzero_ps();
  for (const __m512& part : sums) total = _mm512_add_ps(total, part);
  const float keep = sum(total);
  __asm__ volatile("" : : "m"(keep));
  return static_cast<double>(rounds) * 12 * 16 * 4;
}

constexpr Kernels kTable = {
    "avx512bf16",      gemm_f32, gemm_pairs,       to_bf16, pack_f32, pack_bf16, rms_norm,
    rms_norm_backward, swiglu,   swiglu_backward,  exp_sum, largest,  scale_by,  add_to,
    add_scaled,        dot,      softmax_backward, rope,    adam,     peak_f32,  peak_pairs};

}  // namespace

const Kernels* avx512bf16_kernels() { return &kTable; }

}  // namespace millrace::train
#else
namespace millrace::train {
const Kernels* avx512bf16_kernels() { return nullptr; }
}  // namespace millrace::train
#endif
