// What the next product will read first, fetched by threads that wait for others. Between two products of a
// step memory would rest: while norms and attention run, while one thread ends before the other, until all
// have begun again. One row's products are bound by memory, so that time is theirs. Which product follows
// which is learned from the step before; a wrong guess costs a little reading and nothing else.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/thread_pool.h"

namespace millrace::ops {

class Lookahead final : public IdleWork {
 public:
  /// Fetches at most `most_bytes` for each thread, by default a quarter of the second cache.
  explicit Lookahead(ThreadPool& pool, int64_t most_bytes = 0);
  ~Lookahead();
  Lookahead(const Lookahead&) = delete;
  Lookahead& operator=(const Lookahead&) = delete;

  /// What a thread reads first of a product: up to two stretches of memory, one behind the other.
  struct Beginning {
    struct Stretch {
      const std::byte* at = nullptr;
      int64_t bytes = 0;
    };
    std::array<Stretch, 2> stretches;
  };

  /// The products of a step come in the order of the step before, or of another that is then learned.
  void begin_step() { at_ = 0; }
  /// One product begins. `beginnings` [threads]: what it reads first, by thread; empty where nobody can say.
  /// From now on threads that wait fetch what the product behind it begins with.
  void product(const std::vector<Beginning>& beginnings);

  /// A few lines for the thread; false when there is nothing left. Any thread.
  bool poll(int thread) noexcept override;

 private:
  struct alignas(64) Slot {
    // Written between regions, read at any time: an address of one product with the length of another is
    // asked for in vain, and nothing more.
    std::atomic<const std::byte*> at[2] = {};
    std::atomic<int64_t> bytes[2] = {};
    std::atomic<uint64_t> product{0};
    // The thread's own.
    alignas(64) uint64_t fetched_of = 0;
    int64_t fetched = 0;
  };

  ThreadPool& pool_;
  int64_t most_bytes_;
  std::unique_ptr<Slot[]> slots_;                // [threads]
  std::vector<std::vector<Beginning>> learned_;  // [product of the step]
  size_t at_ = 0;
  uint64_t products_ = 0;
};

}  // namespace millrace::ops
