// A read-only trie over byte strings: all keys that begin at a place of a text are found in one walk.
// Children of a node lie side by side, so a node costs 13 bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::text {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;

  ByteTrie() = default;
  /// Keys and their values (not negative). Of equal keys the first given wins; empty keys are left out.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> keys);

  bool empty() const { return nodes_.size() < 2; }

  /// The node one byte further, or kNone.
  uint32_t child(uint32_t node, uint8_t byte) const;
  /// Value of the key that ends at this node, or -1.
  int32_t value(uint32_t node) const { return nodes_[node].value; }

  struct Match {
    size_t length = 0;
    int32_t value = -1;
  };
  /// The longest key that `text` begins with; value -1 for none.
  Match longest(std::string_view text) const;

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    int32_t value = -1;
  };
  std::vector<Node> nodes_;
  std::vector<uint8_t> labels_;  ///< of each node, by which its parent finds it
};

}  // namespace millrace::text
