#include "grammar/plain_room.h"

#include <algorithm>

namespace millrace::grammar {
namespace {

struct Range {
  uint32_t lo, hi;
};
// Plain characters, in ranges. Surrogates are no characters.
constexpr Range kPlain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x2027}, {0x202a, 0xd7ff}, {0xe000, 0x10ffff}};

}  // namespace

bool is_plain(uint32_t c) {
  return std::any_of(std::begin(kPlain), std::end(kPlain),
                     [&](const Range& r) { return c >= r.lo && c <= r.hi; });
}

std::vector<uint16_t> plain_rooms(const Dfa& dfa, const std::vector<uint8_t>* alive, Budget& budget) {
  const uint32_t n = dfa.size();
  std::vector<std::vector<uint32_t>> from(n);  // over edges with plain characters
  std::vector<uint32_t> targets_left(n, 0), queue;
  constexpr uint32_t kFar = 0xffff;
  std::vector<uint32_t> shortest(n, kFar), longest(n, 0);
  for (uint32_t s = 0; s < n; ++s) {
    bool complete = true;
    uint32_t last = Dfa::kDead;
    for (const Range& r : kPlain) {
      uint32_t next = r.lo;
      for (const auto& e : dfa.out(s)) {
        if (e.hi < r.lo || e.lo > r.hi) continue;
        if (e.target != last) {
          from[e.target].push_back(s);
          ++targets_left[s];
          last = e.target;
        }
        if (alive && !(*alive)[e.target]) continue;
        if (e.lo <= next) next = std::max(next, e.hi + 1);
      }
      complete &= next > r.hi;
    }
    if (!complete) {
      shortest[s] = 0;
      queue.push_back(s);
    }
  }
  budget.tick(dfa.edges.size() + n);
  // Distance to the nearest state that lacks a character.
  for (size_t i = 0; i < queue.size(); ++i)
    for (uint32_t p : from[queue[i]])
      if (shortest[p] == kFar) {
        shortest[p] = std::min(kFar - 1, shortest[queue[i]] + 1);
        queue.push_back(p);
      }
  // Longest way; states that a loop can be reached from keep edges that are never taken off.
  std::vector<uint32_t> ends;
  for (uint32_t s = 0; s < n; ++s)
    if (targets_left[s] == 0) ends.push_back(s);
  std::vector<uint8_t> bounded(n, 0);
  for (size_t i = 0; i < ends.size(); ++i) {
    bounded[ends[i]] = 1;
    for (uint32_t p : from[ends[i]]) {
      longest[p] = std::max(longest[p], longest[ends[i]] + 1);
      if (--targets_left[p] == 0) ends.push_back(p);
    }
  }
  std::vector<uint16_t> room(n, kNoTelling);
  for (uint32_t s = 0; s < n; ++s) {
    if (shortest[s] == kFar) {
      room[s] = kEndless;
    } else if (bounded[s] && shortest[s] == longest[s] && shortest[s] < kEndless) {
      room[s] = static_cast<uint16_t>(shortest[s]);
    }
  }
  return room;
}

}  // namespace millrace::grammar
