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
#include "kernels/matmul_four_bits.inc"
}  // namespace millrace::kernels::amxfp16
