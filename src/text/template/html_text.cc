#include "text/template/html_text.h"

#include <algorithm>
#include <optional>

#include "core/utf8.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

struct Entity {
  std::string_view name;
  uint32_t first, second;
};

constexpr Entity kEntities[] = {
#include "text/template/html_entities.inc"
};

/// Longest run of characters that HTML's names are looked for in.
constexpr int kMaxName = 32;

const Entity* find_entity(std::string_view name) {
  const auto* const at = std::lower_bound(std::begin(kEntities), std::end(kEntities), name,
                                          [](const Entity& e, std::string_view n) { return e.name < n; });
  return at != std::end(kEntities) && at->name == name ? at : nullptr;
}

void append_entity(std::string& out, const Entity& entity) {
  utf8::append(out, entity.first);
  if (entity.second != 0) utf8::append(out, entity.second);
}

/// What browsers of old took the bytes 0x80 to 0x9f for (Windows-1252).
constexpr uint32_t kWindows[32] = {0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021,
                                   0x2c6,  0x2030, 0x160,  0x2039, 0x152,  0x8d,   0x17d,  0x8f,
                                   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                   0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};

void append_numbered(std::string& out, uint32_t c) {
  if (c == 0 || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff) return utf8::append(out, 0xfffd);
  if (c == 0x0d) return out.push_back('\r');
  if (c >= 0x80 && c <= 0x9f) return utf8::append(out, kWindows[c - 0x80]);
  const bool nothing = c <= 0x8 || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
                       (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe;
  if (!nothing) utf8::append(out, c);
}

int digit_of(char c, int base) {
  int d = 99;
  if (c >= '0' && c <= '9') d = c - '0';
  if (c >= 'a' && c <= 'f') d = c - 'a' + 10;
  if (c >= 'A' && c <= 'F') d = c - 'A' + 10;
  return d < base ? d : -1;
}

/// "#65;" or "#x41" at the beginning of `text`; bytes taken, 0 when there is none.
size_t numbered(std::string_view text, std::string& out) {
  if (text.empty() || text[0] != '#') return 0;
  const bool hex = text.size() > 1 && (text[1] == 'x' || text[1] == 'X');
  const size_t start = hex ? 2 : 1;
  size_t at = start;
  uint32_t value = 0;
  for (; at < text.size(); ++at) {
    const int digit = digit_of(text[at], hex ? 16 : 10);
    if (digit < 0) break;
    value = std::min<uint32_t>(value * (hex ? 16 : 10) + static_cast<uint32_t>(digit), 0x110000);
  }
  if (at == start) return 0;
  append_numbered(out, value);
  return at < text.size() && text[at] == ';' ? at + 1 : at;
}

/// A name at the beginning of `text`, or the longest name that it begins with; bytes taken, 0 when none.
size_t named(std::string_view text, std::string& out) {
  constexpr std::string_view kEnds("\t\n\f <&#;");
  size_t at = 0;
  for (int n = 0; n < kMaxName && at < text.size() && kEnds.find(text[at]) == std::string_view::npos; ++n)
    utf8::next(text, at);
  if (at == 0) return 0;
  if (at < text.size() && text[at] == ';') ++at;
  for (size_t length = at; length > 1; --length)
    if (const Entity* entity = find_entity(text.substr(0, length))) {
      append_entity(out, *entity);
      return length;
    }
  return 0;
}

}  // namespace

std::string unescape_html(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t mark = std::min(text.find('&', at), text.size());
    out += text.substr(at, mark - at);
    at = mark;
    if (at == text.size()) break;
    const std::string_view rest = text.substr(at + 1);
    size_t taken = numbered(rest, out);
    if (taken == 0) taken = named(rest, out);
    if (taken == 0) out.push_back('&');
    at += 1 + taken;
  }
  return out;
}

std::string strip_tags(std::string_view text) {
  std::string plain;
  size_t at = 0;
  for (size_t start; (start = text.find('<', at)) != std::string_view::npos;) {
    const bool comment = text.substr(start, 4) == "<!--";
    const size_t end = comment ? text.find("-->", start + 4) : text.find('>', start);
    if (end == std::string_view::npos) break;
    plain += text.substr(at, start - at);
    at = end + (comment ? 3 : 1);
  }
  plain += text.substr(at);
  std::string joined;
  for (const std::string_view word : split(plain, {}, -1)) {
    if (!joined.empty()) joined.push_back(' ');
    joined += word;
  }
  return unescape_html(joined);
}

}  // namespace millrace::text::jinja
