#include "text/template/strings.h"

#include <string.h>  // memmem
#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "core/utf8.h"

namespace millrace::text::jinja {

namespace {

utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Characters whose upper case is longer than one character (Unicode's SpecialCasing, unconditional part),
/// those that occur in texts.
struct SpecialUpper {
  uint32_t from;
  const char* upper;
  const char* title;
};
constexpr SpecialUpper kSpecialUpper[] = {
    {0x00df, "SS", "Ss"},
    {0x0149, "\u02bcN", "\u02bcN"},
    {0x01f0, "J\u030c", "J\u030c"},
    {0x0390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x03b0, "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {0x0587, "\u0535\u0552", "\u0535\u0582"},
    {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"},
    {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"},
    {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"},
    {0xfb06, "ST", "St"},
};

void append_upper(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : static_cast<char>(c));
    return;
  }
  for (const SpecialUpper& s : kSpecialUpper)
    if (s.from == c) {
      out += s.upper;
      return;
    }
  utf8::append(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, uint32_t c) {
  if (c < 0x80) {
    append_upper(out, c);
    return;
  }
  for (const SpecialUpper& s : kSpecialUpper)
    if (s.from == c) {
      out += s.title;
      return;
    }
  utf8::append(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

bool is_cased(uint32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

bool is_case_ignorable(uint32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xb7 || c == 0x2019) return true;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK;
}

/// A capital sigma becomes a final sigma after a cased letter that no cased letter follows.
bool is_final_sigma(std::string_view text, size_t at, size_t after) {
  bool cased_before = false;
  for (size_t i = at; i > 0;) {
    size_t start = i - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    size_t step = start;
    const uint32_t c = utf8::next(text, step);
    if (!is_case_ignorable(c)) {
      cased_before = is_cased(c);
      break;
    }
    i = start;
  }
  if (!cased_before) return false;
  while (after < text.size()) {
    const uint32_t c = utf8::next(text, after);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t at, size_t after, uint32_t c) {
  if (c < 0x80) {
    out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c));
  } else if (c == 0x130) {
    out += "i\u0307";
  } else if (c == 0x3a3) {
    utf8::append(out, is_final_sigma(text, at, after) ? 0x3c2 : 0x3c3);
  } else {
    utf8::append(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_line_end(uint32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

size_t previous(std::string_view text, size_t at) {
  --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

}  // namespace

bool is_space(uint32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_alpha(uint32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_upper(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216f) || (c >= 0x24b6 && c <= 0x24cf);
}

bool is_lower(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba || (c >= 0x2b0 && c <= 0x2b8) ||
         (c >= 0x2170 && c <= 0x217f) || (c >= 0x24d0 && c <= 0x24e9);
}

bool is_decimal(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(uint32_t c) {
  return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) ||
         (c >= 0x2474 && c <= 0x247c) || (c >= 0x2488 && c <= 0x2490) || c == 0x24ea ||
         (c >= 0x24f5 && c <= 0x24fd) || c == 0x24ff || (c >= 0x2776 && c <= 0x277e) ||
         (c >= 0x2780 && c <= 0x2788) || (c >= 0x278a && c <= 0x2792);
}

bool is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto kind = category(c);
  if (kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO)
    return true;
  constexpr std::u32string_view kIdeographs =
      U"一二三四五六七八九十百千万亿億兆零〇壹贰叁肆伍陆柒捌玖拾佰仟萬";
  return kIdeographs.find(static_cast<char32_t>(c)) != std::u32string_view::npos;
}

bool is_word_character(uint32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

bool is_printable(uint32_t c) {
  if (c < 0x7f) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_identifier_start(uint32_t c) {
  return c == '_' || is_alpha(c) || (c >= 0x80 && category(c) == UTF8PROC_CATEGORY_NL);
}

bool is_identifier_part(uint32_t c) {
  if (is_identifier_start(c) || is_decimal(c)) return true;
  if (c < 0x80) return false;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_PC ||
         c == 0xb7;
}

int64_t code_points(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

size_t byte_offset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return at;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  // Reversed, so that the search stays linear.
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const size_t at = find_text(reversed_text, reversed_needle);
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

int64_t count_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) return code_points(text) + 1;
  int64_t n = 0;
  for (size_t at = find_text(text, needle); at != std::string_view::npos;
       at = find_text(text, needle, at + needle.size()))
    ++n;
  return n;
}

int64_t count_replacements(std::string_view text, std::string_view from, int64_t count) {
  const int64_t all = count_text(text, from);
  return count < 0 ? all : std::min(all, count);
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  if (from.empty()) {
    // Between all characters and at both ends.
    size_t at = 0;
    while (count != 0) {
      out += to;
      if (count > 0) --count;
      if (at >= text.size()) return out;
      const size_t start = at;
      utf8::next(text, at);
      out += text.substr(start, at - start);
    }
    out += text.substr(at);
    return out;
  }
  size_t at = 0;
  while (count != 0) {
    const size_t found = find_text(text, from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
    if (count > 0) --count;
  }
  out += text.substr(at);
  return out;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters) {
  std::vector<uint32_t> set;
  if (characters)
    for (size_t at = 0; at < characters->size();) set.push_back(utf8::next(*characters, at));
  std::sort(set.begin(), set.end());
  const auto drop = [&](uint32_t c) {
    return characters ? std::binary_search(set.begin(), set.end(), c) : is_space(c);
  };
  size_t start = 0, end = text.size();
  if (side & kLeft) {
    while (start < end) {
      size_t after = start;
      if (!drop(utf8::next(text, after))) break;
      start = after;
    }
  }
  if (side & kRight) {
    while (end > start) {
      const size_t before = previous(text, end);
      size_t step = before;
      if (!drop(utf8::next(text, step))) break;
      end = before;
    }
  }
  return text.substr(start, end - start);
}

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    int64_t limit) {
  std::vector<std::string_view> parts;
  if (separator) {
    size_t at = 0;
    while (limit != 0) {
      const size_t found = find_text(text, *separator, at);
      if (found == std::string_view::npos) break;
      parts.push_back(text.substr(at, found - at));
      at = found + separator->size();
      if (limit > 0) --limit;
    }
    parts.push_back(text.substr(at));
    return parts;
  }
  text = strip(text, kLeft);
  while (!text.empty()) {
    if (limit == 0) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t after = end;
      if (is_space(utf8::next(text, after))) break;
      end = after;
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), kLeft);
    if (limit > 0) --limit;
  }
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text, std::optional<std::string_view> separator,
                                     int64_t limit) {
  if (limit < 0) return split(text, separator, limit);
  std::vector<std::string_view> parts;
  if (separator) {
    // The last `limit` separators, counted from the end without overlap: a search in the reversed text is
    // linear.
    const std::string reversed(text.rbegin(), text.rend());
    const std::string needle(separator->rbegin(), separator->rend());
    size_t at = 0;
    while (limit-- > 0) {
      const size_t found = find_text(reversed, needle, at);
      if (found == std::string_view::npos) break;
      parts.push_back(text.substr(text.size() - found, found - at));
      at = found + needle.size();
    }
    text = text.substr(0, text.size() - at);
    parts.push_back(text);
  } else {
    text = strip(text, kRight);
    while (!text.empty()) {
      if (limit-- == 0) {
        parts.push_back(text);
        break;
      }
      size_t start = text.size();
      while (start > 0) {
        const size_t before = previous(text, start);
        size_t step = before;
        if (is_space(utf8::next(text, step))) break;
        start = before;
      }
      parts.push_back(text.substr(start));
      text = strip(text.substr(0, start), kRight);
    }
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, LineEnds ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const uint32_t c = utf8::next(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (ends == LineEnds::kKeep ? at : before) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_upper(out, utf8::next(text, at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const uint32_t c = utf8::next(text, at);
    append_lower(out, text, before, at, c);
  }
  return out;
}

std::string to_casefold(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  if (length < 0) return to_lower(text);
  std::string out(reinterpret_cast<const char*>(folded), static_cast<size_t>(length));
  free(folded);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const uint32_t c = utf8::next(text, at);
    if (inside) {
      append_lower(out, text, before, at, c);
    } else {
      append_title(out, c);
    }
    inside = is_cased(c);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const uint32_t c = utf8::next(text, at);
    if (before == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, before, at, c);
    }
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const uint32_t c = utf8::next(text, at);
    if (is_upper(c)) {
      append_lower(out, text, before, at, c);
    } else {
      append_upper(out, c);
    }
  }
  return out;
}

std::string python_quoted(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = utf8::next(text, at);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      utf8::append(out, c);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\U{:08x}", c);
    }
  }
  out.push_back(quote);
  return out;
}

void append_json_string(std::string& out, std::string_view text, bool ascii_only) {
  out.push_back('"');
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const uint32_t c = utf8::next(text, at);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c < 0x20 || (c == 0x7f && ascii_only)) {
          out += fmt::format("\\u{:04x}", c);
        } else if (c < 0x80 || !ascii_only) {
          out += text.substr(before, at - before);
        } else if (c < 0x10000) {
          out += fmt::format("\\u{:04x}", c);
        } else {
          const uint32_t rest = c - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
        }
    }
  }
  out.push_back('"');
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto [end, ec] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  (void)ec;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string sign;
  if (text.front() == '-') {
    sign = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  std::string_view power = text.substr(e + 1);
  if (power.front() == '+') power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(text.substr(0, e));
  digits.erase(std::remove(digits.begin(), digits.end(), '.'), digits.end());
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (count > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02d}", sign, mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

}  // namespace millrace::text::jinja
