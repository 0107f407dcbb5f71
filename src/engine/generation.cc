#include "engine/generation.h"

namespace millrace::engine {

bool Generation::next(Event& out, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!ready_.wait_for(lock, timeout, [&] { return !queue_.empty(); })) return false;
  lock.unlock();
  return try_next(out);
}

bool Generation::try_next(Event& out) {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return false;
    out = std::move(queue_.front());
    queue_.pop_front();
    if (out.kind == Event::Kind::kDone || out.kind == Event::Kind::kError) finished_ = true;
    if (full_ && queue_.size() <= queue_limit_ / 2) {
      full_ = false;
      wake = waker_;
    }
  }
  if (wake) wake();
  return true;
}

void Generation::cancel() {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    cancel_.store(true, std::memory_order_relaxed);
    wake = waker_;
  }
  if (wake) wake();
}

void Generation::set_listener(std::function<void()> listener) {
  bool waiting = false;
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
    waiting = !queue_.empty();
    if (waiting) call = listener_;
  }
  if (call) call();
}

bool Generation::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void Generation::push(Event event) {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = event.kind == Event::Kind::kDone || event.kind == Event::Kind::kError;
    if (queue_.empty()) call = listener_;
    queue_.push_back(std::move(event));
    if (queue_.size() >= queue_limit_) full_ = true;
  }
  ready_.notify_one();
  if (call) call();
}

bool Generation::full() const {
  const std::lock_guard lock(mutex_);
  return full_;
}

void Generation::set_waker(std::function<void()> waker) {
  const std::lock_guard lock(mutex_);
  waker_ = std::move(waker);
}

}  // namespace millrace::engine
