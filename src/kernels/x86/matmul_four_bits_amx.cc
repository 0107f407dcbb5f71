#include "kernels/matmul_formats.h"
#include "kernels/matmul_runs.h"
#include "kernels/x86/intrinsics.h"

namespace millrace::kernels::amx {
namespace {
#include "kernels/x86/simd_avx512.inc"
}  // namespace
namespace {
#include "kernels/matmul_int8.inc"
// In the words of the one before.
#include "kernels/x86/matmul_int8_tiles.inc"
// In the words of both.
#include "kernels/x86/matmul_exact_tiles.inc"
}  // namespace
#include "kernels/matmul_four_bits.inc"
// The same choice of exact kernels.
#undef run_int8
#define run_int8 kExactRun
#define run_four_bits run_four_bits_exact
#include "kernels/matmul_four_bits.inc"
}  // namespace millrace::kernels::amx
