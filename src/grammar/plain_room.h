// Where a string's automaton takes every plain text: token masks need not look at the characters there.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/dfa.h"

namespace millrace::grammar {

inline constexpr uint16_t kNoTelling = 0, kEndless = 0xffff;

/// What may stand in a JSON string as it is, less the line separators that "." leaves out in patterns.
bool is_plain(uint32_t codepoint);

/// By state: n when from there exactly the plain texts of at most n characters stay alive (kEndless: all do),
/// kNoTelling otherwise. `alive`: states that count as alive whatever else; null: all.
std::vector<uint16_t> plain_rooms(const Dfa& dfa, const std::vector<uint8_t>* alive, Budget& budget);

}  // namespace millrace::grammar
