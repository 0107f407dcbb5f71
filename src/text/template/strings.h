// Python's string operations over UTF-8: positions and lengths are code points, white space and case follow
// Unicode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::text::jinja {

/// str.isspace of one character.
bool is_space(uint32_t c);
bool is_word_character(uint32_t c);  ///< \w of Python's re
bool is_printable(uint32_t c);       ///< str.isprintable of one character
bool is_decimal(uint32_t c);
bool is_digit(uint32_t c);
bool is_numeric(uint32_t c);
bool is_alpha(uint32_t c);
bool is_upper(uint32_t c);
bool is_lower(uint32_t c);
bool is_identifier_start(uint32_t c);
bool is_identifier_part(uint32_t c);

int64_t code_points(std::string_view text);
/// Byte offset of code point `index` (at most the length).
size_t byte_offset(std::string_view text, int64_t index);

/// First byte offset of `needle` at or after `from`, or npos; linear time.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
/// Last byte offset of `needle`, or npos.
size_t rfind_text(std::string_view text, std::string_view needle);
int64_t count_text(std::string_view text, std::string_view needle);
/// `count` < 0: all.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count);
/// Number of occurrences that replace_text would replace, to know its size beforehand.
int64_t count_replacements(std::string_view text, std::string_view from, int64_t count);

enum Side { kLeft = 1, kRight = 2, kBoth = 3 };
/// str.strip: white space, or the characters of `characters`.
std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters = {});

/// str.split and rsplit; no separator: runs of white space. `limit` < 0: no limit.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    int64_t limit);
std::vector<std::string_view> rsplit(std::string_view text, std::optional<std::string_view> separator,
                                     int64_t limit);
enum class LineEnds { kDrop, kKeep };
std::vector<std::string_view> split_lines(std::string_view text, LineEnds ends);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_casefold(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string swap_case(std::string_view text);

/// repr() of a string.
std::string python_quoted(std::string_view text);
/// A JSON string literal as json.dumps writes it.
void append_json_string(std::string& out, std::string_view text, bool ascii_only);
/// repr() of a float.
std::string float_text(double value);

}  // namespace millrace::text::jinja
