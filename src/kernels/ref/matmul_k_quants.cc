#include "core/half.h"
#include "kernels/matmul_formats.h"
#include "kernels/matmul_runs.h"

namespace millrace::kernels::portable {
namespace {
#include "kernels/ref/simd_portable.inc"
}  // namespace
namespace {
#include "kernels/matmul_int8.inc"
}  // namespace
#include "kernels/matmul_k_quants.inc"
}  // namespace millrace::kernels::portable
