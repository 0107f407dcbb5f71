// What `millrace bench` prints and writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_machine.h"
#include "cli/bench_run.h"

namespace millrace::cli {

struct BenchResult {
  bool prompt = false;  ///< else decode
  int32_t tokens = 0;   ///< prompt tokens, or decode steps
  int32_t depth = 0;    ///< tokens in the cache before
  int32_t sequences = 1;
  double seconds = 0;          ///< of a prompt, or of one decode step: the median
  double memory_seconds = 0;   ///< what the weights and cached tokens need at the machine's read bandwidth
  double compute_seconds = 0;  ///< what the matrix products need at its peaks
  double tile_seconds = 0;  ///< what they need at the peak of the matrix unit in BF16; 0 where there is none
  std::vector<TimedOperation> operations;  ///< of one profiled run

  double tokens_per_second() const { return (prompt ? tokens : 1) * sequences / seconds; }
  double limit() const {
    return (prompt ? tokens : 1) * sequences /
           (memory_seconds > compute_seconds ? memory_seconds : compute_seconds);
  }
  double share() const { return tokens_per_second() / limit(); }
  /// Of the limit that memory and the matrix unit set.
  double matrix_share() const {
    return (memory_seconds > tile_seconds ? memory_seconds : tile_seconds) / seconds;
  }
  const char* bound() const { return memory_seconds > compute_seconds ? "memory" : "compute"; }
};

struct BenchReport {
  std::string model, isa, cpu;
  int threads = 0;
  double load_seconds = 0;
  uint64_t file_bytes = 0, weight_bytes = 0, resident_bytes = 0, peak_resident_bytes = 0;
  std::vector<BenchResult> results;
};

/// The documented array: one object a test, and one with test "machine".
std::string bench_json(const BenchReport& report, const MachineLimits& limits);
std::string bench_table(const BenchReport& report, const MachineLimits& limits);
/// Bars: each figure as a share of its limit.
std::string bench_svg(const BenchReport& report, const MachineLimits& limits);
/// Chrome trace format (chrome://tracing, Perfetto): a process a test, its operations on one timeline.
std::string bench_trace(const BenchReport& report, const MachineLimits& limits);
/// Where the time of each test went, by operation.
std::string bench_profile(const BenchReport& report, const MachineLimits& limits);

}  // namespace millrace::cli
