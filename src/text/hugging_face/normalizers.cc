// Normalisers of tokenizer.json.
#include <utf8proc.h>

#include <map>

#include "core/utf8.h"
#include "text/bert_normalizer.h"
#include "text/byte_alphabet.h"
#include "text/charsmap.h"
#include "text/hugging_face/base64.h"
#include "text/hugging_face/components.h"
#include "text/hugging_face/json_node.h"
#include "text/hugging_face/patterns.h"
#include "text/unicode.h"

namespace millrace::text {
namespace {

/// Copies the text character by character through `map(code point, bytes, out)`; ill-formed bytes stay.
template <typename Map>
std::string map_characters(std::string_view text, const Map& map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = utf8::next(text, at);
    const std::string_view bytes = text.substr(begin, at - begin);
    if (c == utf8::kInvalid)
      out += bytes;
    else
      map(c, bytes, out);
  }
  return out;
}

class BertCleaner final : public Normalizer {
 public:
  explicit BertCleaner(const JsonNode& node) {
    bert_.clean_text = node.flag("clean_text", true);
    bert_.space_ideographs = node.flag("handle_chinese_chars", true);
    bert_.lowercase = node.flag("lowercase", true);
    bert_.strip_accents = node.flag("strip_accents", bert_.lowercase);
  }
  std::string apply(std::string_view text) const override { return bert_.apply(text); }

 private:
  BertNormalizer bert_;
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(unicode::Form form) : form_(form) {}
  std::string apply(std::string_view text) const override { return unicode::normalize(text, form_); }

 private:
  unicode::Form form_;
};

class Lowercase final : public Normalizer {
 public:
  std::string apply(std::string_view text) const override { return unicode::lower(text); }
};

class StripNormalizer final : public Normalizer {
 public:
  explicit StripNormalizer(const JsonNode& node)
      : left_(node.flag("strip_left", true)), right_(node.flag("strip_right", true)) {}
  std::string apply(std::string_view text) const override {
    size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const unicode::Step s = unicode::step(text, begin);
      if ((s.classes & unicode::kSpace) == 0) break;
      begin += s.length;
    }
    // The end of the last character that is no space.
    if (right_) {
      size_t last = begin;
      for (size_t at = begin; at < end;) {
        const unicode::Step s = unicode::step(text, at);
        at += s.length;
        if ((s.classes & unicode::kSpace) == 0) last = at;
      }
      end = last;
    }
    return std::string(text.substr(begin, end - begin));
  }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  std::string apply(std::string_view text) const override {
    return map_characters(text, [](uint32_t c, std::string_view bytes, std::string& out) {
      if ((unicode::classes(c) & unicode::kMark) == 0) out += bytes;
    });
  }
};

class Nmt final : public Normalizer {
 public:
  std::string apply(std::string_view text) const override {
    return map_characters(text, [](uint32_t c, std::string_view bytes, std::string& out) {
      const bool dropped = (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
                           c == 0x8f || c == 0x9f;
      const bool space = c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 ||
                         (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                         c == 0xfeff || c == 0xfffd;
      if (dropped) return;
      if (space)
        out += ' ';
      else
        out += bytes;
    });
  }
};

class ReplaceNormalizer final : public Normalizer {
 public:
  explicit ReplaceNormalizer(const JsonNode& node)
      : pattern_(Pattern::from_json(node.at("pattern"))), content_(node.at("content").string()) {}
  std::string apply(std::string_view text) const override { return pattern_.replace_all(text, content_); }

 private:
  Pattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const JsonNode& node) : text_(node.at("prepend").string()) {}
  std::string apply(std::string_view text) const override {
    return text.empty() ? std::string() : text_ + std::string(text);
  }

 private:
  std::string text_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  std::string apply(std::string_view text) const override { return to_byte_alphabet(text); }
};

/// The `tokenizers` library applies a SentencePiece map to whole graphemes first, when they are short, and to
/// single characters then; and it takes the shortest key, which may drop what a grapheme has behind it.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const JsonNode& node) : map_(precompiled_charsmap(node), node.place()) {}

  std::string apply(std::string_view text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const size_t end = grapheme_end(text, at);
      append(text.substr(at, end - at), out);
      at = end;
    }
    return out;
  }

 private:
  static size_t grapheme_end(std::string_view text, size_t at) {
    uint32_t previous = utf8::next(text, at);
    if (previous == utf8::kInvalid) return at;
    utf8proc_int32_t state = 0;
    while (at < text.size()) {
      size_t next = at;
      const uint32_t c = utf8::next(text, next);
      if (c == utf8::kInvalid || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous),
                                                                  static_cast<utf8proc_int32_t>(c), &state))
        break;
      previous = c;
      at = next;
    }
    return at;
  }

  void append(std::string_view grapheme, std::string& out) const {
    constexpr size_t kShort = 6;
    if (grapheme.size() < kShort) {
      if (const CharsMap::Match match = map_.shortest(grapheme); match.length != 0) {
        out += match.replacement;
        return;
      }
    }
    for (size_t at = 0; at < grapheme.size();) {
      const size_t begin = at;
      utf8::next(grapheme, at);
      const std::string_view bytes = grapheme.substr(begin, at - begin);
      const CharsMap::Match match = map_.shortest(bytes);
      out += match.length != 0 ? match.replacement : bytes;
    }
  }

  CharsMap map_;
};

class SequenceNormalizer final : public Normalizer {
 public:
  SequenceNormalizer(const JsonNode& node, int depth) {
    for (const JsonNode& item : node.at("normalizers").items())
      parts_.push_back(make_normalizer(item, depth + 1));
  }
  std::string apply(std::string_view text) const override {
    std::string out(text);
    for (const auto& part : parts_) out = part->apply(out);
    return out;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

std::vector<uint8_t> precompiled_charsmap(const JsonNode& node) {
  const JsonNode map = node.at("precompiled_charsmap");
  std::optional<std::vector<uint8_t>> bytes = decode_base64(map.string());
  if (!bytes) map.bad("is not Base64");
  return std::move(*bytes);
}

std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node, int depth) {
  if (depth > kMaxNesting) node.bad("is nested too deeply");
  const std::string type = node.at("type").string();
  if (type == "Sequence") return std::make_unique<SequenceNormalizer>(node, depth);
  if (type == "BertNormalizer") return std::make_unique<BertCleaner>(node);
  if (type == "NFC") return std::make_unique<UnicodeForm>(unicode::Form::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(unicode::Form::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(unicode::Form::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(unicode::Form::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip") return std::make_unique<StripNormalizer>(node);
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(node);
  if (type == "Prepend") return std::make_unique<Prepend>(node);
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Precompiled") return std::make_unique<Precompiled>(node);
  fail(ErrorCode::kUnsupported, "{} has the unknown type \"{}\"", node.place(), type);
}

}  // namespace millrace::text
