// The inner kernels of paged attention. ops/attention.cc owns the walk over sequences, blocks and splits;
// these see one panel of query rows and one chunk of keys. Keys come in tiles of 16 tokens whose element
// order lets a vector hold the scores of 16 tokens, so that no kernel ever adds across lanes for a dot
// product:
//
//   order       K tile                          V tile
//   kF32Order   [key_dim][16]         float     [16][value_dim]     float
//   kBf16Order  [key_dim / 2][16][2]  bfloat16  [8][value_dim][2]   bfloat16  (the pair of one bf16 dot
//   product)
//   int8        as kBf16Order with int8_t elements, for attend_int8
//
// key_dim is even and value_dim a multiple of 16 here; the caller pads with zeros.
#pragma once

#include <cstdint>

namespace millrace::kernels {

inline constexpr int32_t kTokenTile = 16;  ///< tokens in a tile
inline constexpr int32_t kChunkTiles = 4;  ///< tiles between two updates of the running maximum
inline constexpr int32_t kChunkTokens = kTokenTile * kChunkTiles;
inline constexpr int32_t kAttentionRows = 6;  ///< query rows that share the loads of a chunk, in vectors
inline constexpr int32_t kScoreRows = 32;     ///< rows of scores that a panel's scratch has room for

/// "No key yet": finite, so that differences of two of them are zero and not NaN.
inline constexpr float kNoMaximum = -1e30f;

/// Up to AttentionKernels::panel_rows query rows against one chunk. A row's arithmetic depends on its own q,
/// range and state only: rows may be grouped in any way, and tiles without a visible key may be left out,
/// without changing a bit.
struct AttentionPanel {
  int32_t rows;
  int32_t key_dim;
  int32_t value_dim;
  int32_t num_tiles;  ///< 1 .. kChunkTiles
  const void* k[kChunkTiles];
  const void* v[kChunkTiles];
  const void* next_k[kChunkTiles];  ///< tiles of the chunk to come, to be fetched along; next_k[0] null: none
  const void* next_v[kChunkTiles];
  const float* k_scale[kChunkTiles];  ///< [16], multiplies scores; or null
  const float* v_scale[kChunkTiles];  ///< [16], multiplies probabilities before V; or null
  const void* q;  ///< rows of key_dim floats or bfloat16, times scale and log2(e): scores are exponents of 2
  int64_t q_stride;             ///< elements
  const float* q_scale;         ///< [rows] of attend_int8: value of one unit of q
  const int32_t* begin;         ///< [rows] first visible token, counted from the first tile given
  const int32_t* end;           ///< [rows] one past the last; begin >= end: the row sees nothing here
  const float* alibi_slope;     ///< [rows], or null
  const float* alibi_distance;  ///< [rows] query position minus position of the first token given
  float softcap;                ///< 0: none; in units of scores, as alibi_slope is
  float* maximum;               ///< [rows] running state of the online softmax
  float* sum;                   ///< [rows]
  float* accumulator;           ///< [rows, value_dim]
  float* scratch;               ///< [kScoreRows * kChunkTokens], at 64 bytes
  void* values;                 ///< room for V of the chunk in this kernel's elements, at 64 bytes
};

/// How cached elements are stored; ops maps its KvFormat to one.
enum class CacheElement : uint8_t { kF32, kBF16, kInt8, kInt4 };

struct AttentionKernels {
  bool bf16;  ///< q, K and V tiles are bfloat16 in kBf16Order; else float in kF32Order
  int32_t panel_rows = kAttentionRows;    ///< most rows of a panel
  int32_t first_token_step = kTokenTile;  ///< a panel's first token is at a multiple of this many
  void (*attend)(const AttentionPanel* panels, int32_t count);
  /// Over int8 tiles as they are stored, with q as int16 and exact integer sums; null: tiles are expanded for
  /// `attend`.
  void (*attend_int8)(const AttentionPanel* panels, int32_t count);
  /// q [n] times scale as int16; returns the value of one unit, which leaves room for sums over n int8
  /// products.
  float (*prepare_query_int8)(void* out, const float* q, float scale, int64_t n);
  /// q [n] times scale to q's element type; n is padded to even with zeros by the caller.
  void (*prepare_query)(void* out, const float* q, float scale, int64_t n);
  /// Rows of 16 lanes of pairs to this kernel's order. K: `pairs` = key_dim / 2 rows of [16][2]. V: 8 rows of
  /// [value_dim][2]; `width` is 16 for K and value_dim for V. Input in kBf16Order's order, elements as named.
  void (*expand_bf16)(void* out, const void* in, int64_t pairs, int64_t width);
  void (*expand_int8)(void* out, const void* in, int64_t pairs, int64_t width);
  /// Nibble pairs, with (scale, offset) bfloat16 pairs. K: groups [ceil(key_dim / 32)][16 tokens][2]; V: [16
  /// tokens] [ceil(value_dim / 32)][2].
  void (*expand_int4_k)(void* out, const void* in, const void* groups, int64_t key_dim);
  void (*expand_int4_v)(void* out, const void* in, const void* groups, int64_t value_dim);
  /// A V tile of this kernel's order as a K tile, for latent attention.
  void (*transpose_values)(void* out, const void* in, int64_t value_dim);
};

}  // namespace millrace::kernels
