#include "core/dtype.h"

#include <array>
#include <cctype>

namespace millrace {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(DType::kCount)> kNames = {
    "F32",     "F16",   "BF16",   "F64",   "I8",      "I16",    "I32",     "I64",   "F8_E4M3",
    "F8_E5M2", "Q4_0",  "Q4_1",   "Q5_0",  "Q5_1",    "Q8_0",   "Q8_1",    "Q2_K",  "Q3_K",
    "Q4_K",    "Q5_K",  "Q6_K",   "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL",
    "IQ3_S",   "IQ2_S", "IQ4_XS", "IQ1_M", "TQ1_0",   "TQ2_0",  "MXFP4",   "NVFP4"};

char fold(char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))); }

}  // namespace

std::string_view dtype_name(DType type) {
  const auto index = static_cast<size_t>(type);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].size() != name.size()) continue;
    bool same = true;
    for (size_t j = 0; j < name.size() && same; ++j) same = fold(name[j]) == kNames[i][j];
    if (same) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace millrace
