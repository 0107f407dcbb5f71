// Hugging Face directories (see safetensors.cc for the tensors).
#include "core/error.h"
#include "loaders/checkpoint.h"

namespace millrace::loaders {

Checkpoint open_hugging_face(const std::filesystem::path& path) {
  fail(ErrorCode::kUnsupported, "{}: a directory: expected a GGUF file", path.string());
}

}  // namespace millrace::loaders
