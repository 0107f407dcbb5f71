// Plain recurrences, one line of the formula after the other.
#include <cmath>

#include "kernels/tables.h"

namespace millrace::kernels {
namespace {

void selective(const SelectiveScan& s) {
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int64_t c = 0; c < s.channels; ++c) {
      const float dt = s.dt[t * s.dt_stride + c], x = s.x[t * s.x_stride + c];
      float y = s.d ? s.d[c] * x : 0.0f;
      for (int64_t n = 0; n < s.state_size; ++n) {
        float& h = s.state[n * s.state_stride + c];
        h = std::exp(dt * s.a[n * s.a_stride + c]) * h + dt * x * s.b[t * s.b_stride + n];
        y += h * s.c[t * s.c_stride + n];
      }
      s.y[t * s.y_stride + c] = y;
    }
}

void scale_state(float* state, float factor, int64_t n) {
  if (factor == 1.0f) return;
  for (int64_t i = 0; i < n; ++i) state[i] *= factor;
}

void head(const HeadScan& s) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    scale_state(s.state, s.rescale[t], s.state_size * s.head_dim);
    for (int64_t p = 0; p < s.head_dim; ++p) {
      const float x = s.x[t * s.x_stride + p];
      float y = 0;
      for (int64_t n = 0; n < s.state_size; ++n) {
        float& h = s.state[n * s.head_dim + p];
        h += s.step[t] * x * s.b[t * s.b_stride + n];
        y += h * s.c[t * s.c_stride + n];
      }
      s.y[t * s.y_stride + p] = s.factor[t] * y + s.d * x;
    }
  }
}

void delta(const DeltaScan& s) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float *q = s.q + t * s.q_stride, *k = s.k + t * s.k_stride;
    scale_state(s.state, s.rescale[t], s.key_dim * s.value_dim);
    for (int64_t d = 0; d < s.value_dim; ++d) {
      float recalled = 0;
      for (int64_t i = 0; i < s.key_dim; ++i) recalled += s.state[i * s.value_dim + d] * k[i];
      const float correction = s.inverse[t] * s.beta[t] * (s.v[t * s.v_stride + d] - s.factor[t] * recalled);
      float y = 0;
      for (int64_t i = 0; i < s.key_dim; ++i) y += (s.state[i * s.value_dim + d] += k[i] * correction) * q[i];
      s.y[t * s.y_stride + d] = s.factor[t] * y;
    }
  }
}

}  // namespace

ScanKernels scalar_scan() { return {selective, head, delta}; }

}  // namespace millrace::kernels
