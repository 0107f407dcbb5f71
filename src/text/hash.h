// Two flat hash tables that tokenizers live on: text to id, and pair of ids to merge. Open addressing, filled
// once.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace millrace::text {

inline uint64_t mix_hash(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

/// Hash of bytes. Not for adversaries: tables are filled from the vocabulary only, and caches are
/// direct-mapped.
inline uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15ULL;
  const char* p = bytes.data();
  size_t left = bytes.size();
  uint64_t hash = mix_hash(left + 0x2545f4914f6cdd1dULL, kMultiplier);
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    hash = mix_hash(hash ^ word, kMultiplier);
  }
  uint64_t word = 0;
  if (left != 0) std::memcpy(&word, p, left);
  return mix_hash(hash ^ word, 0xd6e8feb86659fd93ULL);
}

/// From text to id. Keys are views: their owner must outlive the map and not move.
class TextMap {
 public:
  void reserve(size_t count) {
    slots_.assign(std::bit_ceil(count * 2 + 16), Slot{});
    mask_ = slots_.size() - 1;
  }

  /// The first id of a text stays; returns false for a repeated one.
  bool insert(std::string_view key, int32_t id) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    const uint64_t hash = hash_bytes(key);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.id < 0) {
        slot = {key.data(), static_cast<uint32_t>(key.size()), static_cast<uint32_t>(hash >> 32), id};
        ++size_;
        return true;
      }
      if (slot.tag == static_cast<uint32_t>(hash >> 32) && slot.key() == key) return false;
    }
  }

  /// Id of the text, or -1.
  int32_t find(std::string_view key) const {
    if (slots_.empty()) return -1;
    const uint64_t hash = hash_bytes(key);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id < 0) return -1;
      if (slot.tag == static_cast<uint32_t>(hash >> 32) && slot.key() == key) return slot.id;
    }
  }

  size_t size() const { return size_; }

 private:
  struct Slot {
    const char* data = nullptr;
    uint32_t length = 0;
    uint32_t tag = 0;
    int32_t id = -1;
    std::string_view key() const { return {data, length}; }
  };

  void grow() {
    std::vector<Slot> old = std::move(slots_);
    reserve(old.size());
    size_ = 0;
    for (const Slot& slot : old)
      if (slot.id >= 0) insert(slot.key(), slot.id);
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

/// From a pair of adjacent ids to their merge.
struct Merge {
  uint32_t rank = UINT32_MAX;  ///< smaller goes first; UINT32_MAX: no such merge
  int32_t id = -1;             ///< the token that they become
};

class PairMap {
 public:
  void reserve(size_t count) {
    slots_.assign(std::bit_ceil(count * 2 + 16), Slot{});
    mask_ = slots_.size() - 1;
  }

  /// The first rank of a pair stays. `reserve` must have counted it.
  void insert(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = make_key(left, right);
    for (size_t at = place(key);; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.key == key) return;
      if (slot.key == kEmpty) {
        slot = {key, merge};
        return;
      }
    }
  }

  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = make_key(left, right);
    for (size_t at = place(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.merge;
      if (slot.key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t make_key(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }
  size_t place(uint64_t key) const { return mix_hash(key, 0x9e3779b97f4a7c15ULL) & mask_; }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace millrace::text
