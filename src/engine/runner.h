// Carries out a step on the model: the cache's memory, the packed batch, the forward pass. Knows sequences,
// decides nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/thread_pool.h"
#include "engine/kv/block_manager.h"
#include "engine/sequence.h"
#include "kernels/matmul.h"
#include "layers/kv_cache.h"
#include "models/model.h"
#include "ops/lookahead.h"

namespace millrace::engine {

struct StepEntry {
  Sequence* sequence = nullptr;
  int32_t tokens = 0;
  bool all_rows = false;     ///< outputs of every row, not only the last
  bool outputs = false;      ///< outputs wanted at all
  int32_t first_output = 0;  ///< set by forward(): index of its first output row
};

class Runner {
 public:
  Runner(std::unique_ptr<models::Model> model, std::shared_ptr<ThreadPool> pool, IsaLevel isa,
         layers::CacheLayout layout, std::vector<int64_t> blocks_per_group);

  models::Model& model() { return *model_; }
  const models::Model& model() const { return *model_; }
  ThreadPool& pool() { return *pool_; }
  /// Rows of answers that cost as much as one of them.
  int32_t row_tile() const { return static_cast<int32_t>(kernels::matmul_token_tile(isa_)); }
  layers::KvCache& cache() { return cache_; }
  const layers::KvCache& cache() const { return cache_; }

  void copy(std::span<const BlockCopy> copies);
  void zero(std::span<const std::pair<int32_t, int32_t>> states);

  /// Bytes of one block of a group, over all its layers.
  int64_t block_bytes(int group) const { return block_bytes_[static_cast<size_t>(group)]; }
  /// A number for the model and for how its cache looks inside: what it answers to fixed tokens and what it
  /// keeps of them, hashed. Overwrites the first blocks: before anything is in the cache.
  uint64_t fingerprint();
  /// Bytes of a table's blocks in the host area.
  int64_t swap_bytes(const BlockTable& table) const;
  /// Copies them out; the table stays as it is.
  void swap_out(const BlockTable& table, SwappedBlocks& out) const;
  /// Copies them into the blocks of `table`, which has blocks where the old one had.
  void swap_in(const SwappedBlocks& from, const BlockTable& table);

  /// Computes the entries' next tokens; their tables have the blocks. Hidden states instead of logits when
  /// asked.
  void forward(std::span<StepEntry> entries, bool hidden);
  /// Row of the last forward(): logits [vocab_size], or hidden state [hidden_size].
  std::span<float> output(int32_t row);

  uint64_t activation_bytes() const { return arena_.capacity() + outputs_.size(); }

 private:
  std::unique_ptr<models::Model> model_;
  std::shared_ptr<ThreadPool> pool_;
  IsaLevel isa_;
  layers::KvCache cache_;
  std::vector<int64_t> block_bytes_;  // [group], as read_block() writes them
  Arena arena_;
  ops::Lookahead lookahead_;
  AlignedBuffer outputs_;
  int64_t output_width_ = 0;

  // Reused from step to step.
  std::vector<int32_t> tokens_, positions_, output_rows_;
  std::vector<layers::BatchSequence> sequences_;
  std::vector<std::span<const int32_t>> tables_;
};

}  // namespace millrace::engine
