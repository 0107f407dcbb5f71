#include "core/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/cpu.h"
#include "core/error.h"

namespace millrace {
namespace {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// About 50 microseconds: longer than the serial gaps inside a step, shorter than what an idle server would
// notice.
constexpr auto kSpinTime = std::chrono::microseconds(50);

struct Spinning {
  bool allowed;
  const std::atomic<IdleWork*>& idle_work;
  int thread;
};

/// Waits until `word` differs from `seen`: spins first, with the idle work if there is any, then parks in the
/// kernel. Returns the new value.
template <typename T>
T wait_for_change(const std::atomic<T>& word, T seen, const Spinning& spinning) {
  if (spinning.allowed) {
    const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
    for (;;) {
      for (int i = 0; i < 64; ++i) {
        const T now = word.load(std::memory_order_acquire);
        if (now != seen) return now;
        IdleWork* const work = spinning.idle_work.load(std::memory_order_acquire);
        if (!work || !work->poll(spinning.thread)) relax();
      }
      if (std::chrono::steady_clock::now() > deadline) break;
    }
  }
  T now;
  while ((now = word.load(std::memory_order_acquire)) == seen) word.wait(seen, std::memory_order_acquire);
  return now;
}

}  // namespace

struct ThreadPool::State {
  // Each on a cache line of its own: workers poll one while the others are written.
  alignas(64) std::atomic<uint32_t> epoch{0};  // grows by one per region; workers wait for it
  alignas(64) std::atomic<int> running{0};     // workers that have not finished the region
  alignas(64) std::atomic<uint32_t> barrier_generation{0};
  alignas(64) std::atomic<int> barrier_arrived{0};
  std::atomic<bool> stopping{false};
  std::atomic<bool> open{false};  // a region is under way
  const FunctionRef<void(int)>* body = nullptr;
  bool may_spin = true;
  std::atomic<IdleWork*> idle_work{nullptr};
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> workers;

  void call(int thread) {
    try {
      (*body)(thread);
    } catch (...) {
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }

  Spinning spinning(int thread) const { return {may_spin, idle_work, thread}; }

  void worker_loop(int thread) {
    uint32_t seen = 0;
    for (;;) {
      seen = wait_for_change(epoch, seen, spinning(thread));
      if (stopping.load(std::memory_order_relaxed)) return;
      call(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  require(num_threads >= 0 && num_threads <= 1024, ErrorCode::kInvalidArgument,
          "thread count {} is out of range: expected 0 (automatic) to 1024", num_threads);
  num_threads_ = num_threads ? num_threads : usable_cpus();
  // With more threads than cores a spinning thread would take the time of one that has work.
  state_->may_spin = num_threads_ <= usable_cpus();
  state_->workers.reserve(static_cast<size_t>(num_threads_ - 1));
  for (int i = 1; i < num_threads_; ++i) state_->workers.emplace_back([this, i] { state_->worker_loop(i); });
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_relaxed);
  state_->epoch.fetch_add(1, std::memory_order_release);
  state_->epoch.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

void ThreadPool::run(FunctionRef<void(int)> body) {
  State& s = *state_;
  if (num_threads_ > 1) {
    // Else both would wait for workers that serve only one of them.
    check(!s.open.exchange(true, std::memory_order_acquire),
          "a region of a thread pool was opened while another was under way");
  }
  s.body = &body;
  if (num_threads_ > 1) {
    s.running.store(num_threads_ - 1, std::memory_order_relaxed);
    s.epoch.fetch_add(1, std::memory_order_release);
    s.epoch.notify_all();
  }
  s.call(0);
  int left = num_threads_ > 1 ? s.running.load(std::memory_order_acquire) : 0;
  while (left != 0) left = wait_for_change(s.running, left, s.spinning(0));
  s.open.store(false, std::memory_order_release);
  if (s.error) {
    std::exception_ptr error;
    std::swap(error, s.error);
    std::rethrow_exception(error);
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  if (count <= grain || num_threads_ == 1) {
    body(0, count, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  run([&](int thread) {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, std::min(count, begin + grain), thread);
    }
  });
}

void ThreadPool::set_idle_work(IdleWork* work) { state_->idle_work.store(work, std::memory_order_release); }

void ThreadPool::clear_idle_work(IdleWork* work) {
  IdleWork* expected = work;
  if (!state_->idle_work.compare_exchange_strong(expected, nullptr)) return;
  // Whoever was in poll() is out of it when it has been through a region.
  run([](int) {});
}

void ThreadPool::barrier() {
  if (num_threads_ == 1) return;
  State& s = *state_;
  const uint32_t generation = s.barrier_generation.load(std::memory_order_acquire);
  if (s.barrier_arrived.fetch_add(1, std::memory_order_acq_rel) == num_threads_ - 1) {
    s.barrier_arrived.store(0, std::memory_order_relaxed);
    s.barrier_generation.fetch_add(1, std::memory_order_release);
    s.barrier_generation.notify_all();
  } else {
    // Which thread this is only its own body knows, so it just waits.
    static const std::atomic<IdleWork*> none{nullptr};
    wait_for_change(s.barrier_generation, generation, Spinning{s.may_spin, none, 0});
  }
}

}  // namespace millrace
