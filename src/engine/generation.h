// One request on its way: the bounded queue from the engine's thread to whoever reads, and the way back
// (cancel).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "engine/request.h"

namespace millrace::engine {

/// Held by the reader as a shared_ptr; when the last reader lets go, the engine cancels the request. All
/// members may be called from any thread.
class Generation {
 public:
  Generation(uint64_t id, size_t queue_limit) : id_(id), queue_limit_(queue_limit) {}

  uint64_t id() const { return id_; }

  /// Takes the next event, waiting up to `timeout`; false when none came. After kDone or kError nothing
  /// comes.
  bool next(Event& out, std::chrono::milliseconds timeout);
  bool try_next(Event& out);

  /// Ends the request; its blocks are back within one step. Events still queued can be read; kError follows.
  void cancel();

  /// Called on the engine's thread when the queue was empty and is not any more (and at once when it is not
  /// now). It must only hand the work on, never block. Replaces the one before; empty: none.
  void set_listener(std::function<void()> listener);

  /// kDone or kError has been taken.
  bool finished() const;

  // The engine's side.

  /// Adds an event (also beyond the limit: the engine asks full() before it computes more).
  void push(Event event);
  /// The reader is behind by `queue_limit` events: nothing more is computed for it until it has read half of
  /// them.
  bool full() const;
  bool cancel_requested() const { return cancel_.load(std::memory_order_relaxed); }
  /// Called when cancel() is, to wake the engine.
  void set_waker(std::function<void()> waker);

 private:
  const uint64_t id_;
  const size_t queue_limit_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> queue_;
  std::function<void()> listener_;
  std::function<void()> waker_;
  bool closed_ = false;    // kDone or kError was pushed
  bool finished_ = false;  // ... and taken
  bool full_ = false;
  std::atomic<bool> cancel_{false};
};

}  // namespace millrace::engine
