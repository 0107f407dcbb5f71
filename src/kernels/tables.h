// What each ISA puts into its table; table.cc stacks them. Only kernels/ includes this.
#pragma once

#include "kernels/table.h"

namespace millrace::kernels {

/// Every entry, in plain C++.
Table scalar_table();
AttentionKernels scalar_attention();
ScanKernels scalar_scan();

#if defined(__x86_64__)
// Each replaces the entries it has something faster for.
void fill_avx2(Table& table);
void fill_avx512(Table& table);
void fill_avx512bf16(Table& table);
void fill_amx(Table& table);
#endif

}  // namespace millrace::kernels
