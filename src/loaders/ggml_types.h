// The numbers that GGUF files give to storage types.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"

namespace millrace::loaders {

std::optional<DType> dtype_from_ggml(uint32_t id);
/// Nullopt for types that GGUF cannot hold (FP8).
std::optional<uint32_t> ggml_from_dtype(DType type);

/// `general.file_type` of a file whose matrices are mostly of this type; nullopt where none is defined.
std::optional<uint32_t> gguf_file_type(DType type);

}  // namespace millrace::loaders
