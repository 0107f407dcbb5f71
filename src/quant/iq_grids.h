// Code books of the i-quants. A point of a book is 8 bytes (IQ1, IQ2) or 4 bytes (IQ3) of values, expanded
// once from packed digits (iq_grids.cc) into little-endian words that kernels can load.
#pragma once

#include <cstdint>
#include <span>

namespace millrace::quant {

std::span<const uint64_t> iq2xxs_grid();  ///< 256 points of 8 unsigned bytes
std::span<const uint64_t> iq2xs_grid();   ///< 512
std::span<const uint64_t> iq2s_grid();    ///< 1024
std::span<const uint32_t> iq3xxs_grid();  ///< 256 points of 4 unsigned bytes
std::span<const uint32_t> iq3s_grid();    ///< 512
std::span<const uint64_t> iq1s_grid();    ///< 2048 points of 8 signed bytes (-1, 0, 1)

/// What IQ1_S and IQ1_M add to (or take from) every value of a group.
inline constexpr float kIq1Delta = 0.125f;

/// Sign bits of the 7-bit index `i` of IQ2_XXS, IQ2_XS and IQ3_XXS: bit 7 makes the number of negatives even.
constexpr uint8_t iq_signs(unsigned i) {
  return static_cast<uint8_t>(i | (static_cast<unsigned>(__builtin_popcount(i)) & 1u) << 7);
}

}  // namespace millrace::quant
