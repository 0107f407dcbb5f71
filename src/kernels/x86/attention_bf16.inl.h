// What attention over bfloat16 tiles has in common with and without the matrix unit; include after
// math.inl.h.
#pragma once

#include "kernels/attention.h"

namespace millrace::kernels {
namespace {

inline __m512bh as_bf16(__m512i x) { return reinterpret_cast<__m512bh>(x); }
inline __m256i as_integers(__m256bh x) { return reinterpret_cast<__m256i>(x); }
inline __m512i as_integers(__m512bh x) { return reinterpret_cast<__m512i>(x); }

/// 2^x for x <= 0, to 1e-4: a sixteenth of what rounding weights to bfloat16 takes. Exactly 1 at 0; 0 far
/// below.
inline F weight_power(F x) {
  const F n = round_even(x), r = sub(x, n);
  F p = fma(set(0.05500893096f), r, set(0.2422109594f));
  p = fma(p, r, set(0.6932829271f));
  p = fma(p, r, set(1.0f));
  return scale_by_power(p, n);
}

}  // namespace
}  // namespace millrace::kernels
