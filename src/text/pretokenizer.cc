#include "text/pretokenizer.h"

#include <array>

#include "core/error.h"
#include "core/utf8.h"
#include "text/unicode.h"

namespace millrace::text {
namespace {

/// Appends `end` unless it would make an empty part.
void add_end(std::vector<uint32_t>& ends, size_t first, size_t end) {
  const uint32_t last = ends.size() > first ? ends.back() : 0;
  if (end > last) ends.push_back(static_cast<uint32_t>(end));
}

class RegexStage final : public PreStage {
 public:
  RegexStage(std::string_view pattern, const std::string& origin) : regex_(pattern, origin) {}

  void cut(std::string_view text, std::vector<uint32_t>& ends) const override {
    const size_t first = ends.size();
    Regex::Match match{};
    for (size_t from = 0; from <= text.size() && regex_.find(text, from, match);) {
      add_end(ends, first, match.begin);
      add_end(ends, first, match.end);
      from = match.end;
      if (match.end > match.begin) continue;
      if (from >= text.size()) break;
      utf8::next(text, from);
    }
    add_end(ends, first, text.size());
  }

 private:
  Regex regex_;
};

class ScanStage final : public PreStage {
 public:
  explicit ScanStage(const ScanRule& rule) : rule_(rule) {}
  void cut(std::string_view text, std::vector<uint32_t>& ends) const override {
    for (size_t at = 0; at < text.size();) {
      at = scan_word(rule_, text, at);
      ends.push_back(static_cast<uint32_t>(at));
    }
  }

 private:
  ScanRule rule_;
};

/// Runs of one class, at most `most` characters each (0: any length): \p{N}, \p{N}{1,3}, \p{N}+.
class ClassStage final : public PreStage {
 public:
  ClassStage(uint16_t mask, size_t most) : mask_(mask), most_(most) {}
  void cut(std::string_view text, std::vector<uint32_t>& ends) const override {
    const size_t first = ends.size();
    for (size_t at = 0; at < text.size();) {
      const unicode::Step head = unicode::step(text, at);
      if ((head.classes & mask_) == 0) {
        at += head.length;
        continue;
      }
      add_end(ends, first, at);
      for (size_t count = 0; at < text.size() && (most_ == 0 || count < most_); ++count) {
        const unicode::Step s = unicode::step(text, at);
        if ((s.classes & mask_) == 0) break;
        at += s.length;
      }
      add_end(ends, first, at);
    }
    add_end(ends, first, text.size());
  }

 private:
  uint16_t mask_;
  size_t most_;
};

/// Digits in groups of three counted from the right, as thousands are written. As regular expressions these
/// patterns look ahead over the whole number at every digit, which is quadratic.
class ThousandsStage final : public PreStage {
 public:
  enum class Form {
    kBorders,  ///< (?=(\d{3})+(?!\d)): cuts before every group of three
    kGroups,   ///< \d{1,3}(?=(?:\d{3})*\b): groups are words, in numbers that no letter follows
  };
  explicit ThousandsStage(Form form) : form_(form) {}

  void cut(std::string_view text, std::vector<uint32_t>& ends) const override {
    const size_t first = ends.size();
    std::vector<size_t> digits;
    for (size_t at = 0; at < text.size();) {
      unicode::Step s = unicode::step(text, at);
      if ((s.classes & unicode::kDigit) == 0) {
        at += s.length;
        continue;
      }
      digits.clear();
      while (at < text.size()) {
        s = unicode::step(text, at);
        if ((s.classes & unicode::kDigit) == 0) break;
        digits.push_back(at);
        at += s.length;
      }
      if (form_ == Form::kGroups && at < text.size() && continues_word(text, at)) continue;
      if (form_ == Form::kGroups) add_end(ends, first, digits.front());
      for (size_t i = digits.size() % 3; i < digits.size(); i += 3) add_end(ends, first, digits[i]);
      if (form_ == Form::kGroups) add_end(ends, first, at);
    }
    add_end(ends, first, text.size());
  }

 private:
  /// Whether the character at `at` is in \w, so that no \b stands before it.
  static bool continues_word(std::string_view text, size_t at) {
    return unicode::is_word(utf8::next(text, at));
  }

  Form form_;
};

struct KnownScan {
  std::string_view pattern;
  ScanRule rule;
};

constexpr ScanRule gpt4(uint8_t digits, bool contractions = true, bool marks = false) {
  return {ScanRule::Shape::kGpt4, digits, contractions, marks, false, false};
}
constexpr ScanRule gpt4o(uint8_t digits, bool contractions, bool slash, bool han) {
  return {ScanRule::Shape::kGpt4o, digits, contractions, false, slash, han};
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT4_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CASED(ending)                                                                                \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" ending \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" ending
#define CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/// Spellings of the patterns that scanners stand for, as published files and the rules of pre_rules.cc write
/// them.
const KnownScan kKnownScans[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", {}},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)", {}},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", {}},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" GPT4_TAIL, gpt4(3)},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" GPT4_TAIL, gpt4(1)},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+" GPT4_TAIL, gpt4(0)},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                  "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     gpt4(1, true, true)},
    {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" GPT4_TAIL, gpt4(1, false)},
    {CASED(CONTRACTIONS "?") "|\\p{N}{1,3}" CASED_TAIL, gpt4o(3, true, true, false)},
    {CASED("") "|\\p{N}" CASED_TAIL, gpt4o(1, false, true, false)},
    {"\\p{Han}+"
     "|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])*"
     "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])+" CONTRACTIONS "?"
     "|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])+"
     "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])*" CONTRACTIONS "?|\\p{N}{1,3}" GPT4_TAIL,
     gpt4o(3, true, false, true)},
};

struct KnownClass {
  std::string_view pattern;
  uint16_t mask;
  size_t most;
};
constexpr KnownClass kKnownClasses[] = {
    {"\\p{N}", unicode::kNumber, 1}, {"\\p{N}{1,3}", unicode::kNumber, 3}, {"\\p{N}+", unicode::kNumber, 0}};

}  // namespace

std::optional<ScanRule> scan_rule_of(std::string_view pattern) {
  for (const KnownScan& known : kKnownScans)
    if (known.pattern == pattern) return known.rule;
  return std::nullopt;
}

std::unique_ptr<PreStage> make_regex_stage(std::string_view pattern, const std::string& origin) {
  return std::make_unique<RegexStage>(pattern, origin);
}

std::unique_ptr<PreStage> make_stage(std::string_view pattern, const std::string& origin) {
  if (const std::optional<ScanRule> rule = scan_rule_of(pattern)) return std::make_unique<ScanStage>(*rule);
  for (const KnownClass& known : kKnownClasses)
    if (known.pattern == pattern) return std::make_unique<ClassStage>(known.mask, known.most);
  if (pattern == "(?=(\\d{3})+(?!\\d))")
    return std::make_unique<ThousandsStage>(ThousandsStage::Form::kBorders);
  if (pattern == "\\d{1,3}(?=(?:\\d{3})*\\b)")
    return std::make_unique<ThousandsStage>(ThousandsStage::Form::kGroups);
  return make_regex_stage(pattern, origin);
}

PreTokenizer::PreTokenizer(const std::vector<std::string_view>& patterns, const std::string& origin) {
  if (patterns.size() == 1) scan_ = scan_rule_of(patterns[0]);
  if (scan_) return;
  for (const std::string_view pattern : patterns) stages_.push_back(make_stage(pattern, origin));
}

void PreTokenizer::cut(std::string_view text, std::vector<uint32_t>& ends) const {
  ends.assign(1, static_cast<uint32_t>(text.size()));
  std::vector<uint32_t> parts, local;
  for (const std::unique_ptr<PreStage>& stage : stages_) {
    parts.clear();
    uint32_t begin = 0;
    for (const uint32_t end : ends) {
      local.clear();
      stage->cut(text.substr(begin, end - begin), local);
      for (const uint32_t offset : local) parts.push_back(begin + offset);
      begin = end;
    }
    ends.swap(parts);
  }
}

std::pair<size_t, size_t> PreTokenizer::next_run(std::string_view text) {
  const size_t bad = utf8::find_invalid(text);
  if (bad == std::string_view::npos) return {text.size(), 0};
  size_t end = bad;
  while (end < text.size()) {
    size_t next = end;
    if (utf8::next(text, next) != utf8::kInvalid) break;
    end = next;
  }
  return {bad, end - bad};
}

}  // namespace millrace::text
