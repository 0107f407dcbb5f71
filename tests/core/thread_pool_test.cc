#include "core/thread_pool.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "core/cpu.h"
#include "core/error.h"
#include "testing/testing.h"

namespace millrace {
namespace {

TEST(ThreadPool, EveryThreadRunsOnceInEveryRegion) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int region = 0; region < 200; ++region) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(threads));
      pool.run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
      for (auto& c : calls) ASSERT_EQ(c.load(), 1);
    }
  }
}

TEST(ThreadPool, ParallelForCoversTheRangeExactly) {
  ThreadPool pool(3);
  for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
    for (int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (auto& h : hits) ASSERT_EQ(h.load(), 1);
    }
  }
}

TEST(ThreadPool, BarrierSeparatesPhases) {
  ThreadPool pool(4);
  std::atomic<int> first{0};
  std::atomic<bool> early{false};
  for (int round = 0; round < 50; ++round) {
    first = 0;
    pool.run([&](int) {
      ++first;
      pool.barrier();
      if (first != 4) early = true;
      pool.barrier();
    });
  }
  EXPECT_FALSE(early);
}

class CountingWork : public IdleWork {
 public:
  bool poll(int thread) noexcept override {
    if (thread == 0) ++by_caller;
    ++calls;
    return calls % 2 == 0;
  }
  std::atomic<int64_t> calls{0}, by_caller{0};
};

TEST(ThreadPool, ThreadsThatWaitDoIdleWork) {
  ThreadPool pool(2);
  CountingWork work, other;
  pool.set_idle_work(&work);
  // The caller is done at once and waits for the other thread, which waits for the work to be called: threads
  // that share a core do not spin, so nothing is asked for where there is only one.
  const bool spins = usable_cpus() >= 2;
  for (int region = 0; region < 20; ++region)
    pool.run([&](int thread) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (thread == 1 && spins && work.by_caller == 0 && std::chrono::steady_clock::now() < end) {
      }
    });
  EXPECT_EQ(work.by_caller > 0, spins);
  pool.clear_idle_work(&other);  // not the pool's
  pool.set_idle_work(&other);
  pool.clear_idle_work(&work);
  pool.clear_idle_work(&other);
  const int64_t calls = work.calls + other.calls;
  for (int region = 0; region < 20; ++region) pool.run([](int) {});
  EXPECT_EQ(work.calls + other.calls, calls);
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.run([](int) { fail(ErrorCode::kInvalidArgument, "no"); }), Error);
  std::atomic<int> ran{0};
  pool.run([&](int) { ++ran; });
  EXPECT_EQ(ran, 2);
}

TEST(ThreadPool, TwoRegionsAtOnceAreAnErrorAndNoDeadlock) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run([&](int) { pool.run([](int) {}); }), Error);
  // From another thread, too; and the first goes on undisturbed.
  std::atomic<int> refused{0}, ran{0};
  pool.run([&](int thread) {
    ++ran;
    if (thread != 0) return;
    std::thread([&] {
      try {
        pool.run([](int) {});
      } catch (const Error&) {
        ++refused;
      }
    }).join();
  });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(ran, 3);
  pool.run([&](int) { ++ran; });
  EXPECT_EQ(ran, 6);
}

TEST(ThreadPool, RefusesNonsense) {
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(100000), Error);
}

TEST(Cpu, QuotaOfACgroup) {
  EXPECT_EQ(parse_cpu_max("max 100000\n"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("200000 100000\n"), 2.0);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 0.5);
  EXPECT_EQ(parse_cpu_max(""), std::nullopt);
  EXPECT_EQ(parse_cpu_max("0 0"), std::nullopt);
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_GT(available_memory_bytes(), 0u);
}

}  // namespace
}  // namespace millrace
