#pragma once

#include <cstdint>

namespace millrace::text {

/// A number for the script of a code point, the same for characters of one script; 0 for the space and for
/// code points without a script. Hiragana, Katakana and the long vowel sign count as Han, as the published
/// splitter has it.
int script_group(uint32_t code_point);

}  // namespace millrace::text
