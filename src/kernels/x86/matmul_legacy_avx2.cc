#include "kernels/matmul_formats.h"
#include "kernels/matmul_runs.h"
#include "kernels/x86/intrinsics.h"

namespace millrace::kernels::avx2 {
namespace {
#include "kernels/x86/simd_avx2.inc"
}  // namespace
namespace {
#include "kernels/matmul_int8.inc"
}  // namespace
#include "kernels/matmul_legacy.inc"
}  // namespace millrace::kernels::avx2
