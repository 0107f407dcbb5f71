#include "kernels/tables.h"

// Each of these is written in the words of the one before.
// clang-format off
#include "kernels/x86/vector_avx2.h"
#include "kernels/x86/math.inc"
#include "kernels/x86/attention.inc"
#include "kernels/x86/elementwise.inc"
#include "kernels/x86/scan.inc"
// clang-format on

namespace millrace::kernels {

void fill_avx2(Table& t) {
  fill_elementwise(t);
  t.scan = {selective_scan_kernel, chunk_read_kernel,  chunk_solve_kernel,
            chunk_update_kernel,   chunk_pairs_kernel, conv_kernel};
  fill_attention(t.attention);
  t.attention_bf16 = t.attention;
}

}  // namespace millrace::kernels
