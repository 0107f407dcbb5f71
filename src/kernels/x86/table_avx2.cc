#include "kernels/tables.h"

// Each of these is written in the words of the one before.
// clang-format off
#include "kernels/x86/vector_avx2.h"
#include "kernels/x86/math.inl.h"
#include "kernels/x86/attention.inl.h"
#include "kernels/x86/elementwise.inl.h"
#include "kernels/x86/scan.inl.h"
// clang-format on

namespace millrace::kernels {

void fill_avx2(Table& t) {
  fill_elementwise(t);
  t.scan = {selective_scan_kernel, head_scan_kernel, delta_scan_kernel};
  t.attention = {false,           attend_panel<FloatDot>, prepare_query_f32, expand_bf16_f32,
                 expand_int8_f32, expand_int4_k_f32,      expand_int4_v_f32, transpose_values_f32};
  t.attention_bf16 = t.attention;
}

}  // namespace millrace::kernels
