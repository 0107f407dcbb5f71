// What every operation runs in: the workers, the chosen kernels, and the step's memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/arena.h"
#include "core/thread_pool.h"
#include "kernels/table.h"

namespace millrace::ops {

/// Receives one record per operation when profiling. Kind of bound is judged from bytes and operations by the
/// reader.
class Profiler {
 public:
  virtual ~Profiler() = default;
  /// `bytes` read and written at least; `operations` multiply and add counted as two.
  virtual void record(std::string_view name, int64_t begin_ns, int64_t end_ns, double bytes,
                      double operations) = 0;
};

class Lookahead;

struct Context {
  ThreadPool& pool;
  const kernels::Table& kernels;
  Arena& arena;  ///< reset by the owner before each step
  Profiler* profiler = nullptr;
  Lookahead* lookahead = nullptr;  ///< told of every product
};

/// Records the time between construction and destruction when the context has a profiler.
class ProfileScope {
 public:
  ProfileScope(const Context& context, std::string_view name, double bytes, double operations);
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profiler* profiler_;
  std::string_view name_;
  int64_t begin_ns_ = 0;
  double bytes_, operations_;
};

}  // namespace millrace::ops
