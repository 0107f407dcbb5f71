// What `millrace bench` prints and writes.
#pragma once

#include <algorithm>
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
  std::vector<double> samples;             ///< seconds of each prompt or decode step
  std::vector<MachineRates> rates;         ///< what the machine gave right after each
  Work work;                               ///< of one sample
  MachineRates best;                       ///< the best that the machine gave in the whole run
  std::vector<TimedOperation> operations;  ///< of one profiled run

  int64_t tokens_a_sample() const { return int64_t{prompt ? tokens : 1} * sequences; }
  double seconds() const { return median(samples); }
  double tokens_per_second() const { return static_cast<double>(tokens_a_sample()) / seconds(); }
  /// Tokens a second at the median of the limits measured beside the samples.
  double limit() const;
  /// The median of each sample's share of the limit measured right after it.
  double share() const;
  /// The median sample as a share of the run's best limit.
  double share_of_best() const { return work.limit_seconds(best) / seconds(); }
  /// Of the limit that memory and the matrix unit's best set.
  double matrix_share() const {
    return std::max(work.memory_seconds(best), work.tile_seconds(best)) / seconds();
  }
  const char* bound() const { return memory_bound() ? "memory" : "compute"; }
  bool memory_bound() const { return work.memory_seconds(best) > work.compute_seconds(best); }

  static double median(std::vector<double> values);
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
