// Finds tokens that stand for themselves in a text (special and user-defined tokens) before the rest is
// tokenised.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace millrace::text {

struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool special = false;      ///< only where EncodeOptions::parse_special
  bool strip_left = false;   ///< takes the whitespace before it with it
  bool strip_right = false;  ///< takes the whitespace after it with it
  bool single_word = false;  ///< only between characters that belong to no word
};

/// A part of the text: a token (id >= 0), or text still to be tokenised (id < 0).
struct Fragment {
  std::string_view text;
  TokenId id = -1;
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  /// Empty texts are left out.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// Cuts `text` at every token: leftmost first, longest at each place. Time is O(n * longest token) at
  /// worst, and near a memchr where few bytes can begin a token.
  void split(std::string_view text, bool parse_special, std::vector<Fragment>& out) const;

 private:
  /// The longest token that begins at `at`, or nullptr.
  const AddedToken* match(std::string_view text, size_t at, bool parse_special) const;

  std::vector<AddedToken> tokens_;  ///< sorted by first byte, then longest first
  uint32_t first_[257] = {};        ///< range of tokens_ for each first byte
};

}  // namespace millrace::text
