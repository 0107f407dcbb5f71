// What a compilation may cost, and the counter that every loop of the compiler reports to.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/error.h"

namespace millrace::grammar {

struct Limits {
  size_t source_bytes = size_t{4} << 20;        ///< length of a JSON Schema's text
  size_t expression_bytes = size_t{256} << 10;  ///< of a regular expression's, GBNF's, Lark's
  size_t choices_bytes = size_t{512} << 10;
  size_t depth = 400;          ///< nesting of groups, or of schemas within schemas
  size_t rules = 100'000;      ///< rules after lowering
  size_t states = 400'000;     ///< automaton states, all rules together
  size_t alternatives = 1024;  ///< shapes of one schema after allOf/anyOf/oneOf/not are multiplied out
  size_t memory_bytes = size_t{30} << 20;  ///< estimate of what the compiler and its result hold
  double seconds = 0.9;                    ///< time of one compilation
};

/// Watches time, cancellation and work of one compilation. Its errors name the limit. Not shared between
/// threads.
class Budget {
 public:
  explicit Budget(const Limits& limits = {}, const std::atomic<bool>* cancel = nullptr)
      : limits_(limits), cancel_(cancel), start_(std::chrono::steady_clock::now()) {}

  const Limits& limits() const { return limits_; }

  /// Call in every loop whose length depends on the input.
  void tick(size_t amount = 1) {
    work_ += amount;
    if (work_ >= next_check_) slow_check();
  }
  void add_states(size_t n) {
    states_ += n;
    require(states_ <= limits_.states, ErrorCode::kLimitExceeded,
            "the grammar needs more than {} automaton states (limit on states)", limits_.states);
    add_memory(n * 48);
  }
  void add_memory(size_t bytes) {
    memory_ += bytes;
    require(memory_ <= limits_.memory_bytes, ErrorCode::kLimitExceeded,
            "the grammar needs more than {} bytes to compile (limit on memory)", limits_.memory_bytes);
    tick();
  }
  void release_memory(size_t bytes) { memory_ -= bytes < memory_ ? bytes : memory_; }
  void check_depth(size_t depth) const {
    require(depth <= limits_.depth, ErrorCode::kLimitExceeded,
            "the grammar nests deeper than {} levels (limit on depth)", limits_.depth);
  }
  static void check_source(size_t bytes, size_t limit) {
    require(bytes <= limit, ErrorCode::kLimitExceeded,
            "the grammar's text has {} bytes, more than {} (limit on size)", bytes, limit);
  }
  double elapsed_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  void slow_check() {
    next_check_ = work_ + 2000;
    require(!cancel_ || !cancel_->load(std::memory_order_relaxed), ErrorCode::kCancelled,
            "the grammar's compilation was cancelled");
    require(elapsed_seconds() < limits_.seconds, ErrorCode::kLimitExceeded,
            "the grammar took longer than {} s to compile (limit on time)", limits_.seconds);
  }

  Limits limits_;
  const std::atomic<bool>* cancel_;
  std::chrono::steady_clock::time_point start_;
  size_t work_ = 0, next_check_ = 1, states_ = 0, memory_ = 0;
};

}  // namespace millrace::grammar
