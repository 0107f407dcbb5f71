#include "loaders/checkpoint.h"

#include "core/error.h"

namespace millrace::loaders {

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? nullptr : &tensors[at->second];
}

void Checkpoint::build_index() {
  index_.clear();
  index_.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    require(index_.emplace(tensors[i].name, i).second, ErrorCode::kInvalidFile,
            "{}: tensor '{}' appears twice: expected distinct names", path.string(), tensors[i].name);
}

Checkpoint open_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? open_hugging_face(path) : open_gguf(path);
}

}  // namespace millrace::loaders
