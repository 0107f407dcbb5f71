#include "core/half.h"
#include "kernels/matmul_runs.h"
#include "quant/traits.h"

namespace millrace::kernels::portable {
namespace {
#include "kernels/ref/simd_portable.inc"
}  // namespace
namespace {
#include "kernels/matmul_float.inc"
#include "kernels/matmul_input.inc"
}  // namespace
#include "kernels/matmul_floats.inc"
}  // namespace millrace::kernels::portable
