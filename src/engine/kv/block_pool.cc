#include "engine/kv/block_pool.h"

#include <algorithm>

#include "core/error.h"

namespace millrace::engine {

BlockPool::BlockPool(int64_t num_blocks) : entries_(static_cast<size_t>(num_blocks)) {
  free_.reserve(static_cast<size_t>(num_blocks));
  // Low ids are handed out first, so that a lightly used cache touches little memory.
  for (int64_t b = num_blocks; b-- > 0;) free_.push_back(static_cast<int32_t>(b));
}

int32_t BlockPool::allocate() {
  if (free_.empty()) return -1;
  const int32_t block = free_.back();
  free_.pop_back();
  entries_[at(block)].references = 1;
  never_used_ = std::max(never_used_, int64_t{block} + 1);
  return block;
}

void BlockPool::retain(int32_t block) {
  Entry& e = entries_[at(block)];
  check(e.references > 0, "a free cache block {} was retained", block);
  ++e.references;
  update_idle(block);
}

void BlockPool::release(int32_t block) {
  Entry& e = entries_[at(block)];
  check(e.references > 0, "cache block {} was released twice", block);
  if (--e.references == 0) free_.push_back(block);
  update_idle(block);
}

void BlockPool::set_node(int32_t block, int32_t node) {
  entries_[at(block)].node = node;
  update_idle(block);
}

void BlockPool::update_idle(int32_t block) {
  Entry& e = entries_[at(block)];
  const bool idle = e.node >= 0 && e.references == 1;
  if (idle == e.idle) return;
  e.idle = idle;
  if (idle) {
    e.previous = idle_tail_;
    e.next = -1;
    (idle_tail_ >= 0 ? entries_[at(idle_tail_)].next : idle_head_) = block;
    idle_tail_ = block;
    ++idle_count_;
  } else {
    (e.previous >= 0 ? entries_[at(e.previous)].next : idle_head_) = e.next;
    (e.next >= 0 ? entries_[at(e.next)].previous : idle_tail_) = e.previous;
    --idle_count_;
  }
}

}  // namespace millrace::engine
