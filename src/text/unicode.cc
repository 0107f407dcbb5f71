#include "text/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "core/error.h"
#include "core/utf8.h"

namespace millrace::text::unicode {
namespace {

struct Range {
  uint32_t first, last;
};

/// Script=Han of Unicode's Scripts.txt (15.0); utf8proc has no scripts.
constexpr Range kHanRanges[] = {
    {0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},   {0x3007, 0x3007},
    {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfa6d},
    {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3}, {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739},
    {0x2b740, 0x2b81d}, {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2f800, 0x2fa1d}, {0x30000, 0x3134a},
    {0x31350, 0x323af},
};

/// BERT's own list; its last-but-two block starts at 0x2b920 in the published implementations.
constexpr Range kBertIdeographs[] = {
    {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
    {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
};

/// Symbols with the property Alphabetic: letters in circles and squares.
constexpr Range kAlphabeticSymbols[] = {
    {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

template <size_t N>
bool contains(const Range (&ranges)[N], uint32_t c) {
  const Range* it = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                     [](uint32_t value, const Range& range) { return value < range.first; });
  return it != std::begin(ranges) && c <= std::prev(it)->last;
}

uint16_t classes_of_category(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpper;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kOtherLetter;
    case UTF8PROC_CATEGORY_MN:
      return kMark | kNonspacing;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
      return kNumber | kDigit;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return 0;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return kControl;
    default:
      return 0;
  }
}

uint16_t compute_classes(uint32_t c) {
  uint16_t result = classes_of_category(c);
  if (is_whitespace(c)) result |= kSpace;
  if (c == '\n' || c == '\r') result |= kNewline;
  if (is_han(c)) result |= kHan;
  return result;
}

using Plane = std::array<uint16_t, 0x10000>;

/// Classes of the first plane, where nearly all text lies.
const Plane& first_plane() {
  static const std::unique_ptr<const Plane> plane = [] {
    auto made = std::make_unique<Plane>();
    for (uint32_t c = 0; c < made->size(); ++c) (*made)[c] = compute_classes(c);
    return made;
  }();
  return *plane;
}

}  // namespace

bool is_whitespace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  const uint16_t mask = classes(c);
  if ((mask & (kLetter | kMark | kDigit)) != 0) return true;
  if ((mask & kNumber) != 0)
    return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_NL;
  if ((mask & kPunctuation) != 0)
    return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_PC;
  return contains(kAlphabeticSymbols, c);
}

bool is_han(uint32_t c) { return c >= 0x2e80 && contains(kHanRanges, c); }

bool is_bert_ideograph(uint32_t c) { return c >= 0x3400 && contains(kBertIdeographs, c); }

uint16_t classes(uint32_t c) {
  static const Plane& plane = first_plane();
  if (c < plane.size()) return plane[c];
  if (c > 0x10ffff) return 0;
  return compute_classes(c);
}

Step step(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {classes(lead), 1};
  size_t end = at;
  const uint32_t c = utf8::next(text, end);
  return {classes(c), static_cast<uint8_t>(end - at)};
}

namespace {

/// Normalises well-formed `text` and appends it.
void append_normalized(std::string& out, std::string_view text, Form form) {
  int options = UTF8PROC_STABLE;
  if (form == Form::kNfc || form == Form::kNfkc)
    options |= UTF8PROC_COMPOSE;
  else
    options |= UTF8PROC_DECOMPOSE;
  if (form == Form::kNfkc || form == Form::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  require(size >= 0, ErrorCode::kOutOfMemory, "Unicode normalisation of {} bytes failed: {}", text.size(),
          utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

}  // namespace

std::string normalize(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const size_t bad = utf8::find_invalid(text);
    const std::string_view good = text.substr(0, bad);
    if (!good.empty()) append_normalized(out, good, form);
    if (bad == std::string_view::npos) break;
    out += text[bad];
    text.remove_prefix(bad + 1);
  }
  return out;
}

void append_lower(std::string& out, uint32_t c) {
  // U+0130 is the only character whose lower case is two characters (SpecialCasing.txt, unconditional part).
  if (c == 0x130) {
    out += "i\xcc\x87";
    return;
  }
  utf8::append(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = utf8::next(text, at);
    if (c == utf8::kInvalid)
      out.append(text.substr(begin, at - begin));
    else
      append_lower(out, c);
  }
  return out;
}

}  // namespace millrace::text::unicode
