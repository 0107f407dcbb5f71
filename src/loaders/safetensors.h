// The safetensors format (Hugging Face): eight bytes of header length, a JSON header, raw tensors.
#pragma once

#include <filesystem>
#include <vector>

#include "loaders/checkpoint.h"

namespace millrace::loaders {

/// Maps one file and appends its tensors. Errors: kNotFound, kInvalidFile (header beyond the file, malformed,
/// unknown dtype, ranges that overlap, leave holes, run backwards or do not fit their shape), each naming
/// file and tensor.
void read_safetensors(const std::filesystem::path& path, std::vector<TensorEntry>& out);

}  // namespace millrace::loaders
