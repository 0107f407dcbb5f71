// millrace bench serve: what a server does under load.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_load.h"

namespace millrace::cli {

/// The subcommand; argv[0] is "bench serve".
int bench_serve(int argc, char** argv);

/// Arrivals as a trace recorded them: lines of time (YYYY-MM-DD HH:MM:SS.fraction, or seconds), prompt tokens
/// and output tokens, after a heading; times divided by `speed`, lengths cut at the bounds (0: none).
/// Error(kNotFound, kInvalidFile) with the line.
std::vector<PlannedRequest> read_trace(const std::string& path, double speed, int32_t most_prompt,
                                       int32_t most_output);

/// Mean and percentiles of a quantity, seconds.
struct LatencySummary {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
LatencySummary summarise(std::vector<double> values);

struct ServiceLevel {
  double ttft = 2, tpot = 0.2;
};

/// JSON text of a run: counts, throughput, goodput, latencies, errors.
std::string load_json(const LoadRun& run, const ServiceLevel& level);
std::string load_table(const LoadRun& run, const ServiceLevel& level);
/// Four curves: which share of requests (or tokens) was at least so fast.
std::string load_svg(const LoadRun& run, const std::string& title);

}  // namespace millrace::cli
