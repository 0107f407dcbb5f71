// One forward pass as the layers see it: the batch, the cache, and what is worked out once for all layers.
#pragma once

#include <cstdint>
#include <span>

#include "layers/batch.h"
#include "layers/kv_cache.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/matmul.h"

namespace millrace::layers {

class Step {
 public:
  /// Makes the per-group views of the block tables; memory from the context's arena.
  Step(const ops::Context& context, const Batch& batch, KvCache& cache);

  const ops::Context& context() const { return context_; }
  const Batch& batch() const { return batch_; }
  KvCache& cache() const { return cache_; }
  int64_t rows() const { return batch_.num_rows(); }

  /// The batch's sequences with the block tables of the group that `layer` belongs to.
  std::span<const ops::AttentionSequence> sequences(int layer) const;

  /// The step's rows as an input of products: x [rows(), cols].
  ops::MatmulInput input(const float* x, int64_t cols, int64_t stride = 0) const {
    return ops::make_input(x, rows(), cols, stride, batch_.prompt_rows);
  }

  /// Uninitialised floats, valid until the end of the step.
  float* floats(int64_t count) const { return context_.arena.allocate<float>(count); }

 private:
  const ops::Context& context_;
  const Batch& batch_;
  KvCache& cache_;
  ops::AttentionSequence* by_group_ = nullptr;  // [groups][sequences]
};

/// Gives back the arena memory taken since construction.
class ScratchScope {
 public:
  explicit ScratchScope(const Step& step) : arena_(step.context().arena), mark_(arena_.mark()) {}
  ~ScratchScope() { arena_.release(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace millrace::layers
