// Filters that lay text out: wordwrap as Python's textwrap breaks lines, pprint as Python's pprint does, and
// striptags.
#include <algorithm>

#include "core/utf8.h"
#include "text/template/builtins.h"
#include "text/template/html_text.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

using Characters = std::u32string;

Characters to_characters(std::string_view text) {
  Characters out;
  for (size_t at = 0; at < text.size();) out.push_back(static_cast<char32_t>(utf8::next(text, at)));
  return out;
}

void append_characters(std::string& out, std::u32string_view characters) {
  for (const char32_t c : characters) utf8::append(out, c);
}

// --- wordwrap ---

/// Splits a line into what may not be broken: words, their parts behind hyphens, dashes, white space.
class Chunker {
 public:
  explicit Chunker(const Characters& text) : text_(text), dashes_(text.size() + 1, 0) {
    for (size_t i = text.size(); i-- > 0;)
      if (text[i] == '-') dashes_[i] = dashes_[i + 1] + 1;
  }

  /// End of the chunk that begins at `start`.
  size_t end_of(size_t start, bool hyphens) const {
    size_t end = start;
    if (space(start)) {
      while (space(end)) ++end;
      return end;
    }
    if (!hyphens) {
      while (end < text_.size() && !space(end)) ++end;
      return end;
    }
    if (between_words(start)) return start + dashes_[start];
    for (end = start + 1;; ++end) {
      if (end >= text_.size() || space(end)) return end;
      if (hyphenated(end)) return end + 1;
      if (between_words(end)) return end;
    }
  }

 private:
  bool space(size_t i) const {
    return i < text_.size() && (text_[i] == ' ' || (text_[i] >= '\t' && text_[i] <= '\r'));
  }
  bool letter(size_t i) const {
    return i < text_.size() && is_word_character(text_[i]) && !is_decimal(text_[i]);
  }
  /// Two or more dashes from `i`, a word before and behind.
  bool between_words(size_t i) const {
    if (dashes_[i] < 2 || i == 0) return false;
    const char32_t before = text_[i - 1];
    const bool word = is_word_character(before) ||
                      (before < 0x80 && std::string_view("!\"'&.,?").find(static_cast<char>(before)) !=
                                            std::string_view::npos);
    const size_t behind = i + dashes_[i];
    return word && behind < text_.size() && is_word_character(text_[behind]);
  }
  /// The hyphen of a compound word at `i`.
  bool hyphenated(size_t i) const {
    if (text_[i] != '-' || i == 0 || !letter(i - 1) || !letter(i + 1)) return false;
    const bool before = (i >= 2 && letter(i - 2)) || (i >= 3 && text_[i - 2] == '-' && letter(i - 3));
    const bool behind = letter(i + 2) || (i + 2 < text_.size() && text_[i + 2] == '-' && letter(i + 3));
    return before && behind;
  }

  const Characters& text_;
  std::vector<size_t> dashes_;
};

bool is_blank(std::u32string_view chunk) {
  return std::all_of(chunk.begin(), chunk.end(), [](char32_t c) { return is_space(c); });
}

struct WrapStyle {
  size_t width = 79;
  bool break_words = true;
  bool split_at_hyphens = true;  ///< where lines end
  bool break_at_hyphens = true;  ///< where a long word is cut
};

/// How much of `chunk`, too long for any line, goes where `room` is left.
size_t cut_of(std::u32string_view chunk, size_t room, bool at_hyphens) {
  if (!at_hyphens || chunk.size() <= room) return std::min(room, chunk.size());
  const size_t hyphen = chunk.substr(0, room).rfind(U'-');
  if (hyphen == std::u32string_view::npos || hyphen == 0) return room;
  const bool only_hyphens = chunk.substr(0, hyphen).find_first_not_of(U'-') == std::u32string_view::npos;
  return only_hyphens ? room : hyphen + 1;
}

std::vector<std::string> wrap_line(const Characters& text, const WrapStyle& style) {
  std::vector<std::u32string_view> chunks;  // the next one last
  const Chunker chunker(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = chunker.end_of(at, style.split_at_hyphens);
    chunks.push_back(std::u32string_view(text).substr(at, end - at));
    at = end;
  }
  std::reverse(chunks.begin(), chunks.end());
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    std::vector<std::u32string_view> line;
    size_t length = 0;
    if (!lines.empty() && is_blank(chunks.back())) chunks.pop_back();
    while (!chunks.empty() && length + chunks.back().size() <= style.width) {
      length += chunks.back().size();
      line.push_back(chunks.back());
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().size() > style.width) {
      if (style.break_words) {
        const size_t cut = cut_of(chunks.back(), style.width - length, style.break_at_hyphens);
        line.push_back(chunks.back().substr(0, cut));
        chunks.back().remove_prefix(cut);
      } else if (line.empty()) {
        line.push_back(chunks.back());
        chunks.pop_back();
      }
    }
    if (!line.empty() && is_blank(line.back())) line.pop_back();
    if (line.empty()) continue;
    std::string out;
    for (const std::u32string_view chunk : line) append_characters(out, chunk);
    lines.push_back(std::move(out));
  }
  return lines;
}

Value filter_wordwrap(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  if (value.is_undefined()) undefined_error(value);
  if (!value.is_string()) run_error("wordwrap needs a string, got '{}'", type_name(value));
  const std::string& text = value.text();
  const int64_t width = bound.integer(0, 79);
  WrapStyle style;
  style.break_words = bound.flag(1, true);
  const std::string between(bound.given(2) != nullptr ? bound.text(2, "") : "\n");
  style.break_at_hyphens = bound.flag(3, true);
  style.split_at_hyphens = !bound.has(3) || (bound[3].is(Kind::kBool) && bound.flag(3, true));
  const auto lines = split_lines(text, LineEnds::kDrop);
  if (width <= 0 && !lines.empty()) run_error("invalid width {} (must be > 0)", width);
  style.width = static_cast<size_t>(std::max<int64_t>(width, 1));
  rt.charge(1 + text.size() / 8);
  rt.check_room(40 * text.size());
  std::string out;
  bool first_line = true;
  for (const std::string_view line : lines) {
    if (!std::exchange(first_line, false)) out += between;
    bool first = true;
    for (const std::string& piece : wrap_line(to_characters(line), style)) {
      rt.reserve(out, between.size() + piece.size());
      if (!std::exchange(first, false)) out += between;
      out += piece;
    }
  }
  return rt.string(std::move(out));
}

// --- pprint ---

constexpr int64_t kPageWidth = 80;

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Runtime& runtime) : rt_(runtime) {}

  /// `allowance`: characters that follow behind it on the same line.
  void format(const Value& value, int64_t indent, int64_t allowance, int level) {
    const std::string plain = repr(value);
    if (code_points(plain) > kPageWidth - indent - allowance && (is_container(value) || is_plain(value))) {
      if (value.is_string()) return format_text(value, indent, allowance, level + 1);
      if (value.is(Kind::kDict)) return format_dict(value, indent, allowance, level + 1);
      return format_items(value, indent, allowance, level + 1);
    }
    write(plain);
  }

  std::string take() { return std::move(out_); }

 private:
  using Entry = std::pair<Value, Value>;

  static bool is_plain(const Value& value) { return value.is_string() && !value.as<StringObject>().markup; }
  static bool is_container(const Value& value) {
    return value.is(Kind::kDict) || (value.is_sequence() && !value.as<SequenceObject>().group);
  }

  /// By key where the keys have an order, else by the name of their types.
  static std::vector<const Entry*> sorted(const Value& dict) {
    std::vector<const Entry*> entries;
    for (const Entry& entry : dict.dict().entries) entries.push_back(&entry);
    std::stable_sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) {
      try {
        return less(a->first, b->first);
      } catch (const RunError& e) {
        if (e.code() == ErrorCode::kLimitExceeded) throw;
        return std::string_view(type_name(a->first)) < type_name(b->first);
      }
    });
    return entries;
  }

  void append_repr(std::string& out, const Value& value) {
    rt_.charge(1);
    rt_.check_room(out.size());
    if (!is_container(value)) {
      out += rt_.repr(value);
      return;
    }
    bool first = true;
    if (value.is(Kind::kDict)) {
      out += "{";
      for (const Entry* entry : sorted(value)) {
        if (!std::exchange(first, false)) out += ", ";
        append_repr(out, entry->first);
        out += ": ";
        append_repr(out, entry->second);
      }
      out += "}";
      return;
    }
    out += value.is(Kind::kTuple) ? "(" : "[";
    for (const Value& item : value.items()) {
      if (!std::exchange(first, false)) out += ", ";
      append_repr(out, item);
    }
    out += !value.is(Kind::kTuple) ? "]" : value.items().size() == 1 ? ",)" : ")";
  }

  std::string repr(const Value& value) {
    std::string out;
    append_repr(out, value);
    return out;
  }

  void write(std::string_view text) {
    rt_.reserve(out_, text.size());
    out_ += text;
  }
  void new_line(int64_t indent) {
    rt_.check_room(static_cast<size_t>(indent));
    write("\n" + std::string(static_cast<size_t>(indent), ' '));
  }

  void format_dict(const Value& dict, int64_t indent, int64_t allowance, int level) {
    write("{");
    const std::vector<const Entry*> entries = sorted(dict);
    for (size_t i = 0; i < entries.size(); ++i) {
      const bool last = i + 1 == entries.size();
      const std::string key = repr(entries[i]->first);
      write(key + ": ");
      format(entries[i]->second, indent + 3 + code_points(key), last ? allowance + 1 : 1, level);
      if (last) break;
      write(",");
      new_line(indent + 1);
    }
    write("}");
  }

  void format_items(const Value& list, int64_t indent, int64_t allowance, int level) {
    const Values& items = list.items();
    const bool tuple = list.is(Kind::kTuple);
    const std::string end = !tuple ? "]" : items.size() == 1 ? ",)" : ")";
    write(tuple ? "(" : "[");
    for (size_t i = 0; i < items.size(); ++i) {
      const bool last = i + 1 == items.size();
      format(items[i], indent + 1, last ? allowance + static_cast<int64_t>(end.size()) : 1, level);
      if (last) break;
      write(",");
      new_line(indent + 1);
    }
    write(end);
  }

  /// Words with the white space behind them.
  static std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    size_t start = 0;
    bool in_space = false;
    for (size_t at = 0; at < line.size();) {
      const size_t before = at;
      const bool space = is_space(utf8::next(line, at));
      if (in_space && !space) {
        words.push_back(line.substr(start, before - start));
        start = before;
      }
      in_space = space;
    }
    words.push_back(line.substr(start));
    return words;
  }

  /// A long text as several literals below each other.
  void format_text(const Value& value, int64_t indent, int64_t allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    const int64_t width = kPageWidth - indent;
    std::vector<std::string> chunks;
    std::string whole;
    const auto lines = split_lines(value.text(), LineEnds::kKeep);
    for (size_t i = 0; i < lines.size(); ++i) {
      const int64_t taken = i + 1 == lines.size() ? allowance : 0;
      whole = python_quoted(lines[i]);
      if (code_points(whole) <= width - taken) {
        chunks.push_back(whole);
        continue;
      }
      const auto words = words_of(lines[i]);
      std::string current;
      for (size_t j = 0; j < words.size(); ++j) {
        const std::string candidate = current + std::string(words[j]);
        rt_.budget().charge_bytes(candidate.size());
        if (code_points(python_quoted(candidate)) > width - (j + 1 == words.size() ? taken : 0)) {
          if (!current.empty()) chunks.push_back(python_quoted(current));
          current = words[j];
        } else {
          current = candidate;
        }
      }
      if (!current.empty()) chunks.push_back(python_quoted(current));
    }
    if (chunks.size() == 1) return write(whole);
    if (level == 1) write("(");
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) new_line(indent);
      write(chunks[i]);
    }
    if (level == 1) write(")");
  }

  Runtime& rt_;
  std::string out_;
};

Value filter_pprint(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("pprint", arguments, {});
  PrettyPrinter printer(rt);
  printer.format(value, 0, 0, 0);
  return rt.string(printer.take());
}

// --- striptags ---

Value filter_striptags(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("striptags", arguments, {});
  const std::string text = rt.str(value);
  rt.check_room(4 * text.size());
  rt.charge(1 + text.size() / 16);
  return rt.string(strip_tags(text));
}

constexpr FilterEntry kLayoutFilters[] = {
    {"pprint", filter_pprint}, {"striptags", filter_striptags}, {"wordwrap", filter_wordwrap}};

}  // namespace

std::span<const FilterEntry> layout_filters() { return kLayoutFilters; }

}  // namespace millrace::text::jinja
