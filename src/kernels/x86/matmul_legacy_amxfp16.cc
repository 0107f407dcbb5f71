#include <utility>

#include "kernels/matmul_formats.h"
#include "kernels/matmul_runs.h"
#include "kernels/x86/intrinsics.h"

namespace millrace::kernels::amxfp16 {
namespace {
#include "kernels/x86/simd_avx512.inc"
}  // namespace
namespace {
#include "kernels/matmul_int8.inc"
// In the words of the one before.
#include "kernels/x86/matmul_f16_tiles.inc"
}  // namespace
// The choice by type, of tiles that multiply half precision.
#define run_int8 run_quantised_tiles
#include "kernels/matmul_legacy.inc"

/// A row of inputs (MatmulInputKernels::to_f16).
void to_f16(const float* x, int64_t cols, uint16_t* out) {
  F most = f_set(0.0f);
  for (int64_t i = 0; i < cols; i += 16) most = _mm512_max_ps(most, _mm512_abs_ps(f_load(x + i)));
  const float largest = _mm512_reduce_max_ps(most);
  // To between 2^13 and 2^14: what is 2^28 times smaller has still all its bits.
  int exponent = 0;
  if (largest > 1e-30f && largest < 1e38f) exponent = 14 - (__builtin_ilogbf(largest) + 1);
  const F factor = f_set(__builtin_scalbnf(1.0f, exponent));
  for (int64_t i = 0; i < cols; i += 16) {
    const F swapped = _mm512_permute_ps(f_mul(f_load(x + i), factor), 0xd8);  // 0, 2, 1, 3 of each four
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_cvtps_ph(swapped, _MM_FROUND_TO_NEAREST_INT));
  }
  const float back = __builtin_scalbnf(1.0f / kF16WeightScale, -exponent);
  __builtin_memcpy(out + cols, &back, sizeof back);
}
}  // namespace millrace::kernels::amxfp16
