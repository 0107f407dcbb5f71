// Words that were tokenised lately. Text repeats its words, so most of them never reach the merge loop.
// Direct-mapped: a collision overwrites, and nothing ever grows.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/hash.h"
#include "text/tokenizer.h"

namespace millrace::text {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 26;
  static constexpr size_t kMaxIds = 7;

  /// Appends the ids of `word` and returns true when it is known; else remembers where it would stand for
  /// `put`.
  bool get(std::string_view word, std::vector<TokenId>& out) {
    if (word.size() > kMaxBytes) return false;
    if (slots_.empty()) slots_.resize(kSlots);
    const Slot& slot = slots_[hash_bytes(word) % kSlots];
    if (slot.length != word.size() || std::memcmp(slot.bytes, word.data(), word.size()) != 0) return false;
    out.insert(out.end(), slot.ids, slot.ids + slot.count);
    return true;
  }

  void put(std::string_view word, const TokenId* ids, size_t count) {
    if (word.size() > kMaxBytes || count > kMaxIds || slots_.empty()) return;
    Slot& slot = slots_[hash_bytes(word) % kSlots];
    slot.length = static_cast<uint8_t>(word.size());
    slot.count = static_cast<uint8_t>(count);
    std::memcpy(slot.bytes, word.data(), word.size());
    for (size_t i = 0; i < count; ++i) slot.ids[i] = ids[i];
  }

 private:
  static constexpr size_t kSlots = size_t{1} << 14;
  struct Slot {
    uint8_t length = 0xff;
    uint8_t count = 0;
    char bytes[kMaxBytes];
    TokenId ids[kMaxIds];
  };
  static_assert(sizeof(Slot) == 56);

  std::vector<Slot> slots_;
};

}  // namespace millrace::text
