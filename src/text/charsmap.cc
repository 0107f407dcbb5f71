#include "text/charsmap.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/utf8.h"
#include "text/space_mark.h"

namespace millrace::text {
namespace {

/// Distance from a node to its children.
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
bool has_leaf(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t label_of(uint32_t unit) { return unit & ((1u << 31) | 0xff); }
uint32_t value_of(uint32_t unit) { return unit & ((1u << 31) - 1); }

}  // namespace

CharsMap::CharsMap(const std::vector<uint8_t>& data, const std::string& origin) {
  if (data.empty()) return;
  require(data.size() > 4, ErrorCode::kInvalidFile,
          "{}: a precompiled charsmap of {} bytes, expected more than 4", origin, data.size());
  const uint32_t size = static_cast<uint32_t>(data[0]) | static_cast<uint32_t>(data[1]) << 8 |
                        static_cast<uint32_t>(data[2]) << 16 | static_cast<uint32_t>(data[3]) << 24;
  require(size % 4 == 0 && size <= data.size() - 4, ErrorCode::kInvalidFile,
          "{}: the precompiled charsmap's table has {} bytes by its header, but {} follow", origin, size,
          data.size() - 4);
  units_.resize(size / 4);
  for (size_t i = 0; i < units_.size(); ++i) {
    const uint8_t* p = data.data() + 4 + i * 4;
    units_[i] = static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
                static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
  }
  replacements_.assign(data.begin() + 4 + size, data.end());
  require(replacements_.empty() || replacements_.back() == '\0', ErrorCode::kInvalidFile,
          "{}: the last replacement of the precompiled charsmap has no closing zero byte", origin);
}

CharsMap::Match CharsMap::search(std::string_view text, Take take) const {
  Match match;
  if (units_.empty()) return match;
  // Every step is checked: a damaged table ends the search instead of leaving the array.
  size_t node = offset_of(units_[0]);
  for (size_t at = 0; at < text.size() && text[at] != '\0'; ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (node >= units_.size()) break;
    if (!has_leaf(unit)) continue;
    const uint32_t value = value_of(units_[node]);
    if (value >= replacements_.size()) break;
    match = {at + 1, std::string_view(replacements_.c_str() + value)};
    if (take == Take::kShortest) break;
  }
  return match;
}

size_t PieceNormalizer::user_defined_prefix(std::string_view text) const {
  size_t longest = 0;
  auto begin = user_defined.begin(), end = user_defined.end();
  for (size_t depth = 0; begin != end && depth < text.size(); ++depth) {
    const auto byte = static_cast<unsigned char>(text[depth]);
    const auto at_depth = [depth](const std::string& s) {
      return depth < s.size() ? static_cast<int>(static_cast<unsigned char>(s[depth])) : -1;
    };
    begin = std::lower_bound(begin, end, byte, [&](const std::string& s, int b) { return at_depth(s) < b; });
    end = std::upper_bound(begin, end, byte, [&](int b, const std::string& s) { return b < at_depth(s); });
    if (begin != end && begin->size() == depth + 1) longest = depth + 1;
  }
  return longest;
}

std::string PieceNormalizer::apply(std::string_view text) const {
  const std::string_view space = escape_whitespaces ? kSpaceMark : std::string_view(" ");
  // One step: the replacement of what stands at the front, and how much of the text it replaces.
  std::string single;
  const auto next = [&](size_t& used) -> std::string_view {
    if (const size_t length = user_defined_prefix(text)) {
      used = length;
      return text.substr(0, length);
    }
    if (const CharsMap::Match match = charsmap.longest(text); match.length != 0) {
      used = match.length;
      return match.replacement;
    }
    used = 0;
    if (utf8::next(text, used) == utf8::kInvalid && !charsmap.empty()) return "\xef\xbf\xbd";
    return text.substr(0, used);
  };

  std::string out;
  out.reserve(text.size() + text.size() / 4 + 8);
  size_t used = 0;
  if (remove_extra_whitespaces) {
    while (!text.empty() && next(used) == " ") text.remove_prefix(used);
  }
  if (text.empty()) return out;
  if (add_dummy_prefix && !whitespace_as_suffix) out += space;
  bool after_space = remove_extra_whitespaces;
  while (!text.empty()) {
    std::string_view part = next(used);
    while (after_space && !part.empty() && part[0] == ' ') part.remove_prefix(1);
    for (const char c : part) {
      if (c == ' ')
        out += space;
      else
        out += c;
    }
    if (!part.empty()) after_space = remove_extra_whitespaces && part.back() == ' ';
    text.remove_prefix(used);
  }
  if (remove_extra_whitespaces) {
    while (out.size() >= space.size() && out.compare(out.size() - space.size(), space.size(), space) == 0)
      out.resize(out.size() - space.size());
  }
  if (add_dummy_prefix && whitespace_as_suffix) out += space;
  return out;
}

}  // namespace millrace::text
