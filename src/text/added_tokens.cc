#include "text/added_tokens.h"

#include <algorithm>

#include "core/utf8.h"
#include "text/unicode.h"

namespace millrace::text {
namespace {

bool word_at(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  size_t end = at;
  return unicode::is_word(utf8::next(text, end));
}

size_t previous(std::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return begin;
}

size_t skip_space_left(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const size_t begin = std::max(previous(text, at), limit);
    const unicode::Step step = unicode::step(text, begin);
    if ((step.classes & unicode::kSpace) == 0 || begin + step.length != at) break;
    at = begin;
  }
  return at;
}

size_t skip_space_right(std::string_view text, size_t at) {
  while (at < text.size()) {
    const unicode::Step step = unicode::step(text, at);
    if ((step.classes & unicode::kSpace) == 0) break;
    at += step.length;
  }
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  tokens_.erase(
      std::remove_if(tokens_.begin(), tokens_.end(), [](const AddedToken& t) { return t.text.empty(); }),
      tokens_.end());
  // Sorted as bytes, so that the tokens which share a beginning lie together and match() can search among
  // them.
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.text != b.text ? a.text < b.text : a.id < b.id;
  });
  for (const AddedToken& token : tokens_) ++first_[static_cast<unsigned char>(token.text[0]) + 1];
  for (size_t i = 1; i < 257; ++i) first_[i] += first_[i - 1];
}

const AddedToken* AddedTokenMatcher::match(std::string_view text, size_t at, bool parse_special) const {
  const auto lead = static_cast<unsigned char>(text[at]);
  auto begin = tokens_.begin() + first_[lead];
  auto end = tokens_.begin() + first_[lead + 1];
  const AddedToken* longest = nullptr;
  // Each byte of the text narrows the range to the tokens that still agree; a token that is used up stands
  // first.
  for (size_t depth = 1; begin != end; ++depth) {
    while (begin != end && begin->text.size() == depth) {
      const AddedToken& token = *begin;
      const bool allowed = parse_special || !token.special;
      if (allowed && (longest == nullptr || longest->text.size() < depth)) longest = &token;
      ++begin;
    }
    if (at + depth >= text.size()) break;
    const auto next = static_cast<unsigned char>(text[at + depth]);
    const auto byte_at = [depth](const AddedToken& t) { return static_cast<unsigned char>(t.text[depth]); };
    begin = std::lower_bound(begin, end, next,
                             [&](const AddedToken& t, unsigned char value) { return byte_at(t) < value; });
    end = std::upper_bound(begin, end, next,
                           [&](unsigned char value, const AddedToken& t) { return value < byte_at(t); });
  }
  return longest;
}

void AddedTokenMatcher::split(std::string_view text, bool parse_special, std::vector<Fragment>& out) const {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (first_[lead] == first_[lead + 1]) {
      ++at;
      continue;
    }
    const AddedToken* token = match(text, at, parse_special);
    if (token == nullptr) {
      ++at;
      continue;
    }
    // A token that must be a word of its own and is not hides shorter ones, as in the published
    // implementation.
    const size_t behind = at + token->text.size();
    if (token->single_word && ((at > 0 && word_at(text, previous(text, at))) || word_at(text, behind))) {
      at = behind;
      continue;
    }
    const size_t left = token->strip_left ? std::max(skip_space_left(text, at, begin), begin) : at;
    if (left > begin) out.push_back({text.substr(begin, left - begin), -1});
    const size_t right = token->strip_right ? skip_space_right(text, behind) : behind;
    // As in the published implementation, a token inside the space that another one took is found all the
    // same, unless it takes the space before it, which is gone; and what is behind it is text again.
    if (!token->strip_left || left < right) out.push_back({text.substr(at, behind - at), token->id});
    begin = right;
    at = behind;
  }
  if (begin < text.size()) out.push_back({text.substr(begin), -1});
}

}  // namespace millrace::text
