#include "grammar/sets.h"

#include <algorithm>

namespace millrace::grammar {

void CodepointSet::insert(uint32_t lo, uint32_t hi) {
  if (lo > hi) return;
  // Ranges that touch [lo, hi] or lie right beside it melt into one.
  auto first = std::lower_bound(ranges_.begin(), ranges_.end(), lo,
                                [](const Range& r, uint32_t v) { return r.second + 1 < v; });
  auto last = first;
  while (last != ranges_.end() && last->first <= hi + 1) {
    lo = std::min(lo, last->first);
    hi = std::max(hi, last->second);
    ++last;
  }
  first = ranges_.erase(first, last);
  ranges_.insert(first, {lo, hi});
}

void CodepointSet::add(uint32_t lo, uint32_t hi) {
  hi = std::min(hi, kMaxCodepoint);
  if (lo > hi) return;
  if (lo < 0xd800) insert(lo, std::min<uint32_t>(hi, 0xd7ff));
  if (hi > 0xdfff) insert(std::max<uint32_t>(lo, 0xe000), hi);
}

CodepointSet CodepointSet::complement() const {
  CodepointSet out;
  uint32_t next = 0;
  for (const auto& [lo, hi] : ranges_) {
    if (lo > next) out.add(next, lo - 1);
    next = hi + 1;
  }
  if (next <= kMaxCodepoint) out.add(next, kMaxCodepoint);
  return out;
}

CodepointSet CodepointSet::intersect(const CodepointSet& o) const {
  CodepointSet out;
  size_t i = 0, j = 0;
  while (i < ranges_.size() && j < o.ranges_.size()) {
    const uint32_t lo = std::max(ranges_[i].first, o.ranges_[j].first);
    const uint32_t hi = std::min(ranges_[i].second, o.ranges_[j].second);
    if (lo <= hi) out.ranges_.push_back({lo, hi});
    (ranges_[i].second < o.ranges_[j].second) ? ++i : ++j;
  }
  return out;
}

bool CodepointSet::contains(uint32_t c) const {
  auto it = std::lower_bound(ranges_.begin(), ranges_.end(), c,
                             [](const Range& r, uint32_t v) { return r.second < v; });
  return it != ranges_.end() && it->first <= c;
}

namespace {

void split_equal_length(uint32_t lo, uint32_t hi, int length, std::vector<Utf8Sequence>& out) {
  // Cut [lo, hi] until all continuation positions below the first differing one are whole (0x80..0xbf).
  for (int tail = 1; tail < length; ++tail) {
    const uint32_t mask = (uint32_t{1} << (6 * tail)) - 1;
    if ((lo & ~mask) == (hi & ~mask)) continue;
    if (lo & mask) {
      split_equal_length(lo, lo | mask, length, out);
      split_equal_length((lo | mask) + 1, hi, length, out);
      return;
    }
    if ((hi & mask) != mask) {
      split_equal_length(lo, (hi & ~mask) - 1, length, out);
      split_equal_length(hi & ~mask, hi, length, out);
      return;
    }
  }
  static constexpr uint8_t kLead[5] = {0, 0x00, 0xc0, 0xe0, 0xf0};
  Utf8Sequence s;
  s.length = length;
  for (int i = 0; i < length; ++i) {
    const int shift = 6 * (length - 1 - i);
    const uint8_t base = i == 0 ? kLead[length] : 0x80;
    const uint32_t keep = i == 0 ? 0xff : 0x3f;
    s.bytes[i] = {static_cast<uint8_t>(base | ((lo >> shift) & keep)),
                  static_cast<uint8_t>(base | ((hi >> shift) & keep))};
  }
  out.push_back(s);
}

}  // namespace

void split_utf8(uint32_t lo, uint32_t hi, std::vector<Utf8Sequence>& out) {
  static constexpr uint32_t kLast[5] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
  for (int length = 1; length <= 4; ++length) {
    const uint32_t first = length == 1 ? 0 : kLast[length - 1] + 1;
    const uint32_t a = std::max(lo, first), b = std::min(hi, kLast[length]);
    if (a <= b) split_equal_length(a, b, length, out);
  }
}

}  // namespace millrace::grammar
