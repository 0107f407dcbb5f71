#include "text/byte_trie.h"

#include <algorithm>

namespace millrace::text {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> keys) {
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    size_t begin, end, depth;
  };
  // Breadth first: ranges[i] are the keys below node i, so the children of a node get adjacent numbers.
  std::vector<Range> ranges = {{0, keys.size(), 0}};
  nodes_.emplace_back();
  labels_.push_back(0);
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && keys[begin].first.size() == depth; ++begin)
      if (depth > 0 && nodes_[node].value < 0) nodes_[node].value = keys[begin].second;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char label = keys[begin].first[depth];
      size_t next = begin;
      while (next < end && keys[next].first[depth] == label) ++next;
      ranges.push_back({begin, next, depth + 1});
      nodes_.emplace_back();
      labels_.push_back(static_cast<uint8_t>(label));
      ++nodes_[node].children;
      begin = next;
    }
  }
}

uint32_t ByteTrie::child(uint32_t node, uint8_t byte) const {
  if (nodes_.empty()) return kNone;
  const Node& parent = nodes_[node];
  if (parent.children == 256) return parent.first_child + byte;
  const uint8_t* begin = labels_.data() + parent.first_child;
  const uint8_t* end = begin + parent.children;
  const uint8_t* it = parent.children <= 8 ? std::find(begin, end, byte) : std::lower_bound(begin, end, byte);
  if (it == end || *it != byte) return kNone;
  return static_cast<uint32_t>(it - labels_.data());
}

ByteTrie::Match ByteTrie::longest(std::string_view text) const {
  Match best;
  uint32_t node = kRoot;
  for (size_t at = 0; at < text.size(); ++at) {
    node = child(node, static_cast<uint8_t>(text[at]));
    if (node == kNone) break;
    if (nodes_[node].value >= 0) best = {at + 1, nodes_[node].value};
  }
  return best;
}

}  // namespace millrace::text
