// SentencePiece's precompiled character map: a double array (darts-clone's layout) from byte strings to
// offsets of their replacements, and the replacements, each closed by a zero byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::text {

class CharsMap {
 public:
  CharsMap() = default;
  /// Little-endian size of the array in bytes, the array, the replacements. Empty data map nothing.
  /// Error(kInvalidFile) naming `origin` when the size does not fit.
  CharsMap(const std::vector<uint8_t>& data, const std::string& origin);

  bool empty() const { return units_.empty(); }

  struct Match {
    size_t length = 0;  ///< bytes replaced; 0: no key
    std::string_view replacement;
  };
  /// The longest key that `text` begins with, as SentencePiece takes it.
  Match longest(std::string_view text) const { return search(text, Take::kLongest); }
  /// The shortest one, as the `tokenizers` library takes it.
  Match shortest(std::string_view text) const { return search(text, Take::kShortest); }

 private:
  enum class Take { kLongest, kShortest };
  Match search(std::string_view text, Take take) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

/// The rules by which SentencePiece prepares a text.
struct PieceNormalizer {
  CharsMap charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = false;
  bool escape_whitespaces = true;     ///< ' ' becomes U+2581
  bool whitespace_as_suffix = false;  ///< the dummy space stands at the end
  /// Longest user-defined piece at the start of a text (0: none): such pieces are kept as they are.
  std::vector<std::string> user_defined;  ///< sorted

  /// Ill-formed bytes become U+FFFD when there is a map, else stay.
  std::string apply(std::string_view text) const;

 private:
  size_t user_defined_prefix(std::string_view text) const;
};

}  // namespace millrace::text
