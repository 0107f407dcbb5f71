// Searches that the encoders share: which scale (and offset) makes the rounding error of a block least. The
// error is the weighted squared one, sum w (x - decoded)^2. Inside quant only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace millrace::quant {

/// Nearest integer of |x| < 2^22, halves to even; compiles to two additions, so that loops over it vectorise.
inline int nearest(float x) {
  // Adding 1.5 * 2^23 leaves the integer in the low mantissa bits.
  const float shifted = x + 12582912.0f;
  int32_t bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  return (bits & 0x007fffff) - 0x00400000;
}

/// `value` cut to [low, high], then towards zero; NaN gives low.
inline int truncate(float value, int low, int high) {
  const auto l = static_cast<float>(low), h = static_cast<float>(high);
  value = value > l ? value : l;
  value = value < h ? value : h;
  return static_cast<int>(value);
}

inline int clamp(int value, int low, int high) { return std::min(std::max(value, low), high); }

inline float inverse_or_zero(float x) { return x != 0 ? 1.0f / x : 0.0f; }

/// Error weights of `n` elements: the importance matrix when given; larger elements count more in any case,
/// because their errors move a dot product most.
template <int n>
void error_weights(const float* x, const float* importance, float* w) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  const float mean_square = sum / n;
  const float root = std::sqrt(mean_square);
  for (int i = 0; i < n; ++i)
    w[i] = importance ? importance[i] * std::sqrt(mean_square + x[i] * x[i]) : root + std::fabs(x[i]);
}

/// Scale of a symmetric block: x ~ scale * code with code in [low, high]. The codes follow by rounding x /
/// scale.
template <int n>
float fit_scale(const float* x, const float* w, int low, int high, int half_steps) {
  float largest = 0, magnitude = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > magnitude) {
      magnitude = std::fabs(x[i]);
      largest = x[i];
    }
  }
  if (!(magnitude > 1e-30f)) return 0;
  // The largest value gets the end of the range that reaches further (-8 of -8..7), or near it.
  float best_scale = largest / static_cast<float>(low), best_gain = -1;
  for (int step = -half_steps; step <= half_steps; ++step) {
    const float inverse = (static_cast<float>(low) - 0.1f * static_cast<float>(step)) / largest;
    float sum_xl = 0, sum_ll = 0;
    for (int i = 0; i < n; ++i) {
      const auto l = static_cast<float>(clamp(nearest(inverse * x[i]), low, high));
      sum_xl += w[i] * x[i] * l;
      sum_ll += w[i] * l * l;
    }
    // For these codes the least error is sum w x^2 - gain, at scale sum_xl / sum_ll.
    if (sum_ll > 0 && sum_xl * sum_xl > best_gain * sum_ll) {
      best_gain = sum_xl * sum_xl / sum_ll;
      best_scale = sum_xl / sum_ll;
    }
  }
  return best_scale;
}

struct ScaleAndMin {
  float scale = 0;
  float min = 0;  ///< what is added: x ~ scale * code + min
};

/// Scale and offset of an asymmetric block: x ~ scale * code + min with code in [0, high]. With
/// `min_not_positive` the offset stays at or below zero, as formats that store its negative unsigned need.
template <int n>
ScaleAndMin fit_scale_min(const float* x, const float* w, int high, int half_steps, bool min_not_positive) {
  float low_x = x[0], high_x = x[0], sum_w = 0, sum_x = 0;
  for (int i = 0; i < n; ++i) {
    low_x = std::min(low_x, x[i]);
    high_x = std::max(high_x, x[i]);
    sum_w += w[i];
    sum_x += w[i] * x[i];
  }
  if (min_not_positive) low_x = std::min(low_x, 0.0f);
  ScaleAndMin best{(high_x - low_x) / static_cast<float>(high), low_x};
  if (!(high_x - low_x > 1e-30f)) return {0, low_x};
  float best_error = INFINITY;
  for (int step = -half_steps; step <= half_steps; ++step) {
    const float inverse = (static_cast<float>(high) + 0.1f * static_cast<float>(step)) / (high_x - low_x);
    float sum_l = 0, sum_ll = 0, sum_xl = 0;
    for (int i = 0; i < n; ++i) {
      const auto l = static_cast<float>(clamp(nearest(inverse * (x[i] - low_x)), 0, high));
      sum_l += w[i] * l;
      sum_ll += w[i] * l * l;
      sum_xl += w[i] * l * x[i];
    }
    // Least squares for these codes: a line through the points (code, x).
    const float determinant = sum_w * sum_ll - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    ScaleAndMin fit{(sum_w * sum_xl - sum_x * sum_l) / determinant,
                    (sum_ll * sum_x - sum_l * sum_xl) / determinant};
    if (min_not_positive && fit.min > 0) fit = {sum_xl / sum_ll, 0};
    // The error but for the constant sum w x^2.
    const float error = fit.scale * fit.scale * sum_ll + fit.min * fit.min * sum_w +
                        2 * (fit.scale * fit.min * sum_l - fit.scale * sum_xl - fit.min * sum_x);
    if (fit.scale > 0 && error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return best;
}

}  // namespace millrace::quant
