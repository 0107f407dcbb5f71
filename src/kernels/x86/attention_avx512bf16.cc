// Attention over bfloat16 tiles: one instruction multiplies 32 pairs of K or V and adds them to 16 sums.
#include "kernels/tables.h"

// Each of these is written in the words of the one before.
// clang-format off
#include "kernels/x86/vector_avx512.h"
#include "kernels/x86/math.inc"
#include "kernels/x86/attention.inc"
#include "kernels/x86/attention_bf16.inc"
// clang-format on

namespace millrace::kernels {
namespace {

inline void keep_bf16(void* to, F x) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), as_integers(_mm512_cvtneps_pbh(x)));
}

struct Bf16Dot {
  /// Exactly 0 at -infinity too.
  static inline F power(F x) { return weight_power(larger(set(-152.0f), x)); }

  /// Weights as bfloat16, over the front half of the scores that they come from. The sums are those of the
  /// rounded weights, which the second product uses.
  static inline F weigh(const AttentionPanel& p, int32_t row, F maximum) {
    float* scores = p.scratch + row * kChunkTokens;
    auto* weights = reinterpret_cast<uint16_t*>(scores);
    const __m512bh ones = as_bf16(_mm512_set1_epi32(0x3f803f80));
    F sum = set(0.0f);
    for (int32_t tile = 0; tile < p.num_tiles; tile += 2) {
      F low = power(sub(load(scores + tile * kTokenTile), maximum)), high = set(0.0f);
      const bool both = tile + 1 < p.num_tiles;
      if (both) high = power(sub(load(scores + (tile + 1) * kTokenTile), maximum));
      if (p.v_scale[tile]) {
        sum = add(add(sum, low), high);
        low = mul(low, load(p.v_scale[tile]));
        if (both) high = mul(high, load(p.v_scale[tile + 1]));
      }
      const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
      if (!p.v_scale[tile]) sum = _mm512_dpbf16_ps(sum, rounded, ones);
      _mm512_storeu_si512(weights + tile * kTokenTile, as_integers(rounded));
    }
    return sum;
  }

  template <int R, int T>
  static inline void score_tiles(const AttentionPanel& p, int32_t tile) {
    F sum[R][T];
    for (int r = 0; r < R; ++r)
      for (int t = 0; t < T; ++t) sum[r][t] = set(0.0f);
    const auto* q = static_cast<const uint16_t*>(p.q);
    const uint16_t* k[T];
    for (int t = 0; t < T; ++t) k[t] = static_cast<const uint16_t*>(p.k[tile + t]);
    const void* const* next = p.next_k[0] ? p.next_k + tile : nullptr;
    for (int32_t d = 0; d < p.key_dim; d += 2) {
      if (next) fetch_along<T>(next, int64_t{d} * kTokenTile * 2);
      __m512bh x[T];
      for (int t = 0; t < T; ++t) x[t] = as_bf16(load_i32(k[t] + d * kTokenTile));
      for (int r = 0; r < R; ++r) {
        const __m512bh y = as_bf16(set_i32(pair_at(q + r * p.q_stride + d)));
        for (int t = 0; t < T; ++t) sum[r][t] = _mm512_dpbf16_ps(sum[r][t], x[t], y);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int t = 0; t < T; ++t) store(p.scratch + r * kChunkTokens + (tile + t) * kTokenTile, sum[r][t]);
  }

  template <int R, int D>
  static inline void value_vectors(const AttentionPanel& p, const float* correction, int32_t d) {
    F sum[R][D];
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < D; ++i)
        sum[r][i] = mul(load(p.accumulator + r * p.value_dim + d + i * kLanes), set(correction[r]));
    for (int32_t tile = 0; tile < p.num_tiles; ++tile) {
      const uint16_t* v = static_cast<const uint16_t*>(p.v[tile]) + d * 2;
      const auto* w = reinterpret_cast<const uint16_t*>(p.scratch) + tile * kTokenTile;
      const char* next = p.next_k[0] ? static_cast<const char*>(p.next_v[tile]) + d * 4 : nullptr;
      for (int t = 0; t < kTokenTile; t += 2) {
        if (next)
          for (int i = 0; i < D; ++i)
            __builtin_prefetch(next + (static_cast<int64_t>(t) * p.value_dim + i * 2 * kLanes) * 2, 0, 2);
        __m512bh x[D];
        for (int i = 0; i < D; ++i)
          x[i] = as_bf16(load_i32(v + static_cast<int64_t>(t) * p.value_dim + i * 2 * kLanes));
        for (int r = 0; r < R; ++r) {
          const __m512bh y = as_bf16(set_i32(pair_at(w + r * 2 * kChunkTokens + t)));
          for (int i = 0; i < D; ++i) sum[r][i] = _mm512_dpbf16_ps(sum[r][i], x[i], y);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < D; ++i) store(p.accumulator + r * p.value_dim + d + i * kLanes, sum[r][i]);
  }
};

void prepare_query_bf16(void* out, const float* q, float scale, int64_t n) {
  auto* to = static_cast<uint16_t*>(out);
  const F s = set(scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) keep_bf16(to + i, mul(load(q + i), s));
  if (i < n) {
    const F x = mul(load_some(q + i, n - i, set(0.0f)), s);
    _mm256_mask_storeu_epi16(to + i, first(n - i), as_integers(_mm512_cvtneps_pbh(x)));
  }
}

void copy_bf16(void* out, const void* in, int64_t pairs, int64_t width) {
  __builtin_memcpy(out, in, static_cast<size_t>(pairs * width * 4));
}

/// Integers up to 127 are exact in bfloat16; the order stays.
void expand_int8_bf16(void* out, const void* in, int64_t pairs, int64_t width) {
  auto* to = static_cast<uint16_t*>(out);
  const auto* from = static_cast<const int8_t*>(in);
  for (int64_t i = 0; i < pairs * width * 2; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const F low = to_float(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
    const F high = to_float(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
    _mm512_storeu_si512(to + i, as_integers(_mm512_cvtne2ps_pbh(high, low)));
  }
}

/// Sixteen pairs (even, odd) of floats as bfloat16 pairs.
inline void store_pairs(uint16_t* to, F even, F odd) {
  const I low = _mm512_cvtepu16_epi32(as_integers(_mm512_cvtneps_pbh(even)));
  const I high = _mm512_cvtepu16_epi32(as_integers(_mm512_cvtneps_pbh(odd)));
  _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

void expand_int4_k_bf16(void* out, const void* in, const void* groups, int64_t key_dim) {
  auto* to = static_cast<uint16_t*>(out);
  const auto* from = static_cast<const uint8_t*>(in);
  const auto* group = static_cast<const uint16_t*>(groups);
  for (int64_t d = 0; d < key_dim; d += 2) {
    F scale, offset;
    load_scale_offset(group + d / 32 * kTokenTile * 2, scale, offset);
    const I both = load_u8(from + d / 2 * kTokenTile);
    store_pairs(to + d * kTokenTile, fma(to_float(mask_bits(both, 15)), scale, offset),
                fma(to_float(shift_right<4>(both)), scale, offset));
  }
}

void expand_int4_v_bf16(void* out, const void* in, const void* groups, int64_t value_dim) {
  auto* to = static_cast<uint16_t*>(out);
  const auto* from = static_cast<const uint8_t*>(in);
  const auto* group = static_cast<const uint16_t*>(groups);
  const int64_t per_token = (value_dim + 31) / 32;
  for (int64_t t = 0; t < kTokenTile; t += 2)
    for (int64_t d = 0; d < value_dim; d += kLanes) {
      F scale[2], offset[2];
      for (int i = 0; i < 2; ++i)
        set_scale_offset(group + ((t + i) * per_token + d / 32) * 2, scale[i], offset[i]);
      const I both = load_u8(from + t / 2 * value_dim + d);
      store_pairs(to + (t / 2 * value_dim + d) * 2, fma(to_float(mask_bits(both, 15)), scale[0], offset[0]),
                  fma(to_float(shift_right<4>(both)), scale[1], offset[1]));
    }
}

/// Eight pairs of tokens by sixteen dimensions at a time: a 32-bit pair of tokens of one dimension beside
/// that of the next becomes, byte-shuffled, the pair of dimensions of one token beside that of the other; 8 x
/// 8 such 64-bit pieces are transposed.
void transpose_values_bf16(void* out, const void* in, int64_t value_dim) {
  auto* to = static_cast<uint16_t*>(out);
  const auto* from = static_cast<const uint16_t*>(in);
  const I order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  for (int64_t d = 0; d < value_dim; d += kLanes) {
    I a[8], b[8];
    for (int p = 0; p < 8; ++p) a[p] = _mm512_shuffle_epi8(load_i32(from + (p * value_dim + d) * 2), order);
    for (int p = 0; p < 8; p += 2) {
      b[p] = _mm512_unpacklo_epi64(a[p], a[p + 1]);
      b[p + 1] = _mm512_unpackhi_epi64(a[p], a[p + 1]);
    }
    // b[p] holds pieces 0, 2, 4, 6 of rows p, p + 1; b[p + 1] pieces 1, 3, 5, 7.
    for (int odd = 0; odd < 2; ++odd) {
      const I low02 = _mm512_shuffle_i64x2(b[odd], b[2 + odd], 0x44),
              low46 = _mm512_shuffle_i64x2(b[odd], b[2 + odd], 0xee);
      const I high02 = _mm512_shuffle_i64x2(b[4 + odd], b[6 + odd], 0x44),
              high46 = _mm512_shuffle_i64x2(b[4 + odd], b[6 + odd], 0xee);
      uint16_t* row = to + (d + 2 * odd) * kTokenTile;
      _mm512_storeu_si512(row, _mm512_shuffle_i64x2(low02, high02, 0x88));
      _mm512_storeu_si512(row + 4 * kTokenTile, _mm512_shuffle_i64x2(low02, high02, 0xdd));
      _mm512_storeu_si512(row + 8 * kTokenTile, _mm512_shuffle_i64x2(low46, high46, 0x88));
      _mm512_storeu_si512(row + 12 * kTokenTile, _mm512_shuffle_i64x2(low46, high46, 0xdd));
    }
  }
}

}  // namespace

void fill_avx512bf16(Table& t) {
  AttentionKernels& kernels = t.attention_bf16;  // integer products stay those of the table so far
  kernels.bf16 = true;
  kernels.attend = attend_panels<Bf16Dot>;
  kernels.prepare_query = prepare_query_bf16;
  kernels.expand_bf16 = copy_bf16;
  kernels.expand_int8 = expand_int8_bf16;
  kernels.expand_int4_k = expand_int4_k_bf16;
  kernels.expand_int4_v = expand_int4_v_bf16;
  kernels.transpose_values = transpose_values_bf16;
}

}  // namespace millrace::kernels
