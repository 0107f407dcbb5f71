// The trainer's kernels on the compiler's own vectors of four floats: SSE2 on x86-64, NEON on ARM.

#include <cstdint>
#include <cstring>

#include "compress/train/kernels.h"

namespace millrace::train {
namespace {

#include "compress/train/kernels_body.inc"

constexpr Kernels kTable = {
    "portable",        gemm_f32, gemm_bf16,        to_bf16, pack_f32, pack_bf16, rms_norm,
    rms_norm_backward, swiglu,   swiglu_backward,  exp_sum, largest,  scale_by,  add_to,
    add_scaled,        dot,      softmax_backward, rope,    adam,     peak_f32,  peak_f32};

}  // namespace

const Kernels& portable_kernels() { return kTable; }

}  // namespace millrace::train
