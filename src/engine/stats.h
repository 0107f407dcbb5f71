// Counters and gauges of an engine, as a copy taken at one moment.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace::engine {

/// Counts per bucket of upper bounds (the last bucket has none), as Prometheus wants them.
class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(std::span<const double> upper_bounds)
      : bounds_(upper_bounds.begin(), upper_bounds.end()), counts_(upper_bounds.size() + 1) {}
  void add(double value, uint64_t times = 1) {
    size_t i = 0;
    while (i < bounds_.size() && value > bounds_[i]) ++i;
    counts_[i] += times;
    sum_ += value * static_cast<double>(times);
    count_ += times;
  }
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }
  uint64_t count() const { return count_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

struct Stats {
  // Now.
  int64_t running = 0;  ///< sequences holding blocks
  int64_t waiting = 0;
  int64_t swapped = 0;
  int64_t paused = 0;         ///< readers behind
  int64_t blocks_total = 0;   ///< of the growing cache groups
  int64_t blocks_used = 0;    ///< held by sequences
  int64_t blocks_cached = 0;  ///< kept for their contents only
  double kv_waste = 0;        ///< share of the held blocks' token places that are empty
  int64_t batch_tokens = 0;   ///< rows of the last step
  int64_t batch_sequences = 0;
  uint64_t weight_bytes = 0, kv_bytes = 0, activation_bytes = 0, swap_bytes_used = 0;

  // Since the start.
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;  ///< of prompts computed or found in the cache
  uint64_t generation_tokens = 0;
  uint64_t prefix_queried_tokens = 0, prefix_hit_tokens = 0;
  uint64_t preemptions_recompute = 0, preemptions_swap = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_deadline = 0,
           finished_error = 0;
  uint64_t stalled_dropped = 0;
  /// Mixture of experts: rows that each expert got, for each layer (empty for layers without experts).
  std::vector<std::vector<uint64_t>> expert_tokens;
  uint64_t jumped_tokens = 0;  ///< forced by a constraint, computed without a step of their own
  double busy_seconds = 0;     ///< in steps
  double forward_seconds = 0;  ///< ... of which in the model

  // Seconds, but for the token counts.
  Histogram ttft, time_between_tokens, time_per_output_token, queue, end_to_end, step;
  Histogram prefill;    ///< from the first step to the first token
  Histogram decode;     ///< from the first token to the end
  Histogram inference;  ///< both
  Histogram prompt_length, generation_length;
  Histogram wanted_tokens, wanted_answers;  ///< max_tokens (as resolved) and n of requests
  Histogram step_tokens;                    ///< rows of a step
};

}  // namespace millrace::engine
