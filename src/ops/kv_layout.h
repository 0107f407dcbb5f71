// How a cache block looks inside. A block holds, for each KV head, tiles of 16 tokens; a tile is the K part,
// the V part and their scales, each at 64-byte alignment, elements ordered as kernels/attention.h wants them.
// A block whose size is not a multiple of 16 has a last tile that is partly unused.
//
//   kF32   K [key_dim][16] float, V [16][value_dim] float
//   kBF16  K [key_dim / 2][16][2], V [8][value_dim][2]
//   kInt8  the same order in int8, one float scale per token for K and one for V (value = scale * element)
//   kInt4  the same order, a pair in one byte (first in the low nibble); per token and 32 values a bfloat16
//   scale and
//          offset (value = scale * element + offset): K [ceil(key_dim / 32)][16][2], V [16][ceil(value_dim /
//          32)][2]
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "kernels/attention.h"
#include "ops/attention.h"

namespace millrace::ops {

struct KvLayout {
  KvFormat format;
  int32_t key_dim, value_dim;  ///< as the model has them
  int32_t stored_key_dim;      ///< rounded up to 2
  int32_t stored_value_dim;    ///< rounded up to 16
  int32_t tiles_per_block;
  bool latent = false;  ///< K is V followed by the part at rope_offset
  int64_t rope_offset = 0;
  int64_t k_scale_offset, v_offset, v_scale_offset, tile_bytes;  ///< inside a tile; K is at 0
  int64_t head_bytes;                                            ///< from one KV head of a block to the next
};

KvLayout make_kv_layout(KvFormat format, int32_t block_size, int32_t key_dim, int32_t value_dim);

/// Latents: a tile is V [latent_dim] in V's order, then the rotated key [rope_dim] in K's. key_dim is their
/// sum.
KvLayout make_latent_layout(KvFormat format, int32_t block_size, int32_t latent_dim, int32_t rope_dim);

inline std::byte* kv_tile(const KvLayout& layout, std::byte* block, int32_t kv_head, int32_t tile) {
  return block + kv_head * layout.head_bytes + tile * layout.tile_bytes;
}

/// Writes one token's K [key_dim] (of latents: the rotated key) and V [value_dim] into lane `lane` of a tile.
/// Lane 0 starts a tile: the lanes after it become zeros, so that a partly filled tile never holds what an
/// earlier owner left (0 * NaN would reach the output).
void store_token(const KvLayout& layout, std::byte* tile, int32_t lane, const float* k, const float* v);

}  // namespace millrace::ops
