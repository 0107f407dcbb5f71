// BERT's preparation of a text: control characters out, spaces around ideographs, accents and case away, and
// words cut at whitespace and punctuation.
#pragma once

#include <string>
#include <string_view>

#include "text/unicode.h"

namespace millrace::text {

struct BertNormalizer {
  bool clean_text = true;
  bool space_ideographs = true;
  bool strip_accents = true;
  bool lowercase = true;

  std::string apply(std::string_view text) const;
};

/// Punctuation as BERT counts it: Unicode's, and all ASCII that is neither letter, digit nor space.
bool is_bert_punctuation(uint32_t code_point);

/// Calls visit(word) for each word of a normalised text; whitespace is dropped, each punctuation mark is a
/// word.
template <typename Visit>
void split_bert_words(std::string_view text, const Visit& visit);

/// Length in bytes of the character at `at`, and whether it is whitespace or punctuation.
struct BertStep {
  uint8_t length;
  bool space, punctuation;
};
BertStep bert_step(std::string_view text, size_t at);

template <typename Visit>
void split_bert_words(std::string_view text, const Visit& visit) {
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (end > begin) visit(text.substr(begin, end - begin));
  };
  for (size_t at = 0; at < text.size();) {
    const BertStep s = bert_step(text, at);
    if (s.space || s.punctuation) {
      flush(at);
      if (s.punctuation) visit(text.substr(at, s.length));
      begin = at + s.length;
    }
    at += s.length;
  }
  flush(text.size());
}

}  // namespace millrace::text
