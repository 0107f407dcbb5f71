#include "kernels/matmul_runs.h"
#include "kernels/x86/intrinsics.h"
#include "quant/traits.h"

namespace millrace::kernels::avx2 {
namespace {
#include "kernels/x86/simd_avx2.inc"
}  // namespace
namespace {
#include "kernels/matmul_float.inc"
#include "kernels/matmul_input.inc"
}  // namespace
#include "kernels/matmul_floats.inc"
}  // namespace millrace::kernels::avx2
