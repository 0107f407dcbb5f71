#include <utility>

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
#include "kernels/x86/matmul_bf16_tiles.inc"
// In the words of both.
#include "kernels/x86/matmul_exact_tiles.inc"
#include "kernels/x86/matmul_super_tiles.inc"
#include "kernels/x86/matmul_word_tiles.inc"
}  // namespace
// The choice by type, of tiles that multiply BF16.
#define run_int8 run_quantised_tiles
#include "kernels/matmul_k_quants.inc"
#undef run_int8
// The same choice of exact kernels.
#define run_int8 run_exact_tiles
#define run_k_quants run_k_quants_exact
#include "kernels/matmul_k_quants.inc"
}  // namespace millrace::kernels::amx
