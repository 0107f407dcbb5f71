#include "text/scanners.h"

#include "core/utf8.h"
#include "text/unicode.h"

namespace millrace::text {
namespace {

using namespace unicode;

constexpr uint16_t kWordLike = kSpace | kLetter | kNumber;

/// End of the run of characters with any of `mask` that begins at `at`.
size_t run_end(std::string_view text, size_t at, uint16_t mask) {
  while (at < text.size()) {
    const Step s = step(text, at);
    if ((s.classes & mask) == 0) break;
    at += s.length;
  }
  return at;
}

/// End of the run of characters with none of `mask`.
size_t run_end_without(std::string_view text, size_t at, uint16_t mask) {
  while (at < text.size()) {
    const Step s = step(text, at);
    if ((s.classes & mask) != 0) break;
    at += s.length;
  }
  return at;
}

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

/// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`, where an apostrophe stands; 0 for none.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  if (at + 1 >= text.size()) return 0;
  char first = text[at + 1];
  if (any_case) {
    // The long s is a case of s, as Unicode folds them.
    if (text.substr(at + 1, 2) == "\xc5\xbf") return 3;
    first = ascii_lower(first);
  }
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
    case 'l':
      break;
    default:
      return 0;
  }
  if (at + 2 >= text.size()) return 0;
  const char second = any_case ? ascii_lower(text[at + 2]) : text[at + 2];
  return second == (first == 'l' ? 'l' : 'e') ? 3 : 0;
}

/// Whitespace at `at`: \s+(?!\S)|\s+, and with `newlines` \s*[\r\n]+ before them.
size_t whitespace_end(std::string_view text, size_t at, bool newlines) {
  size_t end = at, last = at, behind_newline = 0, count = 0;
  while (end < text.size()) {
    const Step s = step(text, end);
    if ((s.classes & kSpace) == 0) break;
    last = end;
    end += s.length;
    ++count;
    if (newlines && (s.classes & kNewline) != 0) behind_newline = end;
  }
  if (behind_newline != 0) return behind_newline;
  // The last one of several belongs to the word behind it.
  return end == text.size() || count == 1 ? end : last;
}

/// Up to `most` numbers (0: any count).
size_t number_end(std::string_view text, size_t at, uint8_t most) {
  if (most == 0) return run_end(text, at, kNumber);
  for (uint8_t count = 0; count < most && at < text.size(); ++count) {
    const Step s = step(text, at);
    if ((s.classes & kNumber) == 0) break;
    at += s.length;
  }
  return at;
}

size_t scan_gpt2(std::string_view text, size_t at) {
  const Step first = step(text, at);
  if (text[at] == '\'') {
    if (const size_t length = contraction(text, at, false)) return at + length;
  }
  size_t body = at;
  Step head = first;
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Step behind = step(text, at + 1);
    if ((behind.classes & kSpace) == 0) {
      body = at + 1;
      head = behind;
    }
  }
  if ((head.classes & kLetter) != 0) return run_end(text, body + head.length, kLetter);
  if ((head.classes & kNumber) != 0) return run_end(text, body + head.length, kNumber);
  if ((head.classes & kSpace) == 0) return run_end_without(text, body + head.length, kWordLike);
  return whitespace_end(text, at, false);
}

/// ` ?[^\s\p{L}\p{N}]+` with newlines (and slashes) behind it; 0 when no such character stands there.
size_t punctuation_end(std::string_view text, size_t at, uint16_t outside, bool slash_tail) {
  size_t body = at;
  if (text[at] == ' ' && at + 1 < text.size()) body = at + 1;
  const Step head = step(text, body);
  if ((head.classes & outside) != 0) return 0;
  size_t end = run_end_without(text, body + head.length, outside);
  while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || (slash_tail && text[end] == '/')))
    ++end;
  return end;
}

size_t scan_gpt4(const ScanRule& rule, std::string_view text, size_t at) {
  const uint16_t letters = rule.marks_are_letters ? kLetter | kMark : kLetter;
  if (text[at] == '\'' && rule.contractions) {
    if (const size_t length = contraction(text, at, true)) return at + length;
  }
  const Step first = step(text, at);
  if ((first.classes & (kNewline | kLetter | kNumber)) == 0) {
    const size_t behind = at + first.length;
    if (behind < text.size()) {
      const Step second = step(text, behind);
      if ((second.classes & letters) != 0) return run_end(text, behind + second.length, letters);
    }
  }
  if ((first.classes & letters) != 0) return run_end(text, at + first.length, letters);
  if ((first.classes & kNumber) != 0) return number_end(text, at, rule.max_digits);
  if (const size_t end = punctuation_end(text, at, kSpace | letters | kNumber, false)) return end;
  return whitespace_end(text, at, true);
}

/// Classes that decide about case; Han is left out where it stands apart.
uint16_t cased(const ScanRule& rule, uint16_t classes) {
  return rule.han_apart && (classes & kHan) != 0 ? 0 : classes;
}

/// U*L+ from `at` as greedy matching with backtracking finds it; 0 for no match.
size_t upper_lower(const ScanRule& rule, std::string_view text, size_t at) {
  constexpr uint16_t kUpperSet = kUpper | kOtherLetter | kMark, kLowerSet = kLower | kOtherLetter | kMark;
  size_t end = at, behind_lower = 0;
  while (end < text.size()) {
    const Step s = step(text, end);
    const uint16_t c = cased(rule, s.classes);
    if ((c & kUpperSet) == 0) break;
    end += s.length;
    if ((c & kLowerSet) != 0) behind_lower = end;
  }
  const size_t upper_end = end;
  while (end < text.size()) {
    const Step s = step(text, end);
    if ((cased(rule, s.classes) & kLowerSet) == 0) break;
    end += s.length;
  }
  if (end > upper_end) return end;
  return behind_lower;
}

/// U+ from `at` where upper_lower found nothing, so that no character of it is in L.
size_t upper_only(const ScanRule& rule, std::string_view text, size_t at) {
  const size_t begin = at;
  while (at < text.size()) {
    const Step s = step(text, at);
    if ((cased(rule, s.classes) & (kUpper | kOtherLetter | kMark)) == 0) break;
    at += s.length;
  }
  return at > begin ? at : 0;
}

size_t with_ending(const ScanRule& rule, std::string_view text, size_t end) {
  if (!rule.contractions || end >= text.size() || text[end] != '\'') return end;
  return end + contraction(text, end, true);
}

size_t scan_gpt4o(const ScanRule& rule, std::string_view text, size_t at) {
  const Step first = step(text, at);
  if (rule.han_apart && (first.classes & kHan) != 0) return run_end(text, at, kHan);
  const bool prefix = (first.classes & (kNewline | kLetter | kNumber)) == 0;
  const size_t behind = at + first.length;
  size_t end = 0;
  if (prefix) end = upper_lower(rule, text, behind);
  if (end == 0) end = upper_lower(rule, text, at);
  if (end == 0 && prefix) end = upper_only(rule, text, behind);
  if (end == 0) end = upper_only(rule, text, at);
  if (end != 0) return with_ending(rule, text, end);
  if ((first.classes & kNumber) != 0) return number_end(text, at, rule.max_digits);
  if (const size_t tail = punctuation_end(text, at, kWordLike, rule.slash_tail)) return tail;
  return whitespace_end(text, at, true);
}

}  // namespace

size_t scan_word(const ScanRule& rule, std::string_view text, size_t at) {
  switch (rule.shape) {
    case ScanRule::Shape::kGpt4:
      return scan_gpt4(rule, text, at);
    case ScanRule::Shape::kGpt4o:
      return scan_gpt4o(rule, text, at);
    case ScanRule::Shape::kGpt2:
      break;
  }
  return scan_gpt2(text, at);
}

}  // namespace millrace::text
