// GPT-2's alphabet: every byte stands as one printable character, so that a vocabulary of text can hold any
// bytes. Printable Latin-1 stands for itself, the other 68 bytes are U+0100 onwards.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::text {

/// The character (as UTF-8) of each byte.
const std::array<std::string, 256>& byte_alphabet();

/// Value of an alphabet character, or -1.
int byte_of_letter(uint32_t code_point);

/// Bytes that a token spells; nullopt when it has a character outside the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view token);
std::string to_byte_alphabet(std::string_view bytes);

}  // namespace millrace::text
