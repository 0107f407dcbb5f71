// Masks made before they are asked for: after a grammar has been compiled, a thread of low priority walks the
// texts that a model is likely to write and leaves the masks of the places on the way in the vocabulary's
// cache. A request that comes earlier loses nothing: it makes the masks that are not there yet itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "grammar/matcher.h"

namespace millrace::grammar {

struct WarmLimits {
  size_t places = 4000;  ///< configurations whose masks are made
  double seconds = 1;    ///< processor time
  const std::atomic<bool>* stop = nullptr;
};

struct WarmResult {
  size_t places = 0;
  double seconds = 0;     ///< processor time of the calling thread
  bool complete = false;  ///< nothing was left when it stopped
};

/// Makes the masks of a grammar's places in order of their distance from the start of the text: properties in
/// the order of the schema before others, one and two items of an array, strings in plain characters.
WarmResult warm(const std::shared_ptr<const CompiledGrammar>& grammar, const WarmLimits& limits = {});

/// Warms grammars one after the other on a thread of its own, the newest first. Thread-safe.
class Warmer {
 public:
  explicit Warmer(WarmLimits limits = {});
  ~Warmer();
  /// Never blocks. Beyond kMostWaiting grammars the oldest is forgotten.
  void add(std::shared_ptr<const CompiledGrammar> grammar);
  /// Waits until nothing is left to do.
  void wait_idle();

 private:
  static constexpr size_t kMostWaiting = 64;
  void work();

  WarmLimits limits_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::shared_ptr<const CompiledGrammar>> waiting_;
  std::atomic<bool> stopping_{false};
  bool busy_ = false;
  std::thread thread_;
};

}  // namespace millrace::grammar
