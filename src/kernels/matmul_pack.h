// Packers by storage type; only kernels/ includes this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace millrace::kernels {

using PackFunction = void (*)(const std::byte* const* rows, int64_t cols, std::byte* panel);

/// Null for a type that has no interleaved layout (its rows are kept as they are and decoded tile by tile).
PackFunction matmul_packer(DType type);

}  // namespace millrace::kernels
