// Hugging Face checkpoints as GGUF files that llama.cpp loads. Tensor names and rearrangements come from the
// table that the model's family loads by; settings from convert/recipes.h; the vocabulary from the caller,
// who knows tokenizers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "core/thread_pool.h"
#include "loaders/checkpoint.h"
#include "loaders/gguf_writer.h"

namespace millrace::convert {

struct ExportOptions {
  /// Storage type of the matrices; none: the checkpoint's own (FP8 becomes BF16).
  std::optional<DType> type;
  /// Writes "tokenizer.*"; `vocab_rows` is the embedding's, which the list of tokens must have.
  std::function<void(loaders::GgufWriter& out, int64_t vocab_rows)> write_vocabulary;
  std::function<void(uint64_t done, uint64_t total)> progress;  ///< bytes of the source
};

struct ExportResult {
  uint64_t file_bytes = 0;
  size_t tensors = 0;
  std::vector<std::string> left_out;  ///< tensors of the checkpoint that GGUF has no place for
  std::string note;                   ///< a setting that GGUF has no form for, as a sentence; or empty
};

/// Errors: kUnsupported for a family or a setting that GGUF cannot express, kInvalidFile for a checkpoint
/// that contradicts itself, kIo.
ExportResult export_gguf(const loaders::Checkpoint& checkpoint, const ExportOptions& options,
                         const std::filesystem::path& path, ThreadPool& pool);

}  // namespace millrace::convert
