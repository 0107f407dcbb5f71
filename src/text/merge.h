// The merge loop that byte-pair encoders share: of all adjacent pairs that the vocabulary can merge, take the
// one of smallest rank (leftmost among equals) until none is left. Short words scan, long ones keep a heap,
// so that the time is O(n log n) for a word of n symbols.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "text/hash.h"

namespace millrace::text {

struct MergeSymbol {
  int32_t id;      ///< token, or negative: not in the vocabulary
  uint32_t begin;  ///< first byte in the text
  uint32_t end;    ///< one past the last
};

/// Buffers that live from word to word.
struct MergeScratch {
  std::vector<MergeSymbol> symbols;
  std::vector<Merge> merges;  ///< of symbol i with its successor
  std::vector<uint32_t> next, prev;
  std::vector<uint64_t> heap;
};

namespace internal {

template <typename Find>
void merge_short(MergeScratch& s, const Find& find) {
  auto& symbols = s.symbols;
  auto& merges = s.merges;
  size_t count = symbols.size();
  merges.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == UINT32_MAX) break;
    symbols[best] = {merges[best].id, symbols[best].begin, symbols[best + 1].end};
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    --count;
    merges[best] = best + 1 < count ? find(symbols[best], symbols[best + 1]) : Merge{};
    if (best > 0) merges[best - 1] = find(symbols[best - 1], symbols[best]);
  }
}

template <typename Find>
void merge_long(MergeScratch& s, const Find& find) {
  constexpr uint32_t kNone = UINT32_MAX;
  auto& symbols = s.symbols;
  auto& merges = s.merges;
  const auto count = static_cast<uint32_t>(symbols.size());
  merges.assign(count, Merge{});
  s.next.resize(count);
  s.prev.resize(count);
  s.heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    s.next[i] = i + 1 < count ? i + 1 : kNone;
    s.prev[i] = i > 0 ? i - 1 : kNone;
    if (i + 1 == count) break;
    merges[i] = find(symbols[i], symbols[i + 1]);
    if (merges[i].rank != UINT32_MAX) s.heap.push_back(static_cast<uint64_t>(merges[i].rank) << 32 | i);
  }
  const std::greater<uint64_t> smallest_first;
  std::make_heap(s.heap.begin(), s.heap.end(), smallest_first);
  const auto refresh = [&](uint32_t i) {
    const uint32_t right = s.next[i];
    merges[i] = right == kNone ? Merge{} : find(symbols[i], symbols[right]);
    if (merges[i].rank == UINT32_MAX) return;
    s.heap.push_back(static_cast<uint64_t>(merges[i].rank) << 32 | i);
    std::push_heap(s.heap.begin(), s.heap.end(), smallest_first);
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), smallest_first);
    const uint64_t top = s.heap.back();
    s.heap.pop_back();
    const auto left = static_cast<uint32_t>(top);
    // An entry is stale when its symbol has gone or has a new pair since.
    if (merges[left].rank != static_cast<uint32_t>(top >> 32)) continue;
    const uint32_t right = s.next[left];
    symbols[left] = {merges[left].id, symbols[left].begin, symbols[right].end};
    merges[right] = Merge{};
    s.next[left] = s.next[right];
    if (s.next[left] != kNone) s.prev[s.next[left]] = left;
    refresh(left);
    if (s.prev[left] != kNone) refresh(s.prev[left]);
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i != kNone; i = s.next[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace internal

/// Merges scratch.symbols in place. `find(left, right)` gives the merge of two adjacent symbols.
template <typename Find>
void merge_symbols(MergeScratch& scratch, const Find& find) {
  constexpr size_t kShort = 48;
  if (scratch.symbols.size() < 2) return;
  if (scratch.symbols.size() <= kShort)
    internal::merge_short(scratch, find);
  else
    internal::merge_long(scratch, find);
}

}  // namespace millrace::text
