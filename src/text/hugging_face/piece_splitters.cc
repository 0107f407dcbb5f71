// Pre-tokenisers of tokenizer.json.
#include <algorithm>
#include <array>

#include "core/utf8.h"
#include "text/bert_normalizer.h"
#include "text/byte_alphabet.h"
#include "text/hugging_face/components.h"
#include "text/hugging_face/json_node.h"
#include "text/hugging_face/patterns.h"
#include "text/hugging_face/scripts.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"

namespace millrace::text {
namespace {

/// What becomes of the matches of a pattern.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior parse_behavior(const JsonNode& node) {
  const std::string& name = node.string();
  if (name == "Removed" || name == "removed") return Behavior::kRemoved;
  if (name == "Isolated" || name == "isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious" || name == "merged_with_previous") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext" || name == "merged_with_next") return Behavior::kMergedWithNext;
  if (name == "Contiguous" || name == "contiguous") return Behavior::kContiguous;
  fail(ErrorCode::kUnsupported, "{} is the unknown behaviour \"{}\"", node.place(), name);
}

struct Span {
  size_t begin, end;
  bool match;
};

/// Matches and the gaps between them, covering the text; swapped when `invert`.
std::vector<Span> cover(size_t size, const std::vector<Range>& matches, bool invert) {
  std::vector<Span> spans;
  size_t at = 0;
  for (const Range& match : matches) {
    if (match.begin > at) spans.push_back({at, match.begin, invert});
    spans.push_back({match.begin, match.end, !invert});
    at = match.end;
  }
  if (at < size) spans.push_back({at, size, invert});
  return spans;
}

/// Joins spans as the behaviour says; what is left with `match` is to be dropped.
std::vector<Span> join(std::vector<Span> spans, Behavior behavior) {
  if (behavior == Behavior::kRemoved) return spans;
  std::vector<Span> out;
  bool previous = false;
  const auto keep = [&](const Span& span) { out.push_back({span.begin, span.end, false}); };
  if (behavior == Behavior::kMergedWithNext) {
    for (auto it = spans.rbegin(); it != spans.rend(); ++it) {
      if (it->match && !previous && !out.empty())
        out.back().begin = it->begin;
      else
        keep(*it);
      previous = it->match;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }
  for (const Span& span : spans) {
    const bool joined = behavior == Behavior::kMergedWithPrevious ? span.match && !previous
                        : behavior == Behavior::kContiguous       ? span.match == previous
                                                                  : false;
    if (joined && !out.empty())
      out.back().end = span.end;
    else
      keep(span);
    previous = span.match;
  }
  return out;
}

/// Replaces each piece by the spans that `split(text)` gives and that are not empty.
template <typename Split>
void split_pieces(std::vector<Piece>& pieces, const Split& split) {
  std::vector<Piece> out;
  out.reserve(pieces.size() * 2);
  for (const Piece& piece : pieces)
    for (const Span& span : split(piece.text))
      if (!span.match && span.end > span.begin)
        out.push_back(
            {piece.text.substr(span.begin, span.end - span.begin), piece.at_start && span.begin == 0});
  pieces.swap(out);
}

/// Single characters of a kind as matches.
template <typename Is>
std::vector<Range> characters(std::string_view text, const Is& is) {
  std::vector<Range> out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = utf8::next(text, at);
    if (c != utf8::kInvalid && is(c)) out.push_back({begin, at});
  }
  return out;
}

/// Cuts at the words of the patterns that pretokenizer.h knows, which is where scanners come in.
void split_words(std::vector<Piece>& pieces, const PreTokenizer& words) {
  std::vector<Piece> out;
  out.reserve(pieces.size() * 4);
  for (const Piece& piece : pieces) {
    bool first = true;
    words.split(piece.text, [&](std::string_view word) {
      out.push_back({word, piece.at_start && first});
      first = false;
    });
  }
  pieces.swap(out);
}

class ByteLevelSplitter final : public PieceSplitter {
 public:
  explicit ByteLevelSplitter(const JsonNode& node)
      : add_prefix_space_(node.flag("add_prefix_space", true)), use_regex_(node.flag("use_regex", true)) {
    if (use_regex_) words_ = PreTokenizer({*find_pre_rule("gpt-2")->patterns.begin()}, node.place());
  }
  void apply(std::vector<Piece>& pieces, TextArena& arena) const override {
    if (add_prefix_space_) {
      for (Piece& piece : pieces)
        if (piece.text.empty() || piece.text[0] != ' ')
          piece.text = arena.emplace_back(" " + std::string(piece.text));
    }
    if (use_regex_) split_words(pieces, words_);
    if (!spell_) return;
    for (Piece& piece : pieces) piece.text = arena.emplace_back(to_byte_alphabet(piece.text));
  }
  bool ends_in_byte_alphabet() const override { return true; }
  void leave_bytes() override { spell_ = false; }

 private:
  bool add_prefix_space_, use_regex_, spell_ = true;
  PreTokenizer words_;
};

class BertSplitter final : public PieceSplitter {
 public:
  void apply(std::vector<Piece>& pieces, TextArena&) const override {
    std::vector<Piece> out;
    for (const Piece& piece : pieces)
      split_bert_words(piece.text, [&](std::string_view word) {
        out.push_back({word, piece.at_start && word.data() == piece.text.data()});
      });
    pieces.swap(out);
  }
};

class MetaspaceSplitter final : public PieceSplitter {
 public:
  explicit MetaspaceSplitter(const JsonNode& node) : mark_(node.text("replacement", "\xe2\x96\x81")) {
    const std::string legacy = node.flag("add_prefix_space", true) ? "always" : "never";
    const std::string scheme = node.text("prepend_scheme", legacy);
    if (scheme != "always" && scheme != "first" && scheme != "never")
      node.at("prepend_scheme").bad("is \"" + scheme + "\", expected always, first or never");
    always_ = scheme == "always";
    first_ = scheme == "first";
    split_ = node.flag("split", true);
    if (mark_.empty()) node.at("replacement").bad("is empty, expected one character");
  }
  void apply(std::vector<Piece>& pieces, TextArena& arena) const override {
    for (Piece& piece : pieces) {
      std::string text;
      text.reserve(piece.text.size() + piece.text.size() / 2 + 4);
      for (const char c : piece.text) {
        if (c == ' ')
          text += mark_;
        else
          text += c;
      }
      if ((always_ || (first_ && piece.at_start)) && text.compare(0, mark_.size(), mark_) != 0)
        text.insert(0, mark_);
      piece.text = arena.emplace_back(std::move(text));
    }
    if (!split_) return;
    const Pattern mark = Pattern::literal(mark_);
    split_pieces(pieces, [&](std::string_view text) {
      return join(cover(text.size(), mark.find_all(text), false), Behavior::kMergedWithNext);
    });
  }

  bool uses_start() const override { return first_; }

 private:
  std::string mark_;
  bool always_, first_, split_;
};

/// \w+|[^\w\s]+ : what matches stays, the gaps go.
class Whitespace final : public PieceSplitter {
 public:
  void apply(std::vector<Piece>& pieces, TextArena&) const override {
    split_pieces(pieces, [](std::string_view text) {
      std::vector<Span> spans;
      int last = 0;
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        const uint32_t c = utf8::next(text, at);
        const bool joiner = c == 0x200c || c == 0x200d;
        const int kind = c != utf8::kInvalid && unicode::is_whitespace(c)         ? 0
                         : c != utf8::kInvalid && (joiner || unicode::is_word(c)) ? 1
                                                                                  : 2;
        if (kind != 0 && kind == last)
          spans.back().end = at;
        else if (kind != 0)
          spans.push_back({begin, at, false});
        last = kind;
      }
      return spans;
    });
  }
};

/// Single characters of a kind, and what becomes of them.
template <typename Is>
class CharacterSplitter final : public PieceSplitter {
 public:
  CharacterSplitter(Is is, Behavior behavior) : is_(is), behavior_(behavior) {}
  void apply(std::vector<Piece>& pieces, TextArena&) const override {
    split_pieces(pieces, [this](std::string_view text) {
      return join(cover(text.size(), characters(text, is_), false), behavior_);
    });
  }

 private:
  Is is_;
  Behavior behavior_;
};

template <typename Is>
std::unique_ptr<PieceSplitter> character_splitter(Is is, Behavior behavior) {
  return std::make_unique<CharacterSplitter<Is>>(is, behavior);
}

class Split final : public PieceSplitter {
 public:
  explicit Split(const JsonNode& node)
      : pattern_(Pattern::from_json(node.at("pattern"))),
        behavior_(parse_behavior(node.at("behavior"))),
        invert_(node.flag("invert", false)) {
    // Patterns that cover every character make no difference between isolating matches and removing what is
    // between.
    const bool covers = scan_rule_of(pattern_.source()).has_value();
    if (covers && (behavior_ == Behavior::kIsolated || (behavior_ == Behavior::kRemoved && invert_)))
      words_ = std::make_unique<PreTokenizer>(std::vector<std::string_view>{pattern_.source()}, node.place());
  }
  void apply(std::vector<Piece>& pieces, TextArena&) const override {
    if (words_) {
      split_words(pieces, *words_);
      return;
    }
    split_pieces(pieces, [this](std::string_view text) {
      return join(cover(text.size(), pattern_.find_all(text), invert_), behavior_);
    });
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
  std::unique_ptr<PreTokenizer> words_;
};

class UnicodeScripts final : public PieceSplitter {
 public:
  void apply(std::vector<Piece>& pieces, TextArena&) const override {
    split_pieces(pieces, [](std::string_view text) {
      // Borders stand before each character of a script unlike the last one's; what is before the first goes.
      std::vector<size_t> borders;
      int last = -1;
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        const uint32_t c = utf8::next(text, at);
        const int script = c == utf8::kInvalid || c == ' ' ? 0 : script_group(c);
        if (script != 0 && last != script) borders.push_back(begin);
        if (script != 0) last = script;
      }
      std::vector<Span> spans;
      for (size_t i = 0; i < borders.size(); ++i)
        spans.push_back({borders[i], i + 1 < borders.size() ? borders[i + 1] : text.size(), false});
      return spans;
    });
  }
};

class FixedLength final : public PieceSplitter {
 public:
  explicit FixedLength(const JsonNode& node) : length_(static_cast<size_t>(node.at("length").id())) {
    if (length_ == 0) node.at("length").bad("is 0");
  }
  void apply(std::vector<Piece>& pieces, TextArena&) const override {
    split_pieces(pieces, [this](std::string_view text) {
      std::vector<Span> spans;
      size_t count = 0, begin = 0;
      for (size_t at = 0; at < text.size();) {
        utf8::next(text, at);
        if (++count % length_ != 0 && at < text.size()) continue;
        spans.push_back({begin, at, false});
        begin = at;
      }
      return spans;
    });
  }

 private:
  size_t length_;
};

class SequenceSplitter final : public PieceSplitter {
 public:
  SequenceSplitter(const JsonNode& node, int depth) {
    for (const JsonNode& item : node.at("pretokenizers").items())
      parts_.push_back(make_piece_splitter(item, depth + 1));
  }
  void apply(std::vector<Piece>& pieces, TextArena& arena) const override {
    for (const auto& part : parts_) part->apply(pieces, arena);
  }
  bool ends_in_byte_alphabet() const override {
    return !parts_.empty() && parts_.back()->ends_in_byte_alphabet();
  }
  void leave_bytes() override { parts_.back()->leave_bytes(); }
  bool uses_start() const override {
    return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->uses_start(); });
  }

 private:
  std::vector<std::unique_ptr<PieceSplitter>> parts_;
};

bool is_number(uint32_t c) { return (unicode::classes(c) & unicode::kNumber) != 0; }

}  // namespace

std::unique_ptr<PieceSplitter> make_piece_splitter(const JsonNode& node, int depth) {
  if (depth > kMaxNesting) node.bad("is nested too deeply");
  const std::string type = node.at("type").string();
  if (type == "Sequence") return std::make_unique<SequenceSplitter>(node, depth);
  if (type == "ByteLevel") return std::make_unique<ByteLevelSplitter>(node);
  if (type == "BertPreTokenizer") return std::make_unique<BertSplitter>();
  if (type == "Metaspace") return std::make_unique<MetaspaceSplitter>(node);
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return character_splitter(&unicode::is_whitespace, Behavior::kRemoved);
  if (type == "Digits")
    return character_splitter(
        &is_number, node.flag("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous);
  if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    return character_splitter(&is_bert_punctuation,
                              behavior ? parse_behavior(*behavior) : Behavior::kIsolated);
  }
  if (type == "CharDelimiterSplit") {
    const std::string& text = node.at("delimiter").string();
    size_t end = 0;
    const uint32_t delimiter = text.empty() ? utf8::kInvalid : utf8::next(text, end);
    if (delimiter == utf8::kInvalid || end != text.size()) node.at("delimiter").bad("is not one character");
    return character_splitter([delimiter](uint32_t c) { return c == delimiter; }, Behavior::kRemoved);
  }
  if (type == "Split") return std::make_unique<Split>(node);
  if (type == "UnicodeScripts") return std::make_unique<UnicodeScripts>();
  if (type == "FixedLength") return std::make_unique<FixedLength>(node);
  fail(ErrorCode::kUnsupported, "{} has the unknown type \"{}\"", node.place(), type);
}

}  // namespace millrace::text
