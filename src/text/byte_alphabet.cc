#include "text/byte_alphabet.h"

#include "core/utf8.h"

namespace millrace::text {
namespace {

/// Code point of each byte, and byte of each code point below 0x144 (-1 for none).
struct Tables {
  std::array<uint32_t, 256> letters{};
  std::array<int16_t, 0x144> bytes{};
  constexpr Tables() {
    for (auto& byte : bytes) byte = -1;
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      letters[byte] = itself ? byte : next++;
      bytes[letters[byte]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr Tables kTables;

}  // namespace

const std::array<std::string, 256>& byte_alphabet() {
  static const std::array<std::string, 256> alphabet = [] {
    std::array<std::string, 256> made;
    for (size_t byte = 0; byte < 256; ++byte) utf8::append(made[byte], kTables.letters[byte]);
    return made;
  }();
  return alphabet;
}

int byte_of_letter(uint32_t c) { return c < kTables.bytes.size() ? kTables.bytes[c] : -1; }

std::optional<std::string> from_byte_alphabet(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    const int byte = byte_of_letter(utf8::next(token, at));
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) out += byte_alphabet()[static_cast<uint8_t>(c)];
  return out;
}

}  // namespace millrace::text
