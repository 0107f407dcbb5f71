// The recurrences over vectors; include after vector_*.h and math.inl.h.
#pragma once

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
constexpr int64_t kAhead = 8;
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

/// One token of V vectors of the head's channels. The state's rows lie `stride` apart; kRescaled: they are
/// multiplied by `rescale` first. Arguments are copies: a store of floats could change what a pointer leads
/// to.
template <int V, bool kRescaled>
inline void head_scan_token(float* state, int64_t stride, int64_t size, int64_t last_lanes, const float* b,
                            const float* c, F rescale, const F* in, F* y) {
  const auto lanes = [last_lanes](int v) { return v == V - 1 ? last_lanes : int64_t{kLanes}; };
  // Even and odd rows apart: more sums in flight than one multiply-add takes cycles.
  F odd[V];
  for (int v = 0; v < V; ++v) y[v] = odd[v] = set(0.0f);
  const auto advance = [&](int64_t n, float* row, F* sum) {
    const F bn = set(b[n]), cn = set(c[n]);
    for (int v = 0; v < V; ++v) {
      F h = load_lanes(row + v * kLanes, lanes(v));
      if constexpr (kRescaled) h = mul(rescale, h);
      h = fma(bn, in[v], h);
      store_lanes(row + v * kLanes, h, lanes(v));
      sum[v] = fma(h, cn, sum[v]);
    }
  };
  int64_t n = 0;
  for (; n + 2 <= size; n += 2, state += 2 * stride) {
    advance(n, state, y);
    advance(n + 1, state + stride, odd);
  }
  if (n < size) advance(n, state, y);
  for (int v = 0; v < V; ++v) y[v] = add(y[v], odd[v]);
}

/// Lanes are channels of the head, V vectors of them from `p` on over all tokens.
template <int V>
inline void head_scan_columns(const HeadScan& s, int64_t p, int64_t last_lanes) {
  const auto lanes = [last_lanes](int v) { return v == V - 1 ? last_lanes : int64_t{kLanes}; };
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float *b = s.b + t * s.b_stride, *c = s.c + t * s.c_stride, *x = s.x + t * s.x_stride + p;
    if (t + kAhead < s.tokens) {
      fetch_row(b, s.b_stride, s.state_size);
      fetch_row(c, s.c_stride, s.state_size);
      fetch_row(x, s.x_stride, V * kLanes);
      fetch_row(s.y + t * s.y_stride + p, s.y_stride, V * kLanes);
    }
    F in[V], y[V];
    for (int v = 0; v < V; ++v) in[v] = mul(set(s.step[t]), load_lanes(x + v * kLanes, lanes(v)));
    const float rescale = s.rescale[t];
    if (rescale == 1.0f)
      head_scan_token<V, false>(s.state + p, s.head_dim, s.state_size, last_lanes, b, c, set(1.0f), in, y);
    else
      head_scan_token<V, true>(s.state + p, s.head_dim, s.state_size, last_lanes, b, c, set(rescale), in, y);
    const F factor = set(s.factor[t]), d = set(s.d);
    for (int v = 0; v < V; ++v)
      store_lanes(s.y + t * s.y_stride + p + v * kLanes,
                  fma(factor, y[v], mul(d, load_lanes(x + v * kLanes, lanes(v)))), lanes(v));
  }
}

void head_scan_kernel(const HeadScan& s) {
  const FlushSmall flush;
  constexpr int V = 4;  // as the registers allow
  int64_t p = 0;
  for (; p + V * kLanes <= s.head_dim; p += V * kLanes) head_scan_columns<V>(s, p, kLanes);
  for (; p < s.head_dim; p += kLanes) head_scan_columns<1>(s, p, lanes_left(s.head_dim, p));
}

/// Lanes are the state's second index. One pass over the state gives both S^T k and S^T q, a second adds the
/// correction; what the correction adds to the output is (k . q) times it.
template <int V>
inline void delta_scan_vectors(const DeltaScan& s, int64_t d, int64_t last_lanes, float* state,
                               int64_t stride) {
  const auto lanes = [last_lanes](int v) { return v == V - 1 ? last_lanes : int64_t{kLanes}; };
  const int64_t keys = s.key_dim;
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float *q = s.q + t * s.q_stride, *k = s.k + t * s.k_stride;
    if (t + kAhead < s.tokens) {
      fetch_row(q, s.q_stride, keys);
      fetch_row(k, s.k_stride, keys);
      fetch_row(s.v + t * s.v_stride + d, s.v_stride, V * kLanes);
      fetch_row(s.y + t * s.y_stride + d, s.y_stride, V * kLanes);
    }
    // Even and odd keys apart: more sums in flight than one multiply-add takes cycles.
    F recalled[2][V], asked[2][V], correction[V];
    for (int v = 0; v < V; ++v) recalled[0][v] = recalled[1][v] = asked[0][v] = asked[1][v] = set(0.0f);
    const auto read = [&](int64_t i, F* recall, F* ask) {
      const F ki = set(k[i]), qi = set(q[i]);
      for (int v = 0; v < V; ++v) {
        const F row = load_lanes(state + i * stride + v * kLanes, lanes(v));
        recall[v] = fma(row, ki, recall[v]);
        ask[v] = fma(row, qi, ask[v]);
      }
    };
    int64_t pair = 0;
    for (; pair + 2 <= keys; pair += 2) {
      read(pair, recalled[0], asked[0]);
      read(pair + 1, recalled[1], asked[1]);
    }
    if (pair < keys) read(pair, recalled[0], asked[0]);
    // What was read has not been multiplied by `rescale` yet.
    const float rescale = s.rescale[t];
    const F factor = set(rescale == 1.0f ? s.factor[t] : rescale), beta = set(s.beta[t]),
            key_query = set(s.key_query[t]);
    for (int v = 0; v < V; ++v) {
      const F value = load_lanes(s.v + t * s.v_stride + d + v * kLanes, lanes(v));
      correction[v] = mul(beta, fnma(factor, add(recalled[0][v], recalled[1][v]), value));
      store_lanes(s.y + t * s.y_stride + d + v * kLanes,
                  fma(correction[v], key_query, mul(factor, add(asked[0][v], asked[1][v]))), lanes(v));
      correction[v] = mul(correction[v], set(s.inverse[t]));
    }
    const auto update = [&](const auto& scaled) {
      float* row = state;
      for (int64_t i = 0; i < keys; ++i, row += stride) {
        const F ki = set(k[i]);
        for (int v = 0; v < V; ++v)
          store_lanes(row + v * kLanes,
                      fma(ki, correction[v], scaled(load_lanes(row + v * kLanes, lanes(v)))), lanes(v));
      }
    };
    if (rescale == 1.0f)
      update([](F x) { return x; });
    else
      update([r = set(rescale)](F x) { return mul(r, x); });
  }
}

void delta_scan_kernel(const DeltaScan& s) {
  const FlushSmall flush;
  // 32 columns of a state lie a row apart, which maps them to a quarter of the cache's sets: over many tokens
  // they are kept side by side.
  constexpr int V = 32 / kLanes;
  constexpr int64_t kWidth = V * kLanes, kRoom = 128;
  alignas(64) float kept[kRoom * kWidth];
  const bool keeps = s.tokens >= 4 && s.key_dim <= kRoom;
  int64_t d = 0;
  for (; d + kWidth <= s.value_dim; d += kWidth) {
    if (!keeps) {
      delta_scan_vectors<V>(s, d, kLanes, s.state + d, s.value_dim);
      continue;
    }
    for (int64_t i = 0; i < s.key_dim; ++i)
      for (int v = 0; v < V; ++v)
        store(kept + i * kWidth + v * kLanes, load(s.state + i * s.value_dim + d + v * kLanes));
    delta_scan_vectors<V>(s, d, kLanes, kept, kWidth);
    for (int64_t i = 0; i < s.key_dim; ++i)
      for (int v = 0; v < V; ++v)
        store(s.state + i * s.value_dim + d + v * kLanes, load(kept + i * kWidth + v * kLanes));
  }
  for (; d < s.value_dim; d += kLanes)
    delta_scan_vectors<1>(s, d, lanes_left(s.value_dim, d), s.state + d, s.value_dim);
}

}  // namespace
}  // namespace millrace::kernels
