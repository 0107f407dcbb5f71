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

/// Lanes are channels, kLanes of them over all tokens. Rows of the state and of a are a layer's width apart,
/// which maps them to few sets of the cache: for the tokens they are kept side by side, as many as fit.
void selective_scan_kernel(const SelectiveScan& s) {
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

/// Lanes are the state's second index; R rows of the state share the loads of b and c.
template <int R>
inline void head_scan_rows(const HeadScan& s, int64_t p) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float *b = s.b + t * s.b_stride, *c = s.c + t * s.c_stride;
    const F decay = set(s.decay[t]);
    F dt_x[R], y[R];
    for (int r = 0; r < R; ++r) {
      dt_x[r] = set(s.dt[t] * s.x[t * s.x_stride + p + r]);
      y[r] = set(0.0f);
    }
    for (int64_t n = 0; n < s.state_size; n += kLanes) {
      const int64_t lanes = lanes_left(s.state_size, n);
      const F bn = load_lanes(b + n, lanes), cn = load_lanes(c + n, lanes);
      for (int r = 0; r < R; ++r) {
        float* state = s.state + (p + r) * s.state_size + n;
        const F h = fma(decay, load_lanes(state, lanes), mul(dt_x[r], bn));
        store_lanes(state, h, lanes);
        y[r] = fma(h, cn, y[r]);
      }
    }
    for (int r = 0; r < R; ++r) s.y[t * s.y_stride + p + r] = total(y[r]) + s.d * s.x[t * s.x_stride + p + r];
  }
}

void head_scan_kernel(const HeadScan& s) {
  int64_t p = 0;
  constexpr int R = kLanes == 16 ? 8 : 4;  // as the registers allow
  for (; p + R <= s.head_dim; p += R) head_scan_rows<R>(s, p);
  for (; p < s.head_dim; ++p) head_scan_rows<1>(s, p);
}

/// Lanes are the state's second index. One pass over the decayed state gives both S^T k and S^T q, a second
/// adds the correction; what the correction adds to the output is (k . q) times it.
template <int V>
inline void delta_scan_vectors(const DeltaScan& s, int64_t d, int64_t last_lanes, float* state,
                               int64_t stride) {
  const auto lanes = [last_lanes](int v) { return v == V - 1 ? last_lanes : int64_t{kLanes}; };
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float *q = s.q + t * s.q_stride, *k = s.k + t * s.k_stride;
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
    for (; pair + 2 <= s.key_dim; pair += 2) {
      read(pair, recalled[0], asked[0]);
      read(pair + 1, recalled[1], asked[1]);
    }
    if (pair < s.key_dim) read(pair, recalled[0], asked[0]);
    const F decay = set(s.decay[t]), beta = set(s.beta[t]), key_query = set(s.key_query[t]);
    for (int v = 0; v < V; ++v) {
      const F value = load_lanes(s.v + t * s.v_stride + d + v * kLanes, lanes(v));
      correction[v] = mul(beta, fnma(decay, add(recalled[0][v], recalled[1][v]), value));
      store_lanes(s.y + t * s.y_stride + d + v * kLanes,
                  fma(correction[v], key_query, mul(decay, add(asked[0][v], asked[1][v]))), lanes(v));
    }
    for (int64_t i = 0; i < s.key_dim; ++i) {
      const F ki = set(k[i]);
      for (int v = 0; v < V; ++v) {
        float* row = state + i * stride + v * kLanes;
        store_lanes(row, fma(ki, correction[v], mul(decay, load_lanes(row, lanes(v)))), lanes(v));
      }
    }
  }
}

void delta_scan_kernel(const DeltaScan& s) {
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
