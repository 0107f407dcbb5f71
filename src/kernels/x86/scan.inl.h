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

/// Lanes are channels.
void selective_scan_kernel(const SelectiveScan& s) {
  for (int64_t c = 0; c < s.channels; c += kLanes) {
    const int64_t lanes = lanes_left(s.channels, c);
    const F d = s.d ? load_lanes(s.d + c, lanes) : set(0.0f);
    for (int64_t t = 0; t < s.tokens; ++t) {
      const F dt = load_lanes(s.dt + t * s.dt_stride + c, lanes);
      const F x = load_lanes(s.x + t * s.x_stride + c, lanes);
      const F dt_x = mul(dt, x);
      F y = mul(d, x);
      for (int64_t n = 0; n < s.state_size; ++n) {
        float* state = s.state + n * s.state_stride + c;
        const F decay = exponential(mul(dt, load_lanes(s.a + n * s.a_stride + c, lanes)));
        const F h = fma(decay, load_lanes(state, lanes), mul(dt_x, set(s.b[t * s.b_stride + n])));
        store_lanes(state, h, lanes);
        y = fma(h, set(s.c[t * s.c_stride + n]), y);
      }
      store_lanes(s.y + t * s.y_stride + c, y, lanes);
    }
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
  for (; p + 4 <= s.head_dim; p += 4) head_scan_rows<4>(s, p);
  for (; p < s.head_dim; ++p) head_scan_rows<1>(s, p);
}

/// Lanes are the state's second index. One pass over the decayed state gives both S^T k and S^T q, a second
/// adds the correction; what the correction adds to the output is (k . q) times it.
template <int V>
inline void delta_scan_vectors(const DeltaScan& s, int64_t d, int64_t last_lanes) {
  const auto lanes = [last_lanes](int v) { return v == V - 1 ? last_lanes : int64_t{kLanes}; };
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float *q = s.q + t * s.q_stride, *k = s.k + t * s.k_stride;
    F recalled[V], asked[V], correction[V];
    for (int v = 0; v < V; ++v) recalled[v] = asked[v] = set(0.0f);
    for (int64_t i = 0; i < s.key_dim; ++i) {
      const F ki = set(k[i]), qi = set(q[i]);
      for (int v = 0; v < V; ++v) {
        const F state = load_lanes(s.state + i * s.value_dim + d + v * kLanes, lanes(v));
        recalled[v] = fma(state, ki, recalled[v]);
        asked[v] = fma(state, qi, asked[v]);
      }
    }
    const F decay = set(s.decay[t]), beta = set(s.beta[t]), key_query = set(s.key_query[t]);
    for (int v = 0; v < V; ++v) {
      const F value = load_lanes(s.v + t * s.v_stride + d + v * kLanes, lanes(v));
      correction[v] = mul(beta, fnma(decay, recalled[v], value));
      store_lanes(s.y + t * s.y_stride + d + v * kLanes, fma(correction[v], key_query, mul(decay, asked[v])),
                  lanes(v));
    }
    for (int64_t i = 0; i < s.key_dim; ++i) {
      const F ki = set(k[i]);
      for (int v = 0; v < V; ++v) {
        float* state = s.state + i * s.value_dim + d + v * kLanes;
        store_lanes(state, fma(ki, correction[v], mul(decay, load_lanes(state, lanes(v)))), lanes(v));
      }
    }
  }
}

void delta_scan_kernel(const DeltaScan& s) {
  int64_t d = 0;
  for (; d + 4 * kLanes <= s.value_dim; d += 4 * kLanes) delta_scan_vectors<4>(s, d, kLanes);
  for (; d < s.value_dim; d += kLanes) delta_scan_vectors<1>(s, d, lanes_left(s.value_dim, d));
}

}  // namespace
}  // namespace millrace::kernels
