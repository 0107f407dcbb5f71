// The recurrences over vectors; include after vector_*.h and math.inl.h.
#pragma once

#include <utility>

#include "kernels/scan.h"

namespace millrace::kernels {
namespace {

/// Lanes that exist of those from `at` on.
inline int64_t lanes_left(int64_t n, int64_t at) { return n - at < kLanes ? n - at : kLanes; }
inline F load_lanes(const float* p, int64_t lanes) {
  return lanes == kLanes ? load(p) : load_some(p, lanes, set(0.0f));
}
inline void store_lanes(float* p, F x, int64_t lanes) {
  if (lanes == kLanes)
    store(p, x);
  else
    store_some(p, x, lanes);
}

/// While it lives, numbers below the smallest normal one count as zero: what fast decays leave of a state
/// ends there, and each operation on such a number would take a hundred cycles.
class FlushSmall {
 public:
  FlushSmall() { _mm_setcsr(before_ | 0x8040); }
  ~FlushSmall() { _mm_setcsr(before_); }
  FlushSmall(const FlushSmall&) = delete;
  FlushSmall& operator=(const FlushSmall&) = delete;

 private:
  unsigned before_ = _mm_getcsr();
};

/// Rows of neighbouring tokens lie a layer's width apart, on pages of their own, where the processor does not
/// fetch ahead by itself: what the token kAhead further on reads or writes is asked for.
inline constexpr int64_t kAhead = 8;
inline void fetch_row(const float* row, int64_t stride, int64_t floats) {
  for (int64_t i = 0; i < floats; i += 16) __builtin_prefetch(row + kAhead * stride + i);
}

/// Lanes are channels, kLanes of them over all tokens. Rows of the state and of a are a layer's width apart,
/// which maps them to few sets of the cache: for the tokens they are kept side by side, as many as fit.
void selective_scan_kernel(const SelectiveScan& s) {
  const FlushSmall flush;
  constexpr int64_t kRoom = 64;
  alignas(64) float kept_state[kRoom * kLanes], kept_a[kRoom * kLanes];
  const bool keeps = s.state_size <= kRoom;
  for (int64_t c = 0; c < s.channels; c += kLanes) {
    const int64_t lanes = lanes_left(s.channels, c);
    for (int64_t n = 0; keeps && n < s.state_size; ++n) {
      store(kept_state + n * kLanes, load_lanes(s.state + n * s.state_stride + c, lanes));
      store(kept_a + n * kLanes, load_lanes(s.a + n * s.a_stride + c, lanes));
    }
    float* state = keeps ? kept_state : s.state + c;
    const float* a = keeps ? kept_a : s.a + c;
    const int64_t state_stride = keeps ? kLanes : s.state_stride, a_stride = keeps ? kLanes : s.a_stride;
    const int64_t kept_lanes = keeps ? kLanes : lanes;
    const F d = s.d ? load_lanes(s.d + c, lanes) : set(0.0f);
    for (int64_t t = 0; t < s.tokens; ++t) {
      const F dt = load_lanes(s.dt + t * s.dt_stride + c, lanes);
      const F x = load_lanes(s.x + t * s.x_stride + c, lanes);
      const float *b = s.b + t * s.b_stride, *cn = s.c + t * s.c_stride;
      if (t + kAhead < s.tokens) {
        fetch_row(s.dt + t * s.dt_stride + c, s.dt_stride, 1);
        fetch_row(s.x + t * s.x_stride + c, s.x_stride, 1);
        fetch_row(s.y + t * s.y_stride + c, s.y_stride, 1);
        fetch_row(b, s.b_stride, s.state_size);
        fetch_row(cn, s.c_stride, s.state_size);
      }
      const F dt_x = mul(dt, x);
      F y = mul(d, x);
      for (int64_t n = 0; n < s.state_size; ++n) {
        const F decay = exponential(mul(dt, load_lanes(a + n * a_stride, kept_lanes)));
        const F h = fma(decay, load_lanes(state + n * state_stride, kept_lanes), mul(dt_x, set(b[n])));
        store_lanes(state + n * state_stride, h, kept_lanes);
        y = fma(h, set(cn[n]), y);
      }
      store_lanes(s.y + t * s.y_stride + c, y, lanes);
    }
    for (int64_t n = 0; keeps && n < s.state_size; ++n)
      store_lanes(s.state + n * s.state_stride + c, load(kept_state + n * kLanes), lanes);
  }
}

/// body(0), body(1) ... body(N - 1) with constants, so that arrays of vectors which they index are registers:
/// GCC unrolls an outermost loop after it has decided which arrays are memory.
template <int N, typename Body>
inline __attribute__((always_inline)) void each(Body&& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (body(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

/// V whole vectors, or one of `lanes` lanes.
template <int V>
inline F load_column(const float* p, int v, int64_t lanes) {
  return V == 1 ? load_lanes(p, lanes) : load(p + v * kLanes);
}
template <int V>
inline void store_column(float* p, int v, F x, int64_t lanes) {
  if (V == 1)
    store_lanes(p, x, lanes);
  else
    store(p + v * kLanes, x);
}

/// R tokens from `t` on, V vectors of the strip from column `p` on. Sums stay in registers from the state's
/// first row to the chunk's last token. kSolve: `solve`, else `read`.
template <int R, int V, bool kSolve>
inline void chunk_tokens(const ChunkScan& s, int64_t t, int64_t p, int64_t lanes) {
  F sums[R][V];
  each<R * V>([&](auto i) { sums[i / V][i % V] = set(0.0f); });
  const float *row = s.state + p, *key = s.keys + (t - s.first) * s.key_stride;
  const int64_t stride = s.columns, key_stride = s.key_stride, size = s.size;
  for (int64_t n = 0; n < size; ++n, row += stride) {
    F state[V];
    for (int v = 0; v < V; ++v) state[v] = load_column<V>(row, v, lanes);
    // One token is bound by where the state comes from.
    if (R == 1)
      for (int v = 0; v < V; ++v) __builtin_prefetch(row + 32 * stride + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const F k = set(key[r * key_stride + n]);
      for (int v = 0; v < V; ++v) sums[r][v] = fma(k, state[v], sums[r][v]);
    }
  }
  const float* mix = s.mix + t * kScanChunk;
  const int64_t value_stride = s.value_stride;
  float* own = s.values + t * value_stride + p;
  each<R * V>([&](auto i) {
    constexpr int r = i / V, v = i % V;
    const F factor = set(s.factor[t + r]);
    sums[r][v] = kSolve ? fnma(factor, sums[r][v], load_column<V>(own + r * value_stride, v, lanes))
                        : mul(factor, sums[r][v]);
  });
  const auto take = [](F m, F value, F sum) { return kSolve ? fnma(m, value, sum) : fma(m, value, sum); };
  const float* value = s.values + p;
  for (int64_t i = 0; i < t; ++i, value += value_stride) {
    F from[V];
    for (int v = 0; v < V; ++v) from[v] = load_column<V>(value, v, lanes);
    for (int r = 0; r < R; ++r) {
      const F m = set(mix[r * kScanChunk + i]);
      for (int v = 0; v < V; ++v) sums[r][v] = take(m, from[v], sums[r][v]);
    }
  }
  each<R * R * V>([&](auto i) {
    constexpr int from = i / (R * V), r = i / V % R, v = i % V;
    if constexpr (r > from || (!kSolve && r == from)) {
      const F x = kSolve ? sums[from][v] : load_column<V>(own + from * value_stride, v, lanes);
      sums[r][v] = take(set(mix[r * kScanChunk + t + from]), x, sums[r][v]);
    }
  });
  float* out = kSolve ? own : s.y + (t - s.first) * s.y_stride + p;
  const int64_t out_stride = kSolve ? value_stride : s.y_stride;
  each<R * V>([&](auto i) { store_column<V>(out + i / V * out_stride, i % V, sums[i / V][i % V], lanes); });
}

template <int V, bool kSolve>
inline void chunk_columns(const ChunkScan& s, int64_t p, int64_t lanes) {
  constexpr int R = 4;
  int64_t t = s.first;
  for (; t + R <= s.end; t += R) chunk_tokens<R, V, kSolve>(s, t, p, lanes);
  for (; t < s.end; ++t) chunk_tokens<1, V, kSolve>(s, t, p, lanes);
}

/// Vectors of a strip that are done together, as the registers allow.
inline constexpr int kStripVectors = kLanes == 16 ? 4 : 2;

template <bool kSolve>
inline void chunk_strip(const ChunkScan& s) {
  int64_t p = 0;
  for (; p + kStripVectors * kLanes <= s.columns; p += kStripVectors * kLanes)
    chunk_columns<kStripVectors, kSolve>(s, p, kLanes);
  for (; p < s.columns; p += kLanes) chunk_columns<1, kSolve>(s, p, lanes_left(s.columns, p));
}

void chunk_read_kernel(const ChunkScan& s) {
  const FlushSmall flush;
  chunk_strip<false>(s);
}
void chunk_solve_kernel(const ChunkScan& s) {
  const FlushSmall flush;
  chunk_strip<true>(s);
}

/// R rows of the state from `n` on.
template <int R, int V>
inline void chunk_update_rows(const ChunkScan& s, int64_t n, int64_t p, int64_t lanes) {
  const F factor = set(*s.factor);
  const int64_t stride = s.columns, value_stride = s.value_stride, key_stride = s.key_stride;
  float* rows = s.state + n * stride + p;
  F sums[R][V];
  each<R * V>(
      [&](auto i) { sums[i / V][i % V] = mul(factor, load_column<V>(rows + i / V * stride, i % V, lanes)); });
  const float *key = s.keys + n, *value = s.values + p;
  for (int64_t i = s.end; i > 0; --i, key += key_stride, value += value_stride) {
    F from[V];
    for (int v = 0; v < V; ++v) from[v] = load_column<V>(value, v, lanes);
    for (int r = 0; r < R; ++r) {
      const F k = set(key[r]);
      for (int v = 0; v < V; ++v) sums[r][v] = fma(k, from[v], sums[r][v]);
    }
  }
  each<R * V>([&](auto i) { store_column<V>(rows + i / V * stride, i % V, sums[i / V][i % V], lanes); });
}

template <int V>
inline void chunk_update_columns(const ChunkScan& s, int64_t p, int64_t lanes) {
  constexpr int R = 4;
  int64_t n = 0;
  for (; n + R <= s.size; n += R) chunk_update_rows<R, V>(s, n, p, lanes);
  for (; n < s.size; ++n) chunk_update_rows<1, V>(s, n, p, lanes);
}

void chunk_update_kernel(const ChunkScan& s) {
  const FlushSmall flush;
  int64_t p = 0;
  for (; p + kStripVectors * kLanes <= s.columns; p += kStripVectors * kLanes)
    chunk_update_columns<kStripVectors>(s, p, kLanes);
  for (; p < s.columns; p += kLanes) chunk_update_columns<1>(s, p, lanes_left(s.columns, p));
}

/// R rows from `t` on times K keys from `i` on.
template <int R, int K>
inline void chunk_pairs_block(const ChunkPairs& s, int64_t t, int64_t i) {
  F sums[R][K];
  each<R * K>([&](auto j) { sums[j / K][j % K] = set(0.0f); });
  const float *rows = s.rows + (t - s.first) * s.row_stride, *keys = s.keys + i * s.key_stride;
  const int64_t row_stride = s.row_stride, key_stride = s.key_stride;
  const auto add_lanes = [&](int64_t n, const auto& load_at) {
    F key[K];
    for (int k = 0; k < K; ++k) key[k] = load_at(keys + k * key_stride + n);
    for (int r = 0; r < R; ++r) {
      const F row = load_at(rows + r * row_stride + n);
      for (int k = 0; k < K; ++k) sums[r][k] = fma(row, key[k], sums[r][k]);
    }
  };
  int64_t n = 0;
  for (; n + kLanes <= s.size; n += kLanes) add_lanes(n, [](const float* p) { return load(p); });
  if (n < s.size) add_lanes(n, [left = s.size - n](const float* p) { return load_some(p, left, set(0.0f)); });
  each<R * K>([&](auto j) { s.out[(t + j / K) * kScanChunk + i + j % K] = total(sums[j / K][j % K]); });
}

template <int R>
inline void chunk_pairs_rows(const ChunkPairs& s, int64_t t) {
  constexpr int K = kLanes == 16 ? 4 : 2;
  int64_t i = 0;
  for (; i + K <= t + R; i += K) chunk_pairs_block<R, K>(s, t, i);
  for (; i < t + R; ++i) chunk_pairs_block<R, 1>(s, t, i);
}

void chunk_pairs_kernel(const ChunkPairs& s) {
  const FlushSmall flush;
  constexpr int R = 4;
  int64_t t = s.first;
  for (; t + R <= s.end; t += R) chunk_pairs_rows<R>(s, t);
  for (; t < s.end; ++t) chunk_pairs_rows<1>(s, t);
}

/// N tokens with kTaps taps, a vector of channels at a time. All inputs are read before a result is written:
/// y may be x.
template <int kTaps, int N>
inline void conv_tokens(const CausalConv& s, int64_t t) {
  const float* x = s.x + t * s.x_stride;
  float* y = s.y + t * s.y_stride;
  for (int64_t c = 0; c < s.channels; c += kLanes) {
    const int64_t lanes = lanes_left(s.channels, c);
    F in[kTaps - 1 + N], weight[kTaps];
    for (int j = 0; j < kTaps - 1; ++j) in[j] = load_lanes(s.state + j * s.state_stride + c, lanes);
    for (int i = 0; i < N; ++i) {
      in[kTaps - 1 + i] = load_lanes(x + i * s.x_stride + c, lanes);
      if (N > 1) {
        __builtin_prefetch(x + (N + i) * s.x_stride + c);
        __builtin_prefetch(y + (N + i) * s.y_stride + c, 1);
      }
    }
    for (int j = 0; j < kTaps; ++j) weight[j] = load_lanes(s.weight + j * s.weight_stride + c, lanes);
    const F bias = s.bias ? load_lanes(s.bias + c, lanes) : set(0.0f);
    for (int i = 0; i < N; ++i) {
      F sum = bias;
      for (int j = 0; j < kTaps; ++j) sum = fma(weight[j], in[i + j], sum);
      store_lanes(y + i * s.y_stride + c, s.silu ? mul(sum, sigmoid(sum)) : sum, lanes);
    }
    for (int j = 0; j < kTaps - 1; ++j) store_lanes(s.state + j * s.state_stride + c, in[N + j], lanes);
  }
}

/// Any number of taps: the inputs move up in the state token by token.
inline void conv_token(const CausalConv& s, int64_t t) {
  const int64_t kept = s.taps - 1;
  for (int64_t c = 0; c < s.channels; c += kLanes) {
    const int64_t lanes = lanes_left(s.channels, c);
    F sum = s.bias ? load_lanes(s.bias + c, lanes) : set(0.0f);
    const F x = load_lanes(s.x + t * s.x_stride + c, lanes);
    float* past = s.state + c;
    for (int64_t j = 0; j < kept; ++j, past += s.state_stride) {
      sum = fma(load_lanes(s.weight + j * s.weight_stride + c, lanes), load_lanes(past, lanes), sum);
      store_lanes(past, j + 1 < kept ? load_lanes(past + s.state_stride, lanes) : x, lanes);
    }
    sum = fma(load_lanes(s.weight + kept * s.weight_stride + c, lanes), x, sum);
    store_lanes(s.y + t * s.y_stride + c, s.silu ? mul(sum, sigmoid(sum)) : sum, lanes);
  }
}

void conv_kernel(const CausalConv& s) {
  int64_t t = 0;
  if (s.taps == 4) {
    for (; t + 4 <= s.tokens; t += 4) conv_tokens<4, 4>(s, t);
    for (; t < s.tokens; ++t) conv_tokens<4, 1>(s, t);
  }
  for (; t < s.tokens; ++t) conv_token(s, t);
}

}  // namespace
}  // namespace millrace::kernels
