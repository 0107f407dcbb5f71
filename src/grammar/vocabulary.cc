#include "grammar/vocabulary.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "grammar/place_cache.h"

namespace millrace::grammar {
namespace {

constexpr uint32_t kBigSubtree = 1;

// The states of a UTF-8 check: 0 between characters, then one, two, three continuation bytes to come, then
// the four lead bytes whose next byte is restricted.
constexpr int kStates = 8;
int utf8_step(int state, uint8_t b) {
  const bool tail = (b & 0xc0) == 0x80;
  switch (state) {
    case 0:
      if (b < 0x80) return 0;
      if (b >= 0xc2 && b <= 0xdf) return 1;
      if (b == 0xe0) return 4;
      if (b == 0xed) return 5;
      if (b >= 0xe1 && b <= 0xef) return 2;
      if (b == 0xf0) return 6;
      if (b == 0xf4) return 7;
      if (b >= 0xf1 && b <= 0xf3) return 3;
      return -1;
    case 1:
      return tail ? 0 : -1;
    case 2:
      return tail ? 1 : -1;
    case 3:
      return tail ? 2 : -1;
    case 4:
      return b >= 0xa0 && b <= 0xbf ? 1 : -1;
    case 5:
      return b >= 0x80 && b <= 0x9f ? 1 : -1;
    case 6:
      return b >= 0x90 && b <= 0xbf ? 2 : -1;
    default:
      return b >= 0x80 && b <= 0x8f ? 2 : -1;
  }
}

}  // namespace

Vocabulary byte_vocabulary() {
  Vocabulary v;
  for (int b = 0; b < 256; ++b) v.token_bytes.push_back(std::string(1, static_cast<char>(b)));
  v.token_bytes.push_back("");
  v.special.assign(257, false);
  v.special[256] = true;
  v.end_of_generation = {256};
  return v;
}

TokenTrie::TokenTrie(Vocabulary vocabulary, size_t mask_cache_bytes)
    : vocabulary_(std::move(vocabulary)), places_(std::make_shared<PlaceCache>(mask_cache_bytes)) {
  const auto& tokens = vocabulary_.token_bytes;
  require(!tokens.empty(), ErrorCode::kInvalidArgument, "a grammar's vocabulary has no tokens");
  vocabulary_.special.resize(tokens.size(), false);
  for (TokenId e : vocabulary_.end_of_generation)
    require(e >= 0 && static_cast<size_t>(e) < tokens.size(), ErrorCode::kInvalidArgument,
            "end-of-generation token {} is outside a vocabulary of {}", e, tokens.size());
  text_mask_.assign((tokens.size() + 63) / 64, 0);
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (vocabulary_.special[id] || tokens[id].empty()) continue;
    require(tokens[id].size() < 65'000, ErrorCode::kInvalidArgument, "token {} has {} bytes, more than 65000",
            id, tokens[id].size());
    order_.push_back(static_cast<TokenId>(id));
    max_bytes_ = std::max(max_bytes_, tokens[id].size());
  }
  for (TokenId e : vocabulary_.end_of_generation)
    order_.erase(std::remove(order_.begin(), order_.end(), e), order_.end());
  for (TokenId id : order_) text_mask_[static_cast<size_t>(id) >> 6] |= uint64_t{1} << (id & 63);
  std::sort(order_.begin(), order_.end(), [&](TokenId a, TokenId b) {
    const int c = tokens[a].compare(tokens[b]);
    return c != 0 ? c < 0 : a < b;
  });
  longest_first_.resize(order_.size());
  for (uint32_t p = 0; p < order_.size(); ++p) longest_first_[p] = p;
  std::stable_sort(longest_first_.begin(), longest_first_.end(),
                   [&](uint32_t a, uint32_t b) { return bytes_of(a).size() > bytes_of(b).size(); });
  std::vector<uint32_t> open;  // nodes of the current path
  std::string_view before;
  for (uint32_t place = 0; place < order_.size(); ++place) {
    const std::string& bytes = tokens[order_[place]];
    size_t common = 0;
    while (common < before.size() && common < bytes.size() && before[common] == bytes[common]) ++common;
    while (open.size() > common) {
      nodes_[open.back()].skip = static_cast<uint32_t>(nodes_.size());
      open.pop_back();
    }
    for (size_t d = common; d < bytes.size(); ++d) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, place, 0, static_cast<uint16_t>(d + 1), static_cast<uint8_t>(bytes[d]), false,
                        false, false, false, 0});
    }
    ++nodes_[open.back()].ends;
    before = bytes;
  }
  for (uint32_t n : open) nodes_[n].skip = static_cast<uint32_t>(nodes_.size());
  find_plain();
  // Bottom up: what occurs below, and from which states of the UTF-8 check a subtree is well formed.
  std::vector<uint8_t> good(nodes_.size());
  below_of_.assign(nodes_.size(), 0);
  for (uint32_t i = static_cast<uint32_t>(nodes_.size()); i-- > 0;) {
    uint8_t children = 0xff;
    Below b;
    const bool big = nodes_[i].skip - i > kBigSubtree;
    for (uint32_t c = i + 1; c < nodes_[i].skip; c = nodes_[c].skip) children &= good[c];
    uint8_t mine = 0;
    for (int s = 0; s < kStates; ++s) {
      const int t = utf8_step(s, nodes_[i].byte);
      if (t >= 0 && ((children >> t) & 1)) mine |= static_cast<uint8_t>(1u << s);
    }
    good[i] = mine;
    nodes_[i].border = mine & 1;
    if (!big) continue;
    b.utf8 = children & 1;
    for (uint32_t c = i + 1; c < nodes_[i].skip;) {
      const uint8_t byte = nodes_[c].byte;
      if (byte < 128) {
        b.ascii[byte >> 6] |= uint64_t{1} << (byte & 63);
      } else {
        b.only_ascii = false;
      }
      if (nodes_[c].big) {
        const Below& sub = below_[below_of_[c]];
        b.ascii[0] |= sub.ascii[0];
        b.ascii[1] |= sub.ascii[1];
        b.only_ascii &= sub.only_ascii;
        c = nodes_[c].skip;
      } else {
        ++c;
      }
    }
    nodes_[i].big = true;
    below_of_[i] = static_cast<uint32_t>(below_.size());
    below_.push_back(b);
  }
}

size_t TokenTrie::longest_prefix(std::string_view text) const {
  size_t best = 0;
  uint32_t i = 0, end = static_cast<uint32_t>(nodes_.size());
  for (size_t d = 0; d < text.size(); ++d) {
    while (i < end && nodes_[i].byte != static_cast<uint8_t>(text[d])) i = nodes_[i].skip;
    if (i >= end) break;
    if (nodes_[i].ends > 0) best = d + 1;
    end = nodes_[i].skip;
    ++i;
  }
  return best;
}

// Along each path of the trie: which bytes are plain, and how many characters have begun. A byte that is not
// well-formed is odd, and the check starts anew after it.
void TokenTrie::find_plain() {
  longer_than_.assign(max_bytes_ + 2, 0);
  plain_.resize(order_.size());
  plain_at_most_.assign(kMostCounted + 1, {});
  std::vector<std::vector<uint32_t>> by_chars(kMostCounted + 1);
  std::vector<int> state{0};
  std::vector<uint16_t> chars{0}, odd_end{0};
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    Node& n = nodes_[i];
    state.resize(n.depth);
    chars.resize(n.depth);
    odd_end.resize(n.depth);
    int next = utf8_step(state.back(), n.byte);
    n.odd = next < 0 || n.byte < 0x20 || n.byte == '"' || n.byte == '\\';
    if (next < 0) next = 0;
    // The line separators are e2 80 a8 and e2 80 a9. A token that ends within one is plain: the next byte
    // decides.
    if (next == 0 && (n.byte == 0xa8 || n.byte == 0xa9) && n.depth >= 3) {
      const std::string& bytes = vocabulary_.token_bytes[order_[n.tokens]];
      n.odd |= bytes.compare(n.depth - 3u, 2, "\xe2\x80") == 0;
    }
    n.chars = static_cast<uint16_t>(chars.back() + ((n.byte & 0xc0) != 0x80 ? 1 : 0));
    state.push_back(next);
    chars.push_back(n.chars);
    odd_end.push_back(n.odd ? n.depth : odd_end.back());
    for (uint32_t p = n.tokens; p < n.tokens + n.ends; ++p) {
      plain_[p] = {odd_end.back(), n.chars};
      if (odd_end.back() == 0) by_chars[std::min<size_t>(n.chars, kMostCounted)].push_back(p);
      ++longer_than_[n.depth];
    }
  }
  for (uint32_t i = static_cast<uint32_t>(nodes_.size()); i-- > 0;)
    for (uint32_t c = i + 1; c < nodes_[i].skip; c = nodes_[c].skip)
      nodes_[i].odd_below |= nodes_[c].odd || nodes_[c].odd_below;
  size_t longer = 0;
  for (size_t b = longer_than_.size(); b-- > 0;) {
    const size_t here = longer_than_[b];
    longer_than_[b] = longer;
    longer += here;
  }
  std::vector<uint64_t> bits(text_mask_.size(), 0);
  for (size_t n = 0; n <= kMostCounted; ++n) {
    for (uint32_t p : by_chars[n]) {
      const auto id = static_cast<size_t>(order_[p]);
      bits[id >> 6] |= uint64_t{1} << (id & 63);
    }
    plain_at_most_[n] = bits;
  }
}

}  // namespace millrace::grammar
