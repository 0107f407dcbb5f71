// Hashes by which JSON values are compared: equal for equal values, however they are written.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::grammar {

/// `text` must be one well-formed JSON value (white space around it is ignored).
uint64_t json_value_hash(std::string_view text);

inline uint64_t mix_hash(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  h ^= h >> 31;
  h *= 0x7fb5d329728ea185ULL;
  h ^= h >> 29;
  return h;
}

}  // namespace millrace::grammar
