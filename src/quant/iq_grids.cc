#include "quant/iq_grids.h"

#include <array>

namespace millrace::quant {
namespace {

#include "quant/iq_grids.inc"

/// Words of the points, each of which packs sizeof(Word) digits of `kBits` bits that index `values`.
template <typename Word, int kBits, size_t kPoints, size_t kValues>
std::array<Word, kPoints> expand(const uint16_t (&digits)[kPoints], const uint8_t (&values)[kValues]) {
  std::array<Word, kPoints> grid{};
  for (size_t p = 0; p < kPoints; ++p)
    for (unsigned i = 0; i < sizeof(Word); ++i) {
      const unsigned digit = static_cast<unsigned>(digits[p]) >> (kBits * i) & ((1u << kBits) - 1);
      grid[p] |= static_cast<Word>(values[digit]) << (8 * i);
    }
  return grid;
}

constexpr uint8_t kIq2Values[] = {8, 25, 43};
constexpr uint8_t kIq3xxsValues[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr uint8_t kIq3sValues[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr uint8_t kIq1Values[] = {0xff, 0, 1};

}  // namespace

std::span<const uint64_t> iq2xxs_grid() {
  static const auto grid = expand<uint64_t, 2>(kIq2xxsDigits, kIq2Values);
  return grid;
}
std::span<const uint64_t> iq2xs_grid() {
  static const auto grid = expand<uint64_t, 2>(kIq2xsDigits, kIq2Values);
  return grid;
}
std::span<const uint64_t> iq2s_grid() {
  static const auto grid = expand<uint64_t, 2>(kIq2sDigits, kIq2Values);
  return grid;
}
std::span<const uint32_t> iq3xxs_grid() {
  static const auto grid = expand<uint32_t, 3>(kIq3xxsDigits, kIq3xxsValues);
  return grid;
}
std::span<const uint32_t> iq3s_grid() {
  static const auto grid = expand<uint32_t, 3>(kIq3sDigits, kIq3sValues);
  return grid;
}
std::span<const uint64_t> iq1s_grid() {
  static const auto grid = expand<uint64_t, 2>(kIq1sDigits, kIq1Values);
  return grid;
}

}  // namespace millrace::quant
