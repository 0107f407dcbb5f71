// The timed part of `millrace bench`: steps of a model over synthetic sequences of any length, without an
// engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "layers/kv_cache.h"
#include "models/model.h"
#include "ops/context.h"
#include "ops/lookahead.h"

namespace millrace::cli {

/// One operation as the profiler saw it.
struct TimedOperation {
  std::string name;
  int64_t begin_ns, end_ns;
  double bytes, operations;
};

class OperationRecorder : public ops::Profiler {
 public:
  void record(std::string_view name, int64_t begin_ns, int64_t end_ns, double bytes,
              double operations) override {
    operations_.push_back({std::string(name), begin_ns, end_ns, bytes, operations});
  }
  std::vector<TimedOperation> take() { return std::move(operations_); }

 private:
  std::vector<TimedOperation> operations_;
};

/// Sequences side by side in one cache. The cache's contents before `depth` are arbitrary bytes: time does
/// not depend on what they are, and computing them would take longer than the test.
class BenchSequences {
 public:
  BenchSequences(models::Model& model, ThreadPool& pool, IsaLevel isa, layers::KvType kv_type,
                 int32_t sequences, int32_t depth, int32_t new_tokens);

  /// One forward pass: `tokens` more for every sequence, logits for each one's last, and the largest of them.
  /// `following` more of the same prompt come in later steps. Seconds.
  double step(int32_t tokens, ops::Profiler* profiler = nullptr, int32_t following = 0);
  /// Back to `depth` tokens.
  void rewind() { length_ = depth_; }

 private:
  models::Model& model_;
  ThreadPool& pool_;
  IsaLevel isa_;
  layers::KvCache cache_;
  int32_t sequences_, depth_, length_, capacity_;
  std::vector<std::vector<std::vector<int32_t>>> tables_;  // [sequence][group]
  std::vector<float> logits_;
  Arena arena_;
  ops::Lookahead lookahead_;
  uint64_t random_ = 1;
};

}  // namespace millrace::cli
