// What the programs that time kernels alone share: a clock, lists on the command line, the machine's peaks,
// and errors as sentences.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/thread_pool.h"

namespace millrace::bench {

/// Seconds since some moment.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline std::vector<std::string> split(const std::string& text, char at = ',') {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Operations a second of all threads together, the best of a few short runs; 0 without a kernel.
inline double peak(ThreadPool& pool, double (*kernel)(int64_t)) {
  double best = 0;
  for (int round = 0; kernel && round < 6; ++round) {
    std::vector<double> operations(static_cast<size_t>(pool.num_threads()));
    const double begin = now();
    pool.run([&](int thread) { operations[static_cast<size_t>(thread)] = kernel(1'000'000); });
    double sum = 0;
    for (double o : operations) sum += o;
    best = std::max(best, sum / (now() - begin));
  }
  return best;
}

/// `run`, with what it throws told on standard error: the exit status of a program of that name.
inline int guarded(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", name, e.what());
    return 1;
  }
}

}  // namespace millrace::bench
