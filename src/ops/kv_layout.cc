#include "ops/kv_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/half.h"

namespace millrace::ops {
namespace {

using kernels::kTokenTile;

constexpr int32_t kGroup = 32;  ///< values that share an INT4 scale

/// Bytes of `lanes` x `dim` elements and of their scales.
struct PartBytes {
  int64_t elements, scales;
};

PartBytes part_bytes(KvFormat format, int64_t dim) {
  switch (format) {
    case KvFormat::kF32:
      return {dim * kTokenTile * 4, 0};
    case KvFormat::kBF16:
      return {dim * kTokenTile * 2, 0};
    case KvFormat::kInt8:
      return {dim * kTokenTile, kTokenTile * 4};
    case KvFormat::kInt4:
      return {dim * kTokenTile / 2, ceil_div(dim, kGroup) * kTokenTile * 4};
  }
  return {0, 0};
}

/// Where element d of a token's vector lies, counted in elements: K runs over tokens inside, V over
/// dimensions.
struct KeyOrder {
  int32_t lane;
  int64_t pair(int64_t d) const { return d / 2 * kTokenTile + lane; }
  int64_t half(int64_t d) const { return d % 2; }
  int64_t f32(int64_t d) const { return d * kTokenTile + lane; }
  int64_t group(int64_t g) const { return g * kTokenTile + lane; }
};
struct ValueOrder {
  int32_t lane;
  int64_t dim;
  int64_t pair(int64_t d) const { return lane / 2 * dim + d; }
  int64_t half(int64_t) const { return lane % 2; }
  int64_t f32(int64_t d) const { return lane * dim + d; }
  int64_t group(int64_t g) const { return lane * ceil_div(dim, kGroup) + g; }
};

template <typename Order>
void store_int8(int8_t* out, float* scale_out, const float* x, int64_t n, const Order& order) {
  float largest = 0;
  for (int64_t d = 0; d < n; ++d) largest = std::max(largest, std::fabs(x[d]));
  const float scale = largest / 127.0f;
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  *scale_out = scale;
  for (int64_t d = 0; d < n; ++d)
    out[order.pair(d) * 2 + order.half(d)] =
        static_cast<int8_t>(std::clamp(std::nearbyint(x[d] * inverse), -127.0f, 127.0f));
}

template <typename Order>
void store_int4(uint8_t* out, bf16_t* groups, const float* x, int64_t n, const Order& order) {
  for (int64_t begin = 0; begin < n; begin += kGroup) {
    const int64_t end = std::min(n, begin + kGroup);
    const auto [low, high] = std::minmax_element(x + begin, x + end);
    // The scale and offset are rounded first and the values fitted to the rounded ones; the offset goes down
    // a step of its own precision so that the lowest value stays reachable.
    const bf16_t offset_bits = float_to_bf16(*low);
    const float offset = bf16_to_float(offset_bits);
    const bf16_t scale_bits = float_to_bf16((*high - offset) / 15.0f);
    const float scale = bf16_to_float(scale_bits);
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    bf16_t* group = groups + order.group(begin / kGroup) * 2;
    group[0] = scale_bits;
    group[1] = offset_bits;
    for (int64_t d = begin; d < end; ++d) {
      const auto nibble =
          static_cast<uint8_t>(std::clamp(std::nearbyint((x[d] - offset) * inverse), 0.0f, 15.0f));
      uint8_t& byte = out[order.pair(d)];
      byte = static_cast<uint8_t>(order.half(d) ? (byte & 0x0f) | nibble << 4 : (byte & 0xf0) | nibble);
    }
  }
}

template <typename Order>
void store_vector(KvFormat format, std::byte* elements, std::byte* scales, int32_t lane, const float* x,
                  int64_t n, const Order& order) {
  switch (format) {
    case KvFormat::kF32: {
      auto* out = reinterpret_cast<float*>(elements);
      for (int64_t d = 0; d < n; ++d) out[order.f32(d)] = x[d];
      return;
    }
    case KvFormat::kBF16: {
      auto* out = reinterpret_cast<bf16_t*>(elements);
      for (int64_t d = 0; d < n; ++d) out[order.pair(d) * 2 + order.half(d)] = float_to_bf16(x[d]);
      return;
    }
    case KvFormat::kInt8:
      return store_int8(reinterpret_cast<int8_t*>(elements), reinterpret_cast<float*>(scales) + lane, x, n,
                        order);
    case KvFormat::kInt4:
      return store_int4(reinterpret_cast<uint8_t*>(elements), reinterpret_cast<bf16_t*>(scales), x, n, order);
  }
}

}  // namespace

KvLayout make_kv_layout(KvFormat format, int32_t block_size, int32_t key_dim, int32_t value_dim) {
  KvLayout layout{};
  layout.format = format;
  layout.key_dim = key_dim;
  layout.value_dim = value_dim;
  layout.stored_key_dim = static_cast<int32_t>(round_up(key_dim, 2));
  layout.stored_value_dim = static_cast<int32_t>(round_up(value_dim, 16));
  layout.tiles_per_block = static_cast<int32_t>(ceil_div(block_size, kTokenTile));
  const PartBytes k = part_bytes(format, layout.stored_key_dim);
  const PartBytes v = part_bytes(format, layout.stored_value_dim);
  layout.k_scale_offset = round_up(k.elements, 64);
  layout.v_offset = layout.k_scale_offset + round_up(k.scales, 64);
  layout.v_scale_offset = layout.v_offset + round_up(v.elements, 64);
  layout.tile_bytes = layout.v_scale_offset + round_up(v.scales, 64);
  layout.head_bytes = layout.tiles_per_block * layout.tile_bytes;
  return layout;
}

KvLayout make_latent_layout(KvFormat format, int32_t block_size, int32_t latent_dim, int32_t rope_dim) {
  KvLayout layout{};
  layout.format = format;
  layout.latent = true;
  layout.key_dim = latent_dim + rope_dim;
  layout.value_dim = latent_dim;
  layout.stored_value_dim = static_cast<int32_t>(round_up(latent_dim, 16));
  layout.stored_key_dim = layout.stored_value_dim + static_cast<int32_t>(round_up(rope_dim, 2));
  layout.tiles_per_block = static_cast<int32_t>(ceil_div(block_size, kTokenTile));
  layout.rope_offset = round_up(part_bytes(format, layout.stored_value_dim).elements, 64);
  layout.tile_bytes =
      layout.rope_offset +
      round_up(part_bytes(format, layout.stored_key_dim - layout.stored_value_dim).elements, 64);
  layout.head_bytes = layout.tiles_per_block * layout.tile_bytes;
  return layout;
}

void store_token(const KvLayout& layout, std::byte* tile, int32_t lane, const float* k, const float* v) {
  if (lane == 0) std::memset(tile, 0, static_cast<size_t>(layout.tile_bytes));
  const int32_t key_dim = layout.latent ? layout.key_dim - layout.value_dim : layout.key_dim;
  store_vector(layout.format, tile + layout.rope_offset, tile + layout.k_scale_offset, lane, k, key_dim,
               KeyOrder{lane});
  store_vector(layout.format, tile + layout.v_offset, tile + layout.v_scale_offset, lane, v, layout.value_dim,
               ValueOrder{lane, layout.stored_value_dim});
}

}  // namespace millrace::ops
