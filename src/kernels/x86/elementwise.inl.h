// The element-wise and row-wise kernels over vectors; include after vector_*.h and math.inl.h. Sums run over
// four accumulators in an order that depends on n alone.
#pragma once

#include "kernels/table.h"

namespace millrace::kernels {
namespace {

/// y[i] = f(x[i]...) over n floats, with a masked end.
template <typename Function>
inline void map(float* y, const float* x, int64_t n, Function&& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
  if (i < n) store_some(y + i, f(load_some(x + i, n - i, set(0.0f))), n - i);
}

template <typename Function>
inline void map(float* y, const float* a, const float* b, int64_t n, Function&& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(a + i), load(b + i)));
  if (i < n) {
    const F zero = set(0.0f);
    store_some(y + i, f(load_some(a + i, n - i, zero), load_some(b + i, n - i, zero)), n - i);
  }
}

/// Sum of f(x[i]); f(0) must be 0.
template <typename Function>
inline float sum_of(const float* x, int64_t n, Function&& f) {
  F s[4] = {set(0.0f), set(0.0f), set(0.0f), set(0.0f)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) s[j] = add(s[j], f(load(x + i + j * kLanes)));
  for (; i + kLanes <= n; i += kLanes) s[0] = add(s[0], f(load(x + i)));
  if (i < n) s[1] = add(s[1], f(load_some(x + i, n - i, set(0.0f))));
  return total(add(add(s[0], s[1]), add(s[2], s[3])));
}

void add_kernel(float* y, const float* x, int64_t n) {
  map(y, y, x, n, [](F a, F b) { return add(a, b); });
}

void scale_kernel(float* y, const float* x, float factor, int64_t n) {
  const F f = set(factor);
  map(y, x, n, [f](F a) { return mul(a, f); });
}

void scale_add_kernel(float* y, float y_scale, const float* x, float x_scale, int64_t n) {
  const F ys = set(y_scale), xs = set(x_scale);
  map(y, y, x, n, [ys, xs](F a, F b) { return fma(a, ys, mul(b, xs)); });
}

void rms_norm_kernel(float* y, const float* x, const float* weight, float epsilon, int64_t n) {
  const float squares = sum_of(x, n, [](F a) { return mul(a, a); });
  const F factor = set(1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + epsilon));
  if (weight)
    map(y, x, weight, n, [factor](F a, F w) { return mul(mul(a, factor), w); });
  else
    map(y, x, n, [factor](F a) { return mul(a, factor); });
}

void layer_norm_kernel(float* y, const float* x, const float* weight, const float* bias, float epsilon,
                       int64_t n) {
  const auto count = static_cast<float>(n);
  const F mean = set(sum_of(x, n, [](F a) { return a; }) / count);
  // The lanes past the end would count as -mean each: they are filled with the mean.
  F s[2] = {set(0.0f), set(0.0f)};
  int64_t i = 0;
  for (int j = 0; i + kLanes <= n; i += kLanes, j ^= 1) {
    const F d = sub(load(x + i), mean);
    s[j] = fma(d, d, s[j]);
  }
  if (i < n) {
    const F d = sub(load_some(x + i, n - i, mean), mean);
    s[0] = fma(d, d, s[0]);
  }
  const F factor = set(1.0f / __builtin_sqrtf(total(add(s[0], s[1])) / count + epsilon));
  if (weight)
    map(y, x, weight, n, [=](F a, F w) { return mul(mul(sub(a, mean), factor), w); });
  else
    map(y, x, n, [=](F a) { return mul(sub(a, mean), factor); });
  if (bias) add_kernel(y, bias, n);
}

void silu_mul_kernel(float* y, const float* gate, const float* up, int64_t n) {
  map(y, gate, up, n, [](F g, F u) { return mul(mul(g, sigmoid(g)), u); });
}

void silu_kernel(float* y, const float* x, int64_t n) {
  map(y, x, n, [](F a) { return mul(a, sigmoid(a)); });
}

void sigmoid_kernel(float* y, const float* x, int64_t n) {
  map(y, x, n, [](F a) { return sigmoid(a); });
}

void softplus_kernel(float* y, const float* x, const float* bias, int64_t n) {
  if (bias)
    map(y, x, bias, n, [](F a, F b) { return soft_plus(add(a, b)); });
  else
    map(y, x, n, [](F a) { return soft_plus(a); });
}

void gelu_tanh_mul_kernel(float* y, const float* gate, const float* up, int64_t n) {
  // 0.5 x (1 + tanh(u)) is x sigmoid(2 u).
  const F two_c = set(2.0f * 0.7978845608028654f), cubic = set(0.044715f);
  map(y, gate, up, n, [=](F x, F u) {
    const F inner = mul(x, fma(mul(x, x), cubic, set(1.0f)));
    return mul(mul(x, sigmoid(mul(two_c, inner))), u);
  });
}

void gelu_erf_mul_kernel(float* y, const float* gate, const float* up, int64_t n) {
  const F half = set(0.5f), one = set(1.0f), root = set(0.7071067811865476f);
  map(y, gate, up, n,
      [=](F x, F u) { return mul(mul(mul(half, x), add(one, error_function(mul(x, root)))), u); });
}

float max_kernel(const float* x, int64_t n) {
  const F lowest = set(-__builtin_inff());
  F m[4] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) m[j] = larger(load(x + i + j * kLanes), m[j]);
  for (; i + kLanes <= n; i += kLanes) m[0] = larger(load(x + i), m[0]);
  if (i < n) m[1] = larger(load_some(x + i, n - i, lowest), m[1]);
  return largest(larger(larger(m[0], m[1]), larger(m[2], m[3])));
}

float exp_sum_kernel(float* y, const float* x, float shift, int64_t n) {
  const F s = set(shift);
  F sum[2] = {set(0.0f), set(0.0f)};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    for (int j = 0; j < 2; ++j) {
      const F e = exponential(add(load(x + i + j * kLanes), s));
      store(y + i + j * kLanes, e);
      sum[j] = add(sum[j], e);
    }
  for (; i < n; i += kLanes) {
    const int64_t left = n - i < kLanes ? n - i : kLanes;
    const F in = left == kLanes ? load(x + i) : load_some(x + i, left, set(-__builtin_inff()));
    const F e = exponential(add(in, s));
    if (left == kLanes)
      store(y + i, e);
    else
      store_some(y + i, e, left);
    sum[0] = add(sum[0], e);
  }
  return total(add(sum[0], sum[1]));
}

float softmax_kernel(float* x, int64_t n) {
  const float highest = max_kernel(x, n);
  const float sum = exp_sum_kernel(x, x, -highest, n);
  scale_kernel(x, x, 1.0f / sum, n);
  return highest;
}

int64_t argmax_kernel(const float* x, int64_t n) {
  // One pass finds which stretch first holds the maximum; the stretch is then searched for it.
  constexpr int64_t kStretch = 1024;
  float best = -__builtin_inff();
  int64_t at = 0;
  for (int64_t i = 0; i < n; i += kStretch) {
    const float m = max_kernel(x + i, n - i < kStretch ? n - i : kStretch);
    if (m > best) {
      best = m;
      at = i;
    }
  }
  for (int64_t i = at; i < n; ++i)
    if (x[i] == best) return i;
  return 0;
}

float dot_kernel(const float* a, const float* b, int64_t n) {
  F s[4] = {set(0.0f), set(0.0f), set(0.0f), set(0.0f)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) s[j] = fma(load(a + i + j * kLanes), load(b + i + j * kLanes), s[j]);
  for (; i + kLanes <= n; i += kLanes) s[0] = fma(load(a + i), load(b + i), s[0]);
  if (i < n) s[1] = fma(load_some(a + i, n - i, set(0.0f)), load_some(b + i, n - i, set(0.0f)), s[1]);
  return total(add(add(s[0], s[1]), add(s[2], s[3])));
}

void softcap_kernel(float* x, float cap, int64_t n) {
  const F c = set(cap);
  map(x, x, n, [c](F a) { return mul(c, hyperbolic_tangent(div(a, c))); });
}

void rope_half_kernel(float* x, const float* cosine, const float* sine, int64_t half) {
  const F zero = set(0.0f);
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t n = half - i;
    if (n >= kLanes) {
      const F a = load(x + i), b = load(x + i + half), c = load(cosine + i), s = load(sine + i);
      store(x + i, sub(mul(a, c), mul(b, s)));
      store(x + i + half, add(mul(b, c), mul(a, s)));
    } else {
      const F a = load_some(x + i, n, zero), b = load_some(x + i + half, n, zero);
      const F c = load_some(cosine + i, n, zero), s = load_some(sine + i, n, zero);
      store_some(x + i, sub(mul(a, c), mul(b, s)), n);
      store_some(x + i + half, add(mul(b, c), mul(a, s)), n);
    }
  }
}

void rope_interleaved_kernel(float* x, const float* cosine, const float* sine, int64_t half) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    F a, b, low, high;
    deinterleave(load(x + 2 * i), load(x + 2 * i + kLanes), a, b);
    const F c = load(cosine + i), s = load(sine + i);
    interleave(sub(mul(a, c), mul(b, s)), add(mul(b, c), mul(a, s)), low, high);
    store(x + 2 * i, low);
    store(x + 2 * i + kLanes, high);
  }
  for (; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosine[i] - b * sine[i];
    x[2 * i + 1] = b * cosine[i] + a * sine[i];
  }
}

float exp_sum_scaled_kernel(const float* x, float shift, float factor, int64_t n) {
  const F s = set(shift), f = set(factor);
  F sum[2] = {set(0.0f), set(0.0f)};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    for (int j = 0; j < 2; ++j) sum[j] = add(sum[j], exponential(mul(add(load(x + i + j * kLanes), s), f)));
  for (; i < n; i += kLanes) {
    const F in = n - i >= kLanes ? load(x + i) : load_some(x + i, n - i, set(-__builtin_inff()));
    sum[0] = add(sum[0], exponential(mul(add(in, s), f)));
  }
  return total(add(sum[0], sum[1]));
}

/// A group is one lane of `size` vectors in a row, so that no maximum is taken across lanes.
int64_t group_maxima_kernel(const float* x, int64_t n, int64_t size, float* maxima) {
  const F lowest = set(-__builtin_inff());
  int64_t groups = 0;
  for (int64_t i = 0; i < n; i += size * kLanes) {
    F m = lowest;
    const int64_t end = n - i < size * kLanes ? n : i + size * kLanes;
    int64_t j = i;
    for (; j + kLanes <= end; j += kLanes) m = larger(load(x + j), m);
    if (j < end) m = larger(load_some(x + j, end - j, lowest), m);
    store(maxima + groups, m);
    groups += kLanes;
  }
  return groups;
}

int64_t collect_above_kernel(const float* x, int64_t n, float threshold, int32_t* indices, float* values,
                             int64_t capacity) {
  const F t = set(threshold);
  int64_t found = 0, i = 0;
  const auto take = [&](int64_t at) {
    if (found < capacity) {
      indices[found] = static_cast<int32_t>(at);
      values[found] = x[at];
    }
    ++found;
  };
  // Few elements pass: four vectors are looked at together, and one by one only where something is.
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    uint64_t mask = 0;
    for (int j = 0; j < 4; ++j)
      mask |= static_cast<uint64_t>(lanes_at_least(load(x + i + j * kLanes), t)) << (j * kLanes);
    for (; mask; mask &= mask - 1) take(i + __builtin_ctzll(mask));
  }
  for (; i < n; ++i)
    if (x[i] >= threshold) take(i);
  return found;
}

inline void fill_elementwise(Table& t) {
  t.add = add_kernel;
  t.scale = scale_kernel;
  t.rms_norm = rms_norm_kernel;
  t.layer_norm = layer_norm_kernel;
  t.silu_mul = silu_mul_kernel;
  t.gelu_tanh_mul = gelu_tanh_mul_kernel;
  t.softmax = softmax_kernel;
  t.argmax = argmax_kernel;
  t.dot = dot_kernel;
  t.gelu_erf_mul = gelu_erf_mul_kernel;
  t.scale_add = scale_add_kernel;
  t.exp_sum = exp_sum_kernel;
  t.max = max_kernel;
  t.softcap = softcap_kernel;
  t.rope_half = rope_half_kernel;
  t.rope_interleaved = rope_interleaved_kernel;
  t.exp_sum_scaled = exp_sum_scaled_kernel;
  t.group_maxima = group_maxima_kernel;
  t.collect_above = collect_above_kernel;
  t.silu = silu_kernel;
  t.sigmoid = sigmoid_kernel;
  t.softplus = softplus_kernel;
}

}  // namespace
}  // namespace millrace::kernels
