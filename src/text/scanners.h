// Hand-written scanners for the pre-tokeniser patterns of the families that carry most text. Each gives the
// end of the word that begins at `at`; all are linear, and equal to the regular expression they stand for on
// well-formed UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace::text {

/// The shape shared by GPT-2, Llama 3, Qwen 2 and those like them, as data.
struct ScanRule {
  enum class Shape : uint8_t {
    /// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    kGpt2,
    /// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
    /// \s+(?!\S)|\s+
    kGpt4,
    /// [^\r\n\p{L}\p{N}]?U*L+(?i:'s|...)?|[^\r\n\p{L}\p{N}]?U+L*(?i:'s|...)?|\p{N}{1,k}|
    /// ?[^\s\p{L}\p{N}]+[\r\n/]*|
    /// \s*[\r\n]+|\s+(?!\S)|\s+ with U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L = [\p{Ll}\p{Lm}\p{Lo}\p{M}]
    kGpt4o,
  };
  Shape shape = Shape::kGpt2;
  uint8_t max_digits = 0;          ///< numbers of a word; 0: any (kGpt4 and kGpt4o)
  bool contractions = true;        ///< 's, 't, ... (kGpt4 as words of their own, kGpt4o as endings)
  bool marks_are_letters = false;  ///< kGpt4: [\p{L}\p{M}] for \p{L}
  bool slash_tail = false;         ///< kGpt4o: punctuation takes slashes behind it too
  bool han_apart = false;          ///< kGpt4o: runs of Han are words, and no letters of other words
};

/// End of the word at `at`, greater than `at`. `text` is the whole subject: lookahead ends with it.
size_t scan_word(const ScanRule& rule, std::string_view text, size_t at);

}  // namespace millrace::text
