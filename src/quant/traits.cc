#include "quant/traits.h"

#include <array>

#include "core/checked.h"
#include "core/error.h"
#include "quant/codec.h"

namespace millrace::quant {
namespace {

constexpr auto kCount = static_cast<size_t>(DType::kCount);

std::array<Traits, kCount> make_table() {
  std::array<Traits, kCount> table{};
  for (size_t i = 0; i < kCount; ++i) {
    const auto type = static_cast<DType>(i);
    Codec codec{};
    for (auto family : {plain_codec, legacy_codec, k_codec, iq_codec, ternary_codec, fp4_codec}) {
      codec = family(type);
      if (codec.block_elements) break;
    }
    table[i] = {type, codec.block_elements, codec.block_bytes, codec.decode, codec.encode};
  }
  return table;
}

}  // namespace

const Traits& traits(DType type) {
  static const std::array<Traits, kCount> table = make_table();
  const auto index = static_cast<size_t>(type);
  check(index < kCount, "there is no storage type number {}", index);
  return table[index];
}

std::optional<uint64_t> row_bytes(DType type, uint64_t elements) {
  const Traits& t = traits(type);
  const auto block = static_cast<uint64_t>(t.block_elements);
  if (elements % block) return std::nullopt;
  return checked_mul(elements / block, static_cast<uint64_t>(t.block_bytes));
}

bool is_quantized(DType type) {
  const Traits& t = traits(type);
  return t.decode && t.block_elements > 1;
}

}  // namespace millrace::quant
