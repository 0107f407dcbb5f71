// The kernels that each instruction set brings; matmul.cc chooses. Only kernels/ includes this.
#pragma once

#include "kernels/matmul.h"

namespace millrace::kernels {

using MatmulRun = void (*)(const MatmulTask&);

/// How many bytes ahead of their use lines of one stream in order are asked for: a line comes into the second
/// cache `near + further` ahead and into the first `near` ahead. 0: not at all.
struct Asking {
  int near, further;
};

// run_*: the kernel of a type, null for a type that is not of its family.
#define MILLRACE_MATMUL_RUNS(isa)      \
  namespace isa {                      \
  MatmulRun run_legacy(DType type);    \
  MatmulRun run_k_quants(DType type);  \
  MatmulRun run_four_bits(DType type); \
  MatmulRun run_floats(DType type);    \
  MatmulInputKernels input_kernels();  \
  MatmulPeaks peaks();                 \
  }

MILLRACE_MATMUL_RUNS(portable)
#if defined(__x86_64__)
MILLRACE_MATMUL_RUNS(avx2)
MILLRACE_MATMUL_RUNS(avxvnni)
MILLRACE_MATMUL_RUNS(avx512)
namespace avx512bf16 {
void run_bf16(const MatmulTask& task);  ///< input as bfloat16, in pairs
double peak_bf16(int64_t iterations);
}  // namespace avx512bf16
// On tiles: input as bfloat16, in pairs.
namespace amx {
MatmulRun run_legacy(DType type);
MatmulRun run_k_quants(DType type);
MatmulRun run_four_bits(DType type);
MatmulRun run_floats(DType type);
// Input as int8, the bits of avx512's kernels.
MatmulRun run_legacy_exact(DType type);
MatmulRun run_k_quants_exact(DType type);
MatmulRun run_four_bits_exact(DType type);
double peak_tile_int8(int64_t iterations);
double peak_tile_bf16(int64_t iterations);
}  // namespace amx
// The same with half precision.
namespace amxfp16 {
MatmulRun run_legacy(DType type);
MatmulRun run_k_quants(DType type);
MatmulRun run_four_bits(DType type);
void to_f16(const float* x, int64_t cols, uint16_t* out);
}  // namespace amxfp16
#endif
#undef MILLRACE_MATMUL_RUNS

}  // namespace millrace::kernels
