// Attention on AMX: sixteen query rows meet sixteen tokens, or sixteen dimensions of V, in one instruction. K
// tiles lie as the unit wants them; V tiles of eight pairs of tokens are put side by side, two and two, since
// a product is as quick over sixteen pairs as over eight.
#include "kernels/tables.h"

// Each of these is written in the words of the one before.
// clang-format off
#include "kernels/x86/vector_avx512.h"
#include "kernels/x86/math.inc"
#include "kernels/x86/attention_bf16.inc"
// clang-format on

#define ALWAYS_INLINE inline __attribute__((always_inline))

namespace millrace::kernels {
namespace {
#include "kernels/x86/tiles.inc"

constexpr int64_t kScoreBytes = kChunkTokens * 4;  ///< of one row; its weights later take the front half
/// Scores of what a row must not see: so far below kNoMaximum that their weight is nothing, and not infinite,
/// which would need a check before the power.
constexpr float kHidden = -1e32f;

/// The same operation over the lanes of each of sixteen vectors: lane r of the result is of v[r]. Every row's
/// lanes meet in the same order.
template <class Op>
ALWAYS_INLINE F reduce_rows(const float* v, const Op& op) {
  F a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    const F x = load(v + 16 * i), y = load(v + 16 * (i + 8));
    a[i] = op(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  }
  for (int i = 0; i < 4; ++i)
    b[i] = op(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88), _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd));
  for (int i = 0; i < 2; ++i)
    c[i] = op(_mm512_unpacklo_ps(b[i], b[i + 2]), _mm512_unpackhi_ps(b[i], b[i + 2]));
  const F d = op(_mm512_unpacklo_ps(c[0], c[1]), _mm512_unpackhi_ps(c[0], c[1]));
  return _mm512_shuffle_f32x4(d, d, 0xd8);  // quarters hold rows 0-3, 8-11, 4-7, 12-15
}

/// A few lines of the chunk to come, asked for beside each product.
ALWAYS_INLINE void fetch_lines(const void* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(from) + at, 0, 2);
}

/// Some panels of equal form, in groups of up to sixteen rows. A group's scores are under way on the unit
/// while the weights of the one before are made in vectors.
class TilePanels {
 public:
  TilePanels(const AttentionPanel* panels, int32_t count) : panels_(panels), count_(count) {}

  void run() {
    for (int32_t first = 0, last; first < count_; first = last) {
      const int32_t rows = panels_[first].rows;
      for (last = first + 1; last < count_ && panels_[last].rows == rows; ++last) {
      }
      const int32_t whole = rows / kTileRows * kTileRows;
      if (whole > 0) run_groups(first, last, 0, whole, kTileRows);
      if (whole < rows) run_groups(first, last, whole, rows, rows - whole);
    }
  }

 private:
  /// Groups of `rows` rows each, in the rows [begin, end) of the panels [first, last).
  void run_groups(int32_t first, int32_t last, int32_t begin, int32_t end, int32_t rows) {
    const int32_t rest = panels_[first].key_dim % 32;
    TileShapes shapes;
    for (int tile = 0; tile < 5; ++tile) shapes.set(tile, rows, 64);
    shapes.set(5, rows, rest ? rest * 2 : 64);
    shapes.set(6, kTileRows, 64);
    shapes.set(7, rest ? rest / 2 : kTileRows, 64);
    const TileScope scope(shapes);
    int which = 0;
    score(panels_[first], begin, which);
    for (int32_t i = first; i < last; ++i) {
      const AttentionPanel& p = panels_[i];
      for (int32_t row = begin; row < end; row += rows, which ^= 1) {
        if (row + rows < end)
          score(p, row + rows, which ^ 1);
        else if (i + 1 < last)
          score(panels_[i + 1], begin, which ^ 1);
        float* weights = scores(p, which);
        weigh(p, row, rows, weights);
        if (row == begin) copy_values(p, begin == 0);
        for (int32_t d = 0; d < p.value_dim; d += 64) add_values(p, row, d, weights);
      }
    }
  }
  static float* scores(const AttentionPanel& p, int which) {
    return p.scratch + which * kTileRows * kChunkTokens;
  }

  /// V of the chunk: [2][16 pairs][value_dim][2], with zeros where the chunk ends early.
  static void copy_values(const AttentionPanel& p, bool fetches) {
    const int64_t bytes = int64_t{kTokenTile} * p.value_dim * 2;
    auto* to = static_cast<char*>(p.values);
    for (int32_t tile = 0; tile < kChunkTiles; ++tile, to += bytes) {
      if (tile >= p.num_tiles) {
        __builtin_memset(to, 0, static_cast<size_t>(bytes));
        continue;
      }
      const auto* from = static_cast<const char*>(p.v[tile]);
      const char* next = fetches && p.next_k[0] ? static_cast<const char*>(p.next_v[tile]) : from;
      for (int64_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(next + at, 0, 2);
        _mm512_storeu_si512(to + at, load_i32(from + at));
      }
    }
  }

  /// Scores of a group over all of the chunk's places.
  static void score(const AttentionPanel& p, int32_t row, int which) {
    const bool fetch = row == 0 && p.next_k[0];
    const auto* q = static_cast<const uint16_t*>(p.q) + row * p.q_stride;
    const char* k[kChunkTiles];
    for (int32_t t = 0; t < kChunkTiles; ++t) k[t] = static_cast<const char*>(p.k[t < p.num_tiles ? t : 0]);
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    int32_t d = 0;
    for (; d + 32 <= p.key_dim; d += 32) {
      const int64_t at = int64_t{d} * kTokenTile * 2;
      tile_load<4>(q + d, p.q_stride * 2);
      step<0, 4, 6>(k[0] + at, fetch ? p.next_k[0] : nullptr, at);
      step<1, 4, 6>(k[1] + at, fetch ? p.next_k[1] : nullptr, at);
      step<2, 4, 6>(k[2] + at, fetch ? p.next_k[2] : nullptr, at);
      step<3, 4, 6>(k[3] + at, fetch ? p.next_k[3] : nullptr, at);
    }
    if (d < p.key_dim) {
      const int64_t at = int64_t{d} * kTokenTile * 2;
      tile_load<5>(q + d, p.q_stride * 2);
      step<0, 5, 7>(k[0] + at, nullptr, at);
      step<1, 5, 7>(k[1] + at, nullptr, at);
      step<2, 5, 7>(k[2] + at, nullptr, at);
      step<3, 5, 7>(k[3] + at, nullptr, at);
    }
    float* const scores = TilePanels::scores(p, which);
    tile_store<0>(scores, kScoreBytes);
    tile_store<1>(scores + 16, kScoreBytes);
    tile_store<2>(scores + 32, kScoreBytes);
    tile_store<3>(scores + 48, kScoreBytes);
  }
  template <int kSum, int kA, int kB>
  static ALWAYS_INLINE void step(const char* k, const void* next, int64_t at) {
    tile_load<kB>(k, 64);
    tile_dot_bf16<kSum, kA, kB>();
    if (next) fetch_lines(static_cast<const char*>(next) + at, 1024);
  }

  /// Whatever changes scores before the softmax.
  static void adjust(const AttentionPanel& p, int32_t row, float* scores) {
    const int32_t begin = p.begin[row], end = p.end[row];
    const F cap = set(p.softcap), inverse_cap = set(p.softcap != 0.0f ? 1.0f / p.softcap : 0.0f);
    for (int32_t tile = 0; tile < kChunkTiles; ++tile) {
      const int32_t t = tile * kTokenTile;
      F s = load(scores + t);
      if (tile < p.num_tiles && p.k_scale[tile]) s = mul(s, load(p.k_scale[tile]));
      if (p.softcap != 0.0f) s = mul(cap, hyperbolic_tangent(mul(s, inverse_cap)));
      if (p.alibi_slope) {
        const F distance = sub(set(p.alibi_distance[row] - static_cast<float>(t)), lane_numbers());
        s = fnma(set(p.alibi_slope[row]), distance, s);
      }
      const I lane = _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                      set_i32(t));
      const __mmask16 keep = _mm512_cmp_epi32_mask(lane, set_i32(begin), _MM_CMPINT_NLT) &
                             _mm512_cmp_epi32_mask(lane, set_i32(end), _MM_CMPINT_LT);
      store(scores + t, _mm512_mask_blend_ps(keep, set(kHidden), s));
    }
  }

  /// Scores to weights, and the running state up to date.
  static void weigh(const AttentionPanel& p, int32_t first_row, int32_t rows, float* scores) {
    const bool adjusts = p.k_scale[0] || p.softcap != 0.0f || p.alibi_slope;
    alignas(64) float lanes[kTileRows * 16];
    for (int32_t r = rows; r < kTileRows; ++r) store(lanes + 16 * r, set(0.0f));
    for (int32_t r = 0; r < rows; ++r) {
      float* s = scores + r * kChunkTokens;
      if (adjusts || p.begin[first_row + r] > 0 || p.end[first_row + r] < kChunkTokens)
        adjust(p, first_row + r, s);
      store(lanes + 16 * r, larger(larger(load(s), load(s + 16)), larger(load(s + 32), load(s + 48))));
    }
    const __mmask16 present = first_lanes(rows);
    const F before = _mm512_maskz_loadu_ps(present, p.maximum + first_row);
    const F maximum = larger(reduce_rows(lanes, larger), before);
    const F correction = exponential2(sub(before, maximum));
    _mm512_mask_storeu_ps(p.maximum + first_row, present, maximum);
    alignas(64) float maxima[kTileRows];
    store(maxima, maximum);
    for (int32_t r = 0; r < rows; ++r)
      store(lanes + 16 * r, weigh_row(p, scores + r * kChunkTokens, set(maxima[r])));
    const F sum = _mm512_maskz_loadu_ps(present, p.sum + first_row);
    _mm512_mask_storeu_ps(p.sum + first_row, present, fma(sum, correction, reduce_rows(lanes, add)));
    shrink(p, first_row, correction, _mm512_mask_cmp_ps_mask(present, correction, set(1.0f), _CMP_NEQ_UQ));
  }
  static __mmask16 first_lanes(int32_t n) { return static_cast<__mmask16>((1u << n) - 1); }

  /// Weights as bfloat16 over the front half of their scores; returns their sums. Those are of the rounded
  /// weights, which the second product uses.
  static ALWAYS_INLINE F weigh_row(const AttentionPanel& p, float* scores, F maximum) {
    F w[kChunkTiles];
    for (int t = 0; t < kChunkTiles; ++t) w[t] = weight_power(sub(load(scores + 16 * t), maximum));
    F sum = set(0.0f);
    const bool scaled = p.v_scale[0] != nullptr;
    if (scaled) {
      sum = add(add(w[0], w[1]), add(w[2], w[3]));
      for (int32_t t = 0; t < p.num_tiles; ++t) w[t] = mul(w[t], load(p.v_scale[t]));
    }
    for (int half = 0; half < 2; ++half) {
      const __m512bh rounded = _mm512_cvtne2ps_pbh(w[2 * half + 1], w[2 * half]);
      if (!scaled) sum = _mm512_dpbf16_ps(sum, rounded, as_bf16(_mm512_set1_epi32(0x3f803f80)));
      _mm512_storeu_si512(reinterpret_cast<uint16_t*>(scores) + 32 * half, as_integers(rounded));
    }
    return sum;
  }

  /// Outputs so far of the rows in `which` times their correction.
  static void shrink(const AttentionPanel& p, int32_t first_row, F correction, __mmask16 which) {
    alignas(64) float factors[kTileRows];
    store(factors, correction);
    for (uint32_t left = which; left != 0; left &= left - 1) {
      const int r = __builtin_ctz(left);
      float* out = p.accumulator + int64_t{first_row + r} * p.value_dim;
      for (int32_t d = 0; d < p.value_dim; d += kLanes) store(out + d, mul(load(out + d), set(factors[r])));
    }
  }

  /// Up to 64 dimensions of V, weighted, to the outputs of a group.
  static void add_values(const AttentionPanel& p, int32_t row, int32_t d, const float* weights) {
    switch ((p.value_dim - d) / kLanes) {
      case 1:
        return add_columns<1>(p, row, d, weights);
      case 2:
        return add_columns<2>(p, row, d, weights);
      case 3:
        return add_columns<3>(p, row, d, weights);
      default:
        return add_columns<4>(p, row, d, weights);
    }
  }
  template <int kTiles>
  static ALWAYS_INLINE void add_columns(const AttentionPanel& p, int32_t row, int32_t d,
                                        const float* weights) {
    float* out = p.accumulator + int64_t{row} * p.value_dim + d;
    const int64_t stride = int64_t{p.value_dim} * 4;
    const char* v = static_cast<const char*>(p.values) + int64_t{d} * 4;
    tile_load<0>(out, stride);
    if constexpr (kTiles > 1) tile_load<1>(out + 16, stride);
    if constexpr (kTiles > 2) tile_load<2>(out + 32, stride);
    if constexpr (kTiles > 3) tile_load<3>(out + 48, stride);
    const int32_t pairs = (p.num_tiles + 1) / 2;
    for (int32_t i = 0; i < pairs; ++i, v += kTileRows * stride) {
      tile_load<4>(reinterpret_cast<const char*>(weights) + 64 * i, kScoreBytes);
      column<0>(v, stride);
      if constexpr (kTiles > 1) column<1>(v + 64, stride);
      if constexpr (kTiles > 2) column<2>(v + 128, stride);
      if constexpr (kTiles > 3) column<3>(v + 192, stride);
    }
    tile_store<0>(out, stride);
    if constexpr (kTiles > 1) tile_store<1>(out + 16, stride);
    if constexpr (kTiles > 2) tile_store<2>(out + 32, stride);
    if constexpr (kTiles > 3) tile_store<3>(out + 48, stride);
  }
  template <int kSum>
  static ALWAYS_INLINE void column(const char* v, int64_t stride) {
    tile_load<6>(v, stride);
    tile_dot_bf16<kSum, 4, 6>();
  }

  const AttentionPanel* panels_;
  int32_t count_;
};

void attend_tiles(const AttentionPanel* panels, int32_t count) { TilePanels(panels, count).run(); }

}  // namespace

void fill_amx(Table& t) {
  t.attention_bf16.attend = attend_tiles;
  t.attention_bf16.panel_rows = 128;
  t.attention_bf16.first_token_step = 2 * kTokenTile;
}

}  // namespace millrace::kernels
