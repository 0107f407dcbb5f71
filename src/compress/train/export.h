// A trained model as GGUF that llama.cpp and Millrace load.
#pragma once

#include <cstdint>
#include <filesystem>

#include "compress/train/model.h"

namespace millrace::train {

/// Writes matrices as Q8_0 and norms and routers as F32. `metadata` is a JSON file {"key": {"type": T,
/// "value": V}} with T one of string, u32, f32, bool, strings, i32s: general.* and the tokenizer; the llama.*
/// shape keys are added here. Returns the bytes written. Error(kInvalidArgument) for wrong metadata,
/// Error(kIo) when writing fails.
uint64_t export_gguf(Model& model, const std::filesystem::path& metadata, const std::filesystem::path& path);

}  // namespace millrace::train
