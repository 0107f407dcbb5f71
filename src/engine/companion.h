// One thread beside the step: what the next tokens' masks need is computed while the model computes their
// logits.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace millrace::engine {

/// Runs one job at a time on a thread of its own. Started on the first job.
class Companion {
 public:
  ~Companion() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  /// Begins a job, which must not throw; the one before must have been waited for.
  void start(std::function<void()> job) {
    if (!thread_.joinable()) thread_ = std::thread([this] { main(); });
    {
      const std::lock_guard lock(mutex_);
      job_ = std::move(job);
    }
    changed_.notify_all();
  }

  /// Waits for the job's end; at once when there is none.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !job_; });
  }

 private:
  void main() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || job_; });
      if (!job_) return;
      lock.unlock();
      job_();
      lock.lock();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace millrace::engine
