// The compute workers. One pool serves one engine; its threads live as long as it does. A parallel region is
// a fork and a join with spin-then-park on both sides: cheap when regions follow each other within
// microseconds (a forward pass), and idle without cost when they do not.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/function_ref.h"

namespace millrace {

/// What threads do while they wait for others inside or between regions.
class IdleWork {
 public:
  /// Called again and again by a thread that waits, at any time, also beside regions: a fraction of a
  /// microsecond's work; false when there is nothing to do now.
  virtual bool poll(int thread) noexcept = 0;

 protected:
  ~IdleWork() = default;
};

class ThreadPool {
 public:
  /// `num_threads` counts the calling thread too; 0 means usable_cpus(). Error(kInvalidArgument) beyond 1024
  /// or below 0.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /// Runs body(thread_index) once on every thread, the caller being thread 0, and returns when all are done.
  /// The first exception thrown by a body is thrown again here, after all have ended. Regions do not nest,
  /// and only one thread at a time may open one.
  void run(FunctionRef<void(int)> body);

  /// Runs body(begin, end, thread_index) over [0, count) in chunks of `grain`, handed out as threads come
  /// free.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body);

  /// The pool's idle work from now on; it must not be null, and be cleared before it ends.
  void set_idle_work(IdleWork* work);
  /// Ends it, if it is this one: when the call returns no thread is in poll() any more. Outside of regions.
  void clear_idle_work(IdleWork* work);

  /// Inside a region: waits until every thread of the pool has called it.
  void barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
  int num_threads_;
};

}  // namespace millrace
