// The trainer's kernels compiled for AVX512.

#include <cstdint>
#include <cstring>

#include "compress/train/kernels.h"

#if defined(__AVX512F__)
#include <immintrin.h>

namespace millrace::train {
namespace {

#include "compress/train/kernels_body.inc"

constexpr Kernels kTable = {
    "avx512",          gemm_f32, gemm_bf16,        to_bf16, pack_f32, pack_bf16, rms_norm,
    rms_norm_backward, swiglu,   swiglu_backward,  exp_sum, largest,  scale_by,  add_to,
    add_scaled,        dot,      softmax_backward, rope,    adam,     peak_f32,  peak_f32};

}  // namespace

const Kernels* avx512_kernels() { return &kTable; }

}  // namespace millrace::train
#else
namespace millrace::train {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace millrace::train
#endif
