// UTF-8 checks and steps that need no Unicode tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::utf8 {

inline constexpr uint32_t kInvalid = 0xffffffffu;

/// Decodes the code point at `at` and moves `at` past it. An ill-formed byte gives kInvalid and moves by one.
/// Overlong forms, surrogates and values beyond U+10FFFF are ill-formed (Unicode 15, table 3-7).
uint32_t next(std::string_view text, size_t& at);

/// Appends `code_point` (a valid scalar value).
void append(std::string& out, uint32_t code_point);

/// Offset of the first ill-formed byte, or npos.
size_t find_invalid(std::string_view text);

/// Length of the longest prefix that does not end inside a character which more bytes could complete.
size_t complete_prefix(std::string_view text);

/// Text with every ill-formed byte replaced by U+FFFD.
std::string replace_invalid(std::string_view text);

}  // namespace millrace::utf8
