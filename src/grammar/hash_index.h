// Open-addressing hash tables of numbers: an index of interned things, and a map from numbers to numbers.
// Interning and remembered steps are most of what a machine does, and node-based maps made each of them an
// allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::grammar {

/// Ids by the hash of what they stand for. Nothing is ever taken out but everything at once.
class HashIndex {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  void clear() {
    slots_.clear();
    count_ = 0;
  }
  size_t size() const { return count_; }
  size_t bytes() const { return slots_.size() * sizeof(Slot); }

  /// The id inserted under `hash` for which same(id) holds; kNone when there is none.
  template <typename Same>
  uint32_t find(uint64_t hash, Same&& same) const {
    if (slots_.empty()) return kNone;
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask; slots_[at].id != kNone; at = (at + 1) & mask)
      if (slots_[at].tag == tag(hash) && same(slots_[at].id)) return slots_[at].id;
    return kNone;
  }
  void insert(uint64_t hash, uint32_t id) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    put({hash, id, tag(hash)});
    ++count_;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t id = kNone;
    uint32_t tag = 0;
  };
  static uint32_t tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  void put(const Slot& slot) {
    const size_t mask = slots_.size() - 1;
    size_t at = slot.hash & mask;
    while (slots_[at].id != kNone) at = (at + 1) & mask;
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.id != kNone) put(s);
  }
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

/// A map from numbers that are not ~0 to numbers.
class NumberMap {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  void clear() {
    slots_.clear();
    count_ = 0;
  }
  size_t size() const { return count_; }
  size_t bytes() const { return slots_.size() * sizeof(Slot); }
  /// kNone when the key is not there.
  uint32_t find(uint64_t key) const {
    if (slots_.empty()) return kNone;
    const size_t mask = slots_.size() - 1;
    for (size_t at = mixed(key) & mask; slots_[at].key != kFree; at = (at + 1) & mask)
      if (slots_[at].key == key) return slots_[at].value;
    return kNone;
  }
  /// The key must not be there yet.
  void insert(uint64_t key, uint32_t value) {
    if ((count_ + 1) * 2 > slots_.size()) {
      std::vector<Slot> old(slots_.empty() ? 256 : slots_.size() * 2);
      old.swap(slots_);
      for (const Slot& s : old)
        if (s.key != kFree) put(s);
    }
    put({key, value});
    ++count_;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    uint32_t value = 0;
  };
  static uint64_t mixed(uint64_t key) {
    key *= 0x9e3779b97f4a7c15ULL;
    return key ^ key >> 32;
  }
  void put(const Slot& slot) {
    const size_t mask = slots_.size() - 1;
    size_t at = mixed(slot.key) & mask;
    while (slots_[at].key != kFree) at = (at + 1) & mask;
    slots_[at] = slot;
  }
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace millrace::grammar
