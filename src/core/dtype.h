// Names of every element and block type a tensor can have. What a type looks like in memory is quant's
// business (quant/traits.h); this file only names them, so that all folders can.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  kF8E4M3,
  kF8E5M2,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ8_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ8_K,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ3_XXS,
  kIQ1_S,
  kIQ4_NL,
  kIQ3_S,
  kIQ2_S,
  kIQ4_XS,
  kIQ1_M,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kNVFP4,
  kCount,
};

/// "F32", "Q4_K", "IQ2_XXS", ...: the names GGUF users know.
std::string_view dtype_name(DType type);

/// The type of a name, any case, '-' and '_' alike ("q4_k", "Q4-K"); nullopt if there is none.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace millrace
