#include "core/utf8.h"

namespace millrace::utf8 {
namespace {

/// Expected length from a lead byte; 0 for a byte that cannot lead.
int sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

/// Whether `byte` may stand at `index` (1..3) after `lead`.
bool continues(unsigned char lead, int index, unsigned char byte) {
  if ((byte & 0xc0) != 0x80) return false;
  if (index != 1) return true;
  switch (lead) {
    case 0xe0:
      return byte >= 0xa0;
    case 0xed:
      return byte <= 0x9f;
    case 0xf0:
      return byte >= 0x90;
    case 0xf4:
      return byte <= 0x8f;
    default:
      return true;
  }
}

}  // namespace

uint32_t next(std::string_view text, size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const int length = sequence_length(lead);
  if (length == 1) {
    ++at;
    return lead;
  }
  if (length == 0 || at + static_cast<size_t>(length) > text.size()) {
    ++at;
    return kInvalid;
  }
  uint32_t value = lead & (0x7fu >> length);
  for (int i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + static_cast<size_t>(i)]);
    if (!continues(lead, i, byte)) {
      ++at;
      return kInvalid;
    }
    value = (value << 6) | (byte & 0x3f);
  }
  at += static_cast<size_t>(length);
  return value;
}

void append(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

size_t find_invalid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (next(text, at) == kInvalid) return begin;
  }
  return std::string_view::npos;
}

size_t complete_prefix(std::string_view text) {
  // Only the last three bytes can be the start of an unfinished character.
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto lead = static_cast<unsigned char>(text[text.size() - back]);
    if ((lead & 0xc0) == 0x80) continue;
    const int length = sequence_length(lead);
    if (length <= static_cast<int>(back)) return text.size();
    for (size_t i = 1; i < back; ++i)
      if (!continues(lead, static_cast<int>(i), static_cast<unsigned char>(text[text.size() - back + i])))
        return text.size();
    return text.size() - back;
  }
  return text.size();
}

std::string replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (next(text, at) == kInvalid)
      out += "\xef\xbf\xbd";
    else
      out.append(text.substr(begin, at - begin));
  }
  return out;
}

}  // namespace millrace::utf8
