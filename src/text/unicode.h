// Properties of code points that tokenizers ask for. Categories are those of utf8proc's Unicode tables;
// whitespace is the White_Space property, which is what `\s` means in the regular expressions of published
// tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::text::unicode {

/// Bits of `classes`. The first group partitions by general category, the rest are finer.
enum Class : uint16_t {
  kLetter = 1 << 0,       // L
  kMark = 1 << 1,         // M
  kNumber = 1 << 2,       // N
  kPunctuation = 1 << 3,  // P
  kSymbol = 1 << 4,       // S
  kSpace = 1 << 5,        // White_Space
  kUpper = 1 << 6,        // Lu, Lt
  kLower = 1 << 7,        // Ll
  kOtherLetter = 1 << 8,  // Lm, Lo
  kDigit = 1 << 9,        // Nd
  kNonspacing = 1 << 10,  // Mn
  kControl = 1 << 11,     // Cc, Cf, Co
  kNewline = 1 << 12,     // "\r" and "\n" alone
  kHan = 1 << 13,         // script Han
};

/// Classes of a code point; 0 for values beyond U+10FFFF (so for utf8::kInvalid).
uint16_t classes(uint32_t code_point);

bool is_whitespace(uint32_t code_point);
bool is_han(uint32_t code_point);
/// \w of the published tokenizers' regular expressions: Alphabetic, marks, decimal digits, connector
/// punctuation.
bool is_word(uint32_t code_point);
/// CJK ideographs as BERT's normaliser counts them (it puts spaces around each).
bool is_bert_ideograph(uint32_t code_point);

/// One step over well-formed UTF-8: the classes of the character at `at` and its length in bytes. An
/// ill-formed byte has no class and length 1.
struct Step {
  uint16_t classes;
  uint8_t length;
};
Step step(std::string_view text, size_t at);

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
/// Unicode normalisation; ill-formed bytes stay as they are.
std::string normalize(std::string_view text, Form form);
/// Full lower case without context, as Rust's char::to_lowercase.
void append_lower(std::string& out, uint32_t code_point);
std::string lower(std::string_view text);

}  // namespace millrace::text::unicode
