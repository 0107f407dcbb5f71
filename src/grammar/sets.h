// Sets of bytes and of code points.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace::grammar {

class ByteSet {
 public:
  bool test(uint8_t b) const { return (words_[b >> 6] >> (b & 63)) & 1; }
  void set(uint8_t b) { words_[b >> 6] |= uint64_t{1} << (b & 63); }
  void clear(uint8_t b) { words_[b >> 6] &= ~(uint64_t{1} << (b & 63)); }
  void set_range(uint8_t lo, uint8_t hi) {
    for (unsigned w = lo >> 6; w <= static_cast<unsigned>(hi >> 6) && lo <= hi; ++w) {
      const unsigned from = w == static_cast<unsigned>(lo >> 6) ? lo & 63u : 0;
      const unsigned to = w == static_cast<unsigned>(hi >> 6) ? hi & 63u : 63;
      words_[w] |= (~uint64_t{0} >> (63 - (to - from))) << from;
    }
  }
  ByteSet& operator|=(const ByteSet& o) {
    for (int i = 0; i < 4; ++i) words_[i] |= o.words_[i];
    return *this;
  }
  bool operator==(const ByteSet&) const = default;
  bool subset_of(const ByteSet& o) const {
    for (int i = 0; i < 4; ++i)
      if (words_[i] & ~o.words_[i]) return false;
    return true;
  }
  int count() const {
    int n = 0;
    for (uint64_t w : words_) n += std::popcount(w);
    return n;
  }
  /// Smallest member; the set must not be empty.
  uint8_t first() const {
    for (int i = 0; i < 4; ++i)
      if (words_[i]) return static_cast<uint8_t>(i * 64 + std::countr_zero(words_[i]));
    return 0;
  }
  uint64_t word(int i) const { return words_[i]; }

 private:
  std::array<uint64_t, 4> words_{};
};

inline constexpr uint32_t kMaxCodepoint = 0x10ffff;

/// A set of Unicode scalar values as sorted, disjoint, non-adjacent closed ranges. Surrogates are never
/// members.
class CodepointSet {
 public:
  using Range = std::pair<uint32_t, uint32_t>;

  CodepointSet() = default;
  CodepointSet(uint32_t lo, uint32_t hi) { add(lo, hi); }
  static CodepointSet all() { return CodepointSet(0, kMaxCodepoint); }

  void add(uint32_t lo, uint32_t hi);
  void add(const CodepointSet& o) {
    for (const auto& [lo, hi] : o.ranges_) add(lo, hi);
  }
  CodepointSet complement() const;
  CodepointSet intersect(const CodepointSet& o) const;
  bool contains(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CodepointSet&) const = default;

 private:
  void insert(uint32_t lo, uint32_t hi);
  std::vector<Range> ranges_;
};

/// One way to write the characters [lo, hi] as bytes: up to four byte ranges in a row.
struct Utf8Sequence {
  int length = 0;
  std::array<std::pair<uint8_t, uint8_t>, 4> bytes{};
};

/// Splits a range of scalar values (no surrogates inside) into byte-range sequences.
void split_utf8(uint32_t lo, uint32_t hi, std::vector<Utf8Sequence>& out);

}  // namespace millrace::grammar
