// The block ids of one cache group: reference counts, the free list, and the order in which blocks that only
// the prefix cache holds are given up.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::engine {

class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks);

  /// A free block with one reference, or -1. Never gives up a cached block: see oldest_idle().
  int32_t allocate();
  void retain(int32_t block);
  void release(int32_t block);

  /// The prefix cache's node for a block (-1: none). The cache holds one reference of its own; a block with
  /// no other is idle.
  void set_node(int32_t block, int32_t node);
  int32_t node(int32_t block) const { return entries_[at(block)].node; }
  int32_t references(int32_t block) const { return entries_[at(block)].references; }

  /// The block idle for longest, or -1.
  int32_t oldest_idle() const { return idle_head_; }
  /// All idle blocks, from the newest to the oldest: until -1.
  int32_t newest_idle() const { return idle_tail_; }
  int32_t older_idle(int32_t block) const { return entries_[at(block)].previous; }

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t idle_blocks() const { return idle_count_; }
  /// Blocks from this one on have never been handed out.
  int64_t never_used() const { return never_used_; }
  /// What allocations can have, idle blocks included.
  int64_t available() const { return free_blocks() + idle_count_; }

 private:
  struct Entry {
    int32_t references = 0;
    int32_t node = -1;
    int32_t previous = -1, next = -1;  // in the list of idle blocks
    bool idle = false;
  };
  static size_t at(int32_t block) { return static_cast<size_t>(block); }
  void update_idle(int32_t block);

  std::vector<Entry> entries_;
  std::vector<int32_t> free_;
  int32_t idle_head_ = -1, idle_tail_ = -1;
  int64_t idle_count_ = 0;
  int64_t never_used_ = 0;
};

}  // namespace millrace::engine
