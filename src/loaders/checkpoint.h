// A checkpoint opened for reading: metadata, and tensors mapped from its file(s). Opening validates every
// count, offset, size and product against the files and touches no weight.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/mapped_file.h"
#include "core/tensor.h"
#include "loaders/metadata.h"

namespace millrace::loaders {

enum class Format { kGguf, kHuggingFace };

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;                      ///< outermost first (GGUF's order reversed)
  const std::byte* data = nullptr;  ///< inside `file`'s map
  uint64_t bytes = 0;
  std::shared_ptr<MappedFile> file;

  TensorView view() const { return {data, dtype, shape}; }
};

class Checkpoint {
 public:
  Format format = Format::kGguf;
  std::filesystem::path path;
  Metadata metadata;
  std::vector<TensorEntry> tensors;  ///< in file order

  const TensorEntry* find(std::string_view name) const;
  /// Fills the index by name; Error(kInvalidFile) on duplicates. Loaders call it once.
  void build_index();

 private:
  std::unordered_map<std::string, size_t> index_;
};

/// Opens a GGUF file (v2, v3; the first part of a split finds its siblings) or a Hugging Face directory.
/// Errors: kNotFound, kInvalidFile, kUnsupported, kIo, each one sentence with the place and what was
/// expected.
Checkpoint open_checkpoint(const std::filesystem::path& path);

/// A GGUF file alone (loaders/gguf.cc).
Checkpoint open_gguf(const std::filesystem::path& path);
/// A Hugging Face directory (loaders/hugging_face.cc).
Checkpoint open_hugging_face(const std::filesystem::path& path);

}  // namespace millrace::loaders
