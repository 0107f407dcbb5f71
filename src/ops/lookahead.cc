#include "ops/lookahead.h"

#include <unistd.h>

#include <algorithm>

namespace millrace::ops {
namespace {

constexpr int64_t kLine = 64;
/// Asked for at a time, so that a thread looks for its next work often enough.
constexpr int64_t kLinesAtATime = 8;

int64_t quarter_of_second_cache() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (bytes > 0) return bytes / 4;
#endif
  return 64 * 1024;
}

}  // namespace

Lookahead::Lookahead(ThreadPool& pool, int64_t most_bytes)
    : pool_(pool),
      most_bytes_(most_bytes > 0 ? most_bytes : quarter_of_second_cache()),
      slots_(std::make_unique<Slot[]>(static_cast<size_t>(pool.num_threads()))) {
  pool_.set_idle_work(this);
}

Lookahead::~Lookahead() { pool_.clear_idle_work(this); }

void Lookahead::product(const std::vector<Beginning>& beginnings) {
  if (learned_.size() <= at_) learned_.resize(at_ + 1);
  learned_[at_] = beginnings;
  const size_t next = at_ + 1 < learned_.size() ? at_ + 1 : 0;
  ++at_;
  ++products_;
  const std::vector<Beginning>& coming = learned_[next];
  for (size_t t = 0; t < static_cast<size_t>(pool_.num_threads()); ++t) {
    const Beginning beginning = t < coming.size() ? coming[t] : Beginning();
    Slot& slot = slots_[t];
    int64_t left = most_bytes_;
    for (size_t i = 0; i < beginning.stretches.size(); ++i) {
      const int64_t bytes = std::min(left, beginning.stretches[i].bytes);
      slot.at[i].store(beginning.stretches[i].at, std::memory_order_relaxed);
      slot.bytes[i].store(bytes, std::memory_order_relaxed);
      left -= bytes;
    }
    slot.product.store(products_, std::memory_order_relaxed);
  }
}

bool Lookahead::poll(int thread) noexcept {
  Slot& slot = slots_[static_cast<size_t>(thread)];
  const uint64_t product = slot.product.load(std::memory_order_relaxed);
  if (product != slot.fetched_of) {
    slot.fetched_of = product;
    slot.fetched = 0;
  }
  int64_t from = slot.fetched;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t bytes = slot.bytes[i].load(std::memory_order_relaxed);
    if (from >= bytes) {
      from -= bytes;
      continue;
    }
    const auto* line = reinterpret_cast<const char*>(slot.at[i].load(std::memory_order_relaxed)) + from;
    const int64_t lines = std::min(kLinesAtATime, (bytes - from + kLine - 1) / kLine);
    for (int64_t l = 0; l < lines; ++l, line += kLine) __builtin_prefetch(line, 0, 2);
    slot.fetched += lines * kLine;
    return true;
  }
  return false;
}

}  // namespace millrace::ops
