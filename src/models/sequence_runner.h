// One sequence through a model without an engine: for logits, perplexity, benchmarks and tests. The same
// forward pass, batch and paged cache as in service; blocks are handed out in order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/kv_cache.h"
#include "models/model.h"
#include "ops/lookahead.h"

namespace millrace::models {

class SequenceRunner {
 public:
  /// Room for `max_tokens`. `pool` and `model` outlive this.
  SequenceRunner(Model& model, ThreadPool& pool, IsaLevel isa, layers::KvType kv_type, int32_t max_tokens,
                 int32_t block_size = 16);

  /// Appends tokens to the sequence in chunks of at most `chunk` rows; a single one behind others counts as
  /// an answer's, more as a prompt's (Batch::prompt_rows). With `all_logits` null only the last
  /// row's logits are computed; otherwise it is called with (first position, rows, logits [rows, vocab]) for
  /// every chunk. Returns the last row's logits, valid until the next call. Error(kLimitExceeded) beyond
  /// max_tokens, kInvalidArgument for an id outside the vocabulary.
  using LogitsVisitor = FunctionRef<void(int32_t, int32_t, const float*)>;
  const float* append(std::span<const int32_t> tokens, const LogitsVisitor* all_logits = nullptr,
                      int32_t chunk = 256);

  /// Forgets the sequence; the memory stays.
  void reset();
  int32_t length() const { return length_; }
  ops::Profiler* profiler = nullptr;

 private:
  Model& model_;
  ThreadPool& pool_;
  IsaLevel isa_;
  layers::KvCache cache_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<float> logits_;
  Arena arena_;
  ops::Lookahead lookahead_;
  int32_t max_tokens_;
  int32_t length_ = 0;
  std::vector<int32_t> history_;  ///< of models whose rotation depends on the length
};

}  // namespace millrace::models
