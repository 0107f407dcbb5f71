// Checkpoints with the real shape of a named model and random weights, for timing and for tests where no
// weights are at hand. Any GGUF program can load them: tensors, metadata and a complete byte-level BPE
// vocabulary of the real size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace millrace::loaders {

/// Sizes of a published model. Sizes are in elements.
struct SyntheticShape {
  const char* name;
  const char* architecture;  ///< as in general.architecture
  int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, context;
  float rope_base, norm_epsilon;
  bool tied;                ///< the output matrix is the embedding
  float llama3_factor = 0;  ///< Llama 3's frequency scaling; 0: none
  float linear_factor = 0;  ///< linear position scaling; 0: none
  int32_t window = 0;       ///< sliding window of the local layers
  int32_t experts = 0, experts_used = 0, expert_ffn = 0;
};

std::span<const SyntheticShape> synthetic_shapes();
/// Error(kInvalidArgument) naming the known shapes when there is none of this name.
const SyntheticShape& find_synthetic_shape(std::string_view name);

struct SyntheticOptions {
  DType type = DType::kQ8_0;
  uint64_t seed = 1;
  int32_t layers = 0;                                           ///< keep only this many; 0: all
  std::function<void(uint64_t done, uint64_t total)> progress;  ///< bytes; called on the calling thread
};

/// Writes the checkpoint. All matrices get `type`, with two exceptions, as llama.cpp's own files have them:
/// under K- and i-quants below 6 bits the embedding and the output are Q6_K, and where rows are no whole
/// number of 256-element blocks a 32-element type of like size stands in. Vectors and expert routers are F32.
/// Returns the file's size. Errors: kInvalidArgument for a type GGUF cannot hold, kIo when the disk is full.
uint64_t write_synthetic(const SyntheticShape& shape, const SyntheticOptions& options,
                         const std::filesystem::path& path, ThreadPool& pool);

/// The type that stands in for `type` where rows of `columns` elements are no whole number of its blocks.
DType type_for_columns(DType type, int64_t columns);
/// The type of the embedding and output matrices in a file of mostly `type`.
DType type_for_output(DType type);

/// A byte-level BPE vocabulary: 256 bytes, letter pairs, and quadruples of letters until `size` is reached,
/// with four control tokens at the end.
struct SyntheticVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  uint32_t bos, eos, turn_begin, turn_end;
};
SyntheticVocabulary make_synthetic_vocabulary(int32_t size);

}  // namespace millrace::loaders
