// What each ISA puts into its table; table.cc stacks them. Only kernels/ includes this.
#pragma once

#include "kernels/table.h"

namespace millrace::kernels {

/// Every entry, in plain C++.
Table scalar_table();
AttentionKernels scalar_attention();

}  // namespace millrace::kernels
