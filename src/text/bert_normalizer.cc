#include "text/bert_normalizer.h"

#include "core/utf8.h"

namespace millrace::text {

bool is_bert_punctuation(uint32_t c) {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  return (unicode::classes(c) & unicode::kPunctuation) != 0;
}

BertStep bert_step(std::string_view text, size_t at) {
  size_t end = at;
  const uint32_t c = utf8::next(text, end);
  const bool valid = c != utf8::kInvalid;
  return {static_cast<uint8_t>(end - at), valid && unicode::is_whitespace(c),
          valid && is_bert_punctuation(c)};
}

std::string BertNormalizer::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + 16);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = utf8::next(text, at);
    const std::string_view bytes = text.substr(begin, at - begin);
    if (clean_text) {
      if (c == utf8::kInvalid) continue;  // what a decoder would have made U+FFFD of
      if (c == 0 || c == 0xfffd) continue;
      // Of the control characters only these three count as whitespace.
      const bool plain_space = c == '\t' || c == '\n' || c == '\r';
      if (!plain_space && (unicode::classes(c) & unicode::kControl) != 0) continue;
      if (unicode::is_whitespace(c)) {
        out += ' ';
        continue;
      }
    }
    if (space_ideographs && unicode::is_bert_ideograph(c))
      ((out += ' ') += bytes) += ' ';
    else
      out += bytes;
  }
  if (strip_accents) {
    const std::string decomposed = unicode::normalize(out, unicode::Form::kNfd);
    out.clear();
    for (size_t at = 0; at < decomposed.size();) {
      const size_t begin = at;
      const uint32_t c = utf8::next(decomposed, at);
      if ((unicode::classes(c) & unicode::kNonspacing) == 0) out.append(decomposed, begin, at - begin);
    }
  }
  return lowercase ? unicode::lower(out) : out;
}

}  // namespace millrace::text
