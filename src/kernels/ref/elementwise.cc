// Plain versions of the element-wise and row-wise kernels: what every faster one is tested against.
#include <algorithm>
#include <cmath>

#include "kernels/tables.h"

namespace millrace::kernels {
namespace {

void add(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

void scale(float* y, const float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

void rms_norm(float* y, const float* x, const float* weight, float epsilon, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const auto factor = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor * (weight ? weight[i] : 1.0f);
}

void layer_norm(float* y, const float* x, const float* weight, const float* bias, float epsilon, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(n);
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) {
    const auto normed = static_cast<float>((x[i] - mean) * factor);
    y[i] = normed * (weight ? weight[i] : 1.0f) + (bias ? bias[i] : 0.0f);
  }
}

void silu_mul(float* y, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void gelu_tanh_mul(float* y, const float* gate, const float* up, int64_t n) {
  constexpr float kRootTwoOverPi = 0.7978845608028654f;
  for (int64_t i = 0; i < n; ++i) {
    const float x = gate[i];
    y[i] = 0.5f * x * (1.0f + std::tanh(kRootTwoOverPi * (x + 0.044715f * x * x * x))) * up[i];
  }
}

void gelu_erf_mul(float* y, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = 0.5f * gate[i] * (1.0f + std::erf(gate[i] * 0.7071067811865476f)) * up[i];
}

float exp_sum(float* y, const float* x, float shift, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(x[i] + shift);
  return static_cast<float>(sum);
}

float max(const float* x, int64_t n) {
  float largest = -INFINITY;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, x[i]);
  return largest;
}

float softmax(float* x, int64_t n) {
  const float largest = max(x, n);
  const float sum = exp_sum(x, x, -largest, n);
  scale(x, x, 1.0f / sum, n);
  return largest;
}

int64_t argmax(const float* x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

float dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return static_cast<float>(sum);
}

void scale_add(float* y, float y_scale, const float* x, float x_scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] * y_scale + x[i] * x_scale;
}

void softcap(float* x, float cap, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

void rope_half(float* x, const float* cosine, const float* sine, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cosine[i] - b * sine[i];
    x[i + half] = b * cosine[i] + a * sine[i];
  }
}

void rope_interleaved(float* x, const float* cosine, const float* sine, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosine[i] - b * sine[i];
    x[2 * i + 1] = b * cosine[i] + a * sine[i];
  }
}

void silu(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (1.0f + std::exp(-x[i]));
}

void sigmoid(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = 1.0f / (1.0f + std::exp(-x[i]));
}

void softplus(float* y, const float* x, const float* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float z = x[i] + (bias ? bias[i] : 0.0f);
    y[i] = std::max(z, 0.0f) + std::log1p(std::exp(-std::fabs(z)));
  }
}

float exp_sum_scaled(const float* x, float shift, float factor, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp((x[i] + shift) * factor);
  return static_cast<float>(sum);
}

int64_t group_maxima(const float* x, int64_t n, int64_t size, float* maxima) {
  int64_t groups = 0;
  for (int64_t i = 0; i < n; i += size) maxima[groups++] = max(x + i, std::min(size, n - i));
  return groups;
}

int64_t collect_above(const float* x, int64_t n, float threshold, int32_t* indices, float* values,
                      int64_t capacity) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!(x[i] >= threshold)) continue;
    if (found < capacity) {
      indices[found] = static_cast<int32_t>(i);
      values[found] = x[i];
    }
    ++found;
  }
  return found;
}

void set_unmarked(float* x, const uint64_t* bits, float value, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if ((bits[i / 64] >> (i % 64) & 1) == 0) x[i] = value;
}

}  // namespace

Table scalar_table() {
  Table t{};
  t.isa = IsaLevel::kScalar;
  t.add = add;
  t.scale = scale;
  t.rms_norm = rms_norm;
  t.layer_norm = layer_norm;
  t.silu_mul = silu_mul;
  t.gelu_tanh_mul = gelu_tanh_mul;
  t.softmax = softmax;
  t.argmax = argmax;
  t.dot = dot;
  t.gelu_erf_mul = gelu_erf_mul;
  t.scale_add = scale_add;
  t.exp_sum = exp_sum;
  t.max = max;
  t.softcap = softcap;
  t.rope_half = rope_half;
  t.rope_interleaved = rope_interleaved;
  t.silu = silu;
  t.sigmoid = sigmoid;
  t.softplus = softplus;
  t.exp_sum_scaled = exp_sum_scaled;
  t.group_maxima = group_maxima;
  t.collect_above = collect_above;
  t.set_unmarked = set_unmarked;
  t.scan = scalar_scan();
  t.attention = scalar_attention();
  t.attention_bf16 = t.attention;
  return t;
}

}  // namespace millrace::kernels
