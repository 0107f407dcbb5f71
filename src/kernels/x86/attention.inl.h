// The attention panel over vectors; include after vector_*.h and math.inl.h. `Dot` gives the two products;
// what lies between them is here. Every (row, token) score is one chain of multiply-adds over the key's
// dimensions in order and every (row, dimension) output one over the tokens, whatever the number of rows and
// tiles handled together.
#pragma once

#include "kernels/attention.h"

namespace millrace::kernels {
namespace {

inline constexpr int kTileVectors = kTokenTile / kLanes;

/// Whatever changes scores before the softmax: scale of stored keys, cap, slope, mask. In place in the
/// scratch.
inline void adjust_scores(const AttentionPanel& p, int32_t row) {
  float* scores = p.scratch + row * kChunkTokens;
  const int32_t tokens = p.num_tiles * kTokenTile;
  const int32_t begin = p.begin[row], end = p.end[row];
  const F cap = set(p.softcap), inverse_cap = set(p.softcap != 0.0f ? 1.0f / p.softcap : 0.0f);
  for (int32_t t = 0; t < tokens; t += kLanes) {
    F s = load(scores + t);
    const float* k_scale = p.k_scale[t / kTokenTile];
    if (k_scale) s = mul(s, load(k_scale + t % kTokenTile));
    if (p.softcap != 0.0f) s = mul(cap, hyperbolic_tangent(mul(s, inverse_cap)));
    if (p.alibi_slope) {
      const F distance = sub(set(p.alibi_distance[row] - static_cast<float>(t)), lane_numbers());
      s = fnma(set(p.alibi_slope[row]), distance, s);
    }
    store(scores + t, keep_lanes(s, begin - t, end - t));
  }
}

/// Turns the scores of R rows into the weights that the second product reads, and brings maximum and sum up
/// to date. `correction` is what each row's earlier output shrinks by.
template <typename Dot, int R>
inline void weigh_rows(const AttentionPanel& p, float* correction) {
  const int32_t tokens = p.num_tiles * kTokenTile;
  const bool adjust = p.k_scale[0] || p.softcap != 0.0f || p.alibi_slope;
  for (int r = 0; r < R; ++r)
    if (adjust || p.begin[r] > 0 || p.end[r] < tokens) adjust_scores(p, r);
  F highest[R];
  for (int r = 0; r < R; ++r) highest[r] = load(p.scratch + r * kChunkTokens);
  for (int32_t t = kLanes; t < tokens; t += kLanes)
    for (int r = 0; r < R; ++r) highest[r] = larger(highest[r], load(p.scratch + r * kChunkTokens + t));
  float fall[kLanes] = {};
  F sum[R];
  for (int r = 0; r < R; ++r) {
    const float before = p.maximum[r], now = largest(highest[r]);
    const float maximum = now > before ? now : before;
    fall[r] = before - maximum;
    p.maximum[r] = maximum;
    sum[r] = Dot::weigh(p, r, set(maximum));
  }
  store(correction, exponential2(load(fall)));
  for (int r = 0; r < R; ++r) p.sum[r] = p.sum[r] * correction[r] + total(sum[r]);
}

/// Fetches what the next chunk has where this one has `at`: tiles lie a block apart, where no hardware
/// prefetcher follows, and a burst of prefetches ahead of the chunk would wait for memory instead of working
/// meanwhile.
template <int T>
inline void fetch_along(const void* const* next, int64_t at) {
  for (int t = 0; t < T; ++t) __builtin_prefetch(static_cast<const char*>(next[t]) + at, 0, 2);
}

/// Products over float tiles.
struct FloatDot {
  /// Weights in place; returns their sums by lane.
  static inline F weigh(const AttentionPanel& p, int32_t row, F maximum) {
    float* scores = p.scratch + row * kChunkTokens;
    F sum = set(0.0f);
    for (int32_t t = 0; t < p.num_tiles * kTokenTile; t += kLanes) {
      F w = exponential2(sub(load(scores + t), maximum));
      sum = add(sum, w);
      const float* v_scale = p.v_scale[t / kTokenTile];
      if (v_scale) w = mul(w, load(v_scale + t % kTokenTile));
      store(scores + t, w);
    }
    return sum;
  }

  template <int R, int T>
  static inline void score_tiles(const AttentionPanel& p, int32_t tile) {
    F sum[R][T * kTileVectors];
    for (int r = 0; r < R; ++r)
      for (int t = 0; t < T * kTileVectors; ++t) sum[r][t] = set(0.0f);
    const auto* q = static_cast<const float*>(p.q);
    const float* k[T];
    for (int t = 0; t < T; ++t) k[t] = static_cast<const float*>(p.k[tile + t]);
    const void* const* next = p.next_k[0] ? p.next_k + tile : nullptr;
    for (int32_t d = 0; d < p.key_dim; ++d) {
      if (next) fetch_along<T>(next, d * kTokenTile * int64_t{sizeof(float)});
      F x[T * kTileVectors];
      for (int t = 0; t < T * kTileVectors; ++t)
        x[t] = load(k[t / kTileVectors] + d * kTokenTile + t % kTileVectors * kLanes);
      for (int r = 0; r < R; ++r) {
        const F y = set(q[r * p.q_stride + d]);
        for (int t = 0; t < T * kTileVectors; ++t) sum[r][t] = fma(x[t], y, sum[r][t]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int t = 0; t < T * kTileVectors; ++t)
        store(p.scratch + r * kChunkTokens + tile * kTokenTile + t * kLanes, sum[r][t]);
  }

  template <int R, int D>
  static inline void value_vectors(const AttentionPanel& p, const float* correction, int32_t d) {
    F sum[R][D];
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < D; ++i)
        sum[r][i] = mul(load(p.accumulator + r * p.value_dim + d + i * kLanes), set(correction[r]));
    for (int32_t tile = 0; tile < p.num_tiles; ++tile) {
      const float* v = static_cast<const float*>(p.v[tile]) + d;
      const float* w = p.scratch + tile * kTokenTile;
      const char* next = p.next_k[0] ? static_cast<const char*>(p.next_v[tile]) + d * sizeof(float) : nullptr;
      for (int t = 0; t < kTokenTile; ++t) {
        if (next)
          for (int i = 0; i < D * kLanes; i += 16)
            __builtin_prefetch(next + (static_cast<int64_t>(t) * p.value_dim + i) * int64_t{sizeof(float)}, 0,
                               3);
        F x[D];
        for (int i = 0; i < D; ++i) x[i] = load(v + static_cast<int64_t>(t) * p.value_dim + i * kLanes);
        for (int r = 0; r < R; ++r) {
          const F y = set(w[r * kChunkTokens + t]);
          for (int i = 0; i < D; ++i) sum[r][i] = fma(x[i], y, sum[r][i]);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < D; ++i) store(p.accumulator + r * p.value_dim + d + i * kLanes, sum[r][i]);
  }
};

inline int32_t pair_at(const void* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return pair;
}

/// Products over int8 tiles as they are stored: q and weights as int16, sums in exact 32-bit integers.
struct Int8Dot {
  /// Weights times V's scales, as int16 of which the largest of the chunk is 32,767 (64 products with int8
  /// stay below 2^31), over the front half of the scores; what 32,767 is worth goes into the row's last
  /// score.
  static inline F weigh(const AttentionPanel& p, int32_t row, F maximum) {
    float* scores = p.scratch + row * kChunkTokens;
    const int32_t tokens = p.num_tiles * kTokenTile;
    F sum = set(0.0f), highest = set(0.0f);
    for (int32_t t = 0; t < tokens; t += kLanes) {
      F w = exponential2(sub(load(scores + t), maximum));
      sum = add(sum, w);
      w = mul(w, load(p.v_scale[t / kTokenTile] + t % kTokenTile));
      highest = larger(w, highest);
      store(scores + t, w);
    }
    const float top = largest(highest);
    const F factor = set(top > 0.0f ? 32767.0f / top : 0.0f);
    for (int32_t t = 0; t < tokens; t += kLanes)
      store_i16(reinterpret_cast<char*>(scores) + t * 2, mul(load(scores + t), factor));
    scores[kChunkTokens - 1] = top;
    return sum;
  }

  template <int R, int T>
  static inline void score_tiles(const AttentionPanel& p, int32_t tile) {
    I sum[R][T * kTileVectors];
    for (int r = 0; r < R; ++r)
      for (int t = 0; t < T * kTileVectors; ++t) sum[r][t] = set_i32(0);
    const auto* q = static_cast<const int16_t*>(p.q);
    const int8_t* k[T];
    for (int t = 0; t < T; ++t) k[t] = static_cast<const int8_t*>(p.k[tile + t]);
    const void* const* next = p.next_k[0] ? p.next_k + tile : nullptr;
    for (int32_t d = 0; d < p.key_dim; d += 2) {
      if (next && d % 4 == 0) fetch_along<T>(next, int64_t{d} * kTokenTile);
      I x[T * kTileVectors];
      for (int t = 0; t < T * kTileVectors; ++t)
        x[t] = load_byte_pairs(k[t / kTileVectors] + d * kTokenTile + t % kTileVectors * kLanes * 2);
      for (int r = 0; r < R; ++r) {
        const I y = set_i32(pair_at(q + r * p.q_stride + d));
        for (int t = 0; t < T * kTileVectors; ++t) sum[r][t] = dot_halves(sum[r][t], x[t], y);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int t = 0; t < T * kTileVectors; ++t)
        store(p.scratch + r * kChunkTokens + tile * kTokenTile + t * kLanes,
              mul(to_float(sum[r][t]), set(p.q_scale[r])));
  }

  template <int R, int D>
  static inline void value_vectors(const AttentionPanel& p, const float* correction, int32_t d) {
    I sum[R][D];
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < D; ++i) sum[r][i] = set_i32(0);
    for (int32_t tile = 0; tile < p.num_tiles; ++tile) {
      const int8_t* v = static_cast<const int8_t*>(p.v[tile]) + d * 2;
      const auto* w = reinterpret_cast<const char*>(p.scratch) + tile * kTokenTile * 2;
      const char* next = p.next_k[0] ? static_cast<const char*>(p.next_v[tile]) + d * 2 : nullptr;
      for (int t = 0; t < kTokenTile; t += 2) {
        if (next)
          for (int i = 0; i < D * kLanes; i += 32)
            __builtin_prefetch(next + static_cast<int64_t>(t) * p.value_dim + i * 2, 0, 2);
        I x[D];
        for (int i = 0; i < D; ++i)
          x[i] = load_byte_pairs(v + static_cast<int64_t>(t) * p.value_dim + i * 2 * kLanes);
        for (int r = 0; r < R; ++r) {
          const I y = set_i32(pair_at(w + r * kChunkTokens * int64_t{sizeof(float)} + t * 2));
          for (int i = 0; i < D; ++i) sum[r][i] = dot_halves(sum[r][i], x[i], y);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      const F unit = set(p.scratch[r * kChunkTokens + kChunkTokens - 1] * (1.0f / 32767.0f));
      const F shrink = set(correction[r]);
      for (int i = 0; i < D; ++i) {
        float* out = p.accumulator + r * p.value_dim + d + i * kLanes;
        store(out, fma(to_float(sum[r][i]), unit, mul(load(out), shrink)));
      }
    }
  }
};

/// Vectors of sums that fit the registers beside the operands: 24 of 32, or 12 of 16.
inline constexpr int kSumVectors = kLanes == 16 ? 24 : 12;
constexpr int at_once(int rows, int vectors_each) {
  const int fit = kSumVectors / (rows * vectors_each);
  return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

template <typename Dot, int R>
inline void attend_rows(const AttentionPanel& p) {
  constexpr int T = at_once(R, kTileVectors);
  int32_t tile = 0;
  for (; tile + T <= p.num_tiles; tile += T) Dot::template score_tiles<R, T>(p, tile);
  for (; tile < p.num_tiles; ++tile) Dot::template score_tiles<R, 1>(p, tile);
  float correction[kLanes];
  weigh_rows<Dot, R>(p, correction);
  constexpr int D = at_once(R, 1);
  int32_t d = 0;
  for (; d + D * kLanes <= p.value_dim; d += D * kLanes) Dot::template value_vectors<R, D>(p, correction, d);
  for (; d < p.value_dim; d += kLanes) Dot::template value_vectors<R, 1>(p, correction, d);
}

template <typename Dot>
inline void attend_panel(const AttentionPanel& p) {
  switch (p.rows) {
    case 1:
      return attend_rows<Dot, 1>(p);
    case 2:
      return attend_rows<Dot, 2>(p);
    case 3:
      return attend_rows<Dot, 3>(p);
    case 4:
      return attend_rows<Dot, 4>(p);
    case 5:
      return attend_rows<Dot, 5>(p);
    default:
      return attend_rows<Dot, 6>(p);
  }
}

template <typename Dot>
void attend_panels(const AttentionPanel* panels, int32_t count) {
  for (int32_t i = 0; i < count; ++i) attend_panel<Dot>(panels[i]);
}

inline void prepare_query_f32(void* out, const float* q, float scale, int64_t n) {
  auto* to = static_cast<float*>(out);
  const F s = set(scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, mul(load(q + i), s));
  if (i < n) store_some(to + i, mul(load_some(q + i, n - i, set(0.0f)), s), n - i);
}

inline void transpose_values_f32(void* out, const void* in, int64_t value_dim) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const float*>(in);
  for (int64_t d = 0; d < value_dim; ++d)
    for (int64_t t = 0; t < kTokenTile; ++t) to[d * kTokenTile + t] = from[t * value_dim + d];
}

inline float prepare_query_int16(void* out, const float* q, float scale, int64_t n) {
  auto* to = static_cast<int16_t*>(out);
  F highest = set(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) highest = larger(absolute(load(q + i)), highest);
  if (i < n) highest = larger(absolute(load_some(q + i, n - i, set(0.0f))), highest);
  const float room = 2147483000.0f / (127.0f * static_cast<float>(n));
  const float top = largest(highest), limit = room < 32767.0f ? room : 32767.0f;
  const F factor = set(top > 0.0f ? limit / top : 0.0f);
  for (i = 0; i + kLanes <= n; i += kLanes) store_i16(to + i, mul(load(q + i), factor));
  if (i < n) {
    int16_t last[kLanes];
    store_i16(last, mul(load_some(q + i, n - i, set(0.0f)), factor));
    __builtin_memcpy(to + i, last, static_cast<size_t>(n - i) * sizeof(int16_t));
  }
  return top / limit * scale;
}

/// `convert(from, even, odd)` reads kLanes pairs; `bytes` of one pair.
template <typename Convert>
inline void expand_pairs(void* out, const void* in, int64_t pairs, int64_t width, int64_t bytes,
                         Convert&& convert) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const uint8_t*>(in);
  for (int64_t pair = 0; pair < pairs; ++pair)
    for (int64_t i = 0; i < width; i += kLanes) {
      F even, odd;
      convert(from + (pair * width + i) * bytes, even, odd);
      store(to + 2 * pair * width + i, even);
      store(to + (2 * pair + 1) * width + i, odd);
    }
}

inline void expand_bf16_f32(void* out, const void* in, int64_t pairs, int64_t width) {
  expand_pairs(out, in, pairs, width, 4, [](const uint8_t* from, F& even, F& odd) {
    const I both = load_i32(from);
    even = bits_as_float(shift_left<16>(both));
    odd = bits_as_float(mask_bits(both, 0xffff0000u));
  });
}

inline void expand_int8_f32(void* out, const void* in, int64_t pairs, int64_t width) {
  expand_pairs(out, in, pairs, width, 2, [](const uint8_t* from, F& even, F& odd) {
    const I both = load_i16(from);
    even = to_float(shift_right<24>(shift_left<24>(both)));
    odd = to_float(shift_right<8>(both));
  });
}

/// Scale and offset, bfloat16 each, of kLanes tokens.
inline void load_scale_offset(const void* groups, F& scale, F& offset) {
  const I both = load_i32(groups);
  scale = bits_as_float(shift_left<16>(both));
  offset = bits_as_float(mask_bits(both, 0xffff0000u));
}

inline void set_scale_offset(const uint16_t* group, F& scale, F& offset) {
  scale = bits_as_float(shift_left<16>(set_i32(group[0])));
  offset = bits_as_float(shift_left<16>(set_i32(group[1])));
}

inline void expand_int4_k_f32(void* out, const void* in, const void* groups, int64_t key_dim) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const uint8_t*>(in);
  const auto* group = static_cast<const uint16_t*>(groups);
  for (int64_t d = 0; d < key_dim; d += 2)
    for (int64_t t = 0; t < kTokenTile; t += kLanes) {
      F scale, offset;
      load_scale_offset(group + (d / 32 * kTokenTile + t) * 2, scale, offset);
      const I both = load_u8(from + d / 2 * kTokenTile + t);
      store(to + d * kTokenTile + t, fma(to_float(mask_bits(both, 15)), scale, offset));
      store(to + (d + 1) * kTokenTile + t, fma(to_float(shift_right<4>(both)), scale, offset));
    }
}

inline void expand_int4_v_f32(void* out, const void* in, const void* groups, int64_t value_dim) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const uint8_t*>(in);
  const auto* group = static_cast<const uint16_t*>(groups);
  const int64_t per_token = (value_dim + 31) / 32;
  for (int64_t t = 0; t < kTokenTile; t += 2)
    for (int64_t d = 0; d < value_dim; d += kLanes) {
      F scale, offset;
      const I both = load_u8(from + t / 2 * value_dim + d);
      set_scale_offset(group + (t * per_token + d / 32) * 2, scale, offset);
      store(to + t * value_dim + d, fma(to_float(mask_bits(both, 15)), scale, offset));
      set_scale_offset(group + ((t + 1) * per_token + d / 32) * 2, scale, offset);
      store(to + (t + 1) * value_dim + d, fma(to_float(shift_right<4>(both)), scale, offset));
    }
}

inline void fill_attention(AttentionKernels& kernels) {
  kernels.bf16 = false;
  kernels.attend = attend_panels<FloatDot>;
  kernels.attend_int8 = attend_panels<Int8Dot>;
  kernels.prepare_query_int8 = prepare_query_int16;
  kernels.prepare_query = prepare_query_f32;
  kernels.expand_bf16 = expand_bf16_f32;
  kernels.expand_int8 = expand_int8_f32;
  kernels.expand_int4_k = expand_int4_k_f32;
  kernels.expand_int4_v = expand_int4_v_f32;
  kernels.transpose_values = transpose_values_f32;
}

}  // namespace
}  // namespace millrace::kernels
