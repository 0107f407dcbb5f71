// The vocabulary as the grammar sees it: the bytes of each token, sorted into a trie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::grammar {

using TokenId = int32_t;
class PlaceCache;

struct Vocabulary {
  std::vector<std::string> token_bytes;  ///< by id; what the token adds in the middle of a text
  std::vector<bool> special;  ///< by id; never allowed as text. May be shorter: the rest is not special
  std::vector<TokenId> end_of_generation;

  size_t size() const { return token_bytes.size(); }
};

/// The 256 bytes as tokens 0..255, and an end token 256.
Vocabulary byte_vocabulary();

/// Tokens in order of their bytes, as a flat trie in depth-first order. Immutable, shared by all grammars.
class TokenTrie {
 public:
  explicit TokenTrie(Vocabulary vocabulary, size_t mask_cache_bytes = size_t{64} << 20);

  struct Node {
    uint32_t skip;    ///< first node after this one's subtree
    uint32_t tokens;  ///< place in order() of the first token in this subtree; those that end here come first
    uint32_t ends;    ///< how many tokens end here
    uint16_t depth;   ///< 1 for the first byte
    uint8_t byte;
    bool big;        ///< has a Below entry
    bool border;     ///< entered between characters, it and all below is well-formed UTF-8 as far as it goes
    bool odd;        ///< its byte is not plain (see plain_at_most)
    bool odd_below;  ///< some token of the subtree has a byte beyond this node that is not plain
    uint16_t chars;  ///< characters begun on the way here, this byte included
  };
  /// What lies below a node with a large subtree.
  struct Below {
    uint64_t ascii[2] = {0, 0};  ///< bytes below 128 that occur
    bool only_ascii = true;
    bool utf8 = true;  ///< from a character border on, all is well-formed as far as it goes
  };

  const Vocabulary& vocabulary() const { return vocabulary_; }
  size_t vocab_size() const { return vocabulary_.size(); }
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Token ids in order of their bytes (special and empty ones are left out).
  const std::vector<TokenId>& order() const { return order_; }
  const Below& below(uint32_t node) const { return below_[below_of_[node]]; }
  /// Tokens of the subtree of `node`: [first, last) in order().
  uint32_t last_token(uint32_t node) const {
    const uint32_t s = nodes_[node].skip;
    return s < nodes_.size() ? nodes_[s].tokens : static_cast<uint32_t>(order_.size());
  }
  const std::string& bytes_of(uint32_t place) const { return vocabulary_.token_bytes[order_[place]]; }
  /// Bits of the ids in order(): the mask of a grammar that allows every text.
  const std::vector<uint64_t>& text_mask() const { return text_mask_; }
  size_t mask_words() const { return text_mask_.size(); }
  /// Places in order(), the longest tokens first.
  const std::vector<uint32_t>& longest_first() const { return longest_first_; }
  size_t max_token_bytes() const { return max_bytes_; }
  /// Bytes of the longest token that `text` begins with; 0 when there is none.
  size_t longest_prefix(std::string_view text) const;
  /// How many tokens are longer than so many bytes.
  size_t longer_than(size_t bytes) const { return bytes + 1 < longer_than_.size() ? longer_than_[bytes] : 0; }

  /// Plain: see plain_room.h. Quotes, backslashes, control characters and bytes that are not well-formed
  /// UTF-8 are not.
  struct Plain {
    uint16_t odd_end;  ///< from here on all bytes are plain
    uint16_t chars;    ///< characters begun in the whole token
  };
  const Plain& plain(uint32_t place) const { return plain_[place]; }
  /// Bits of the plain tokens with at most so many characters; of all plain ones from kMostCounted on.
  static constexpr size_t kMostCounted = 64;
  const std::vector<uint64_t>& plain_at_most(uint64_t chars) const {
    return plain_at_most_[std::min<uint64_t>(chars, plain_at_most_.size() - 1)];
  }

  /// Masks of places of all grammars over this vocabulary.
  PlaceCache& places() const { return *places_; }

 private:
  Vocabulary vocabulary_;
  std::vector<Node> nodes_;
  std::vector<TokenId> order_;
  std::vector<uint32_t> below_of_;
  std::vector<Below> below_;
  std::vector<uint64_t> text_mask_;
  std::vector<uint32_t> longest_first_;
  size_t max_bytes_ = 0;
  void find_plain();

  std::vector<size_t> longer_than_;
  std::vector<Plain> plain_;
  std::vector<std::vector<uint64_t>> plain_at_most_;
  std::shared_ptr<PlaceCache> places_;
};

}  // namespace millrace::grammar
