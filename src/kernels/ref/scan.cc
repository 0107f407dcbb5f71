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

/// Column p of state^T key.
float recall(const ChunkScan& s, const float* key, int64_t p) {
  float sum = 0;
  for (int64_t n = 0; n < s.size; ++n) sum += key[n] * s.state[n * s.columns + p];
  return sum;
}

void read(const ChunkScan& s) {
  for (int64_t t = s.first; t < s.end; ++t)
    for (int64_t p = 0; p < s.columns; ++p) {
      float sum = s.factor[t] * recall(s, s.keys + (t - s.first) * s.key_stride, p);
      for (int64_t i = 0; i <= t; ++i) sum += s.mix[t * kScanChunk + i] * s.values[i * s.value_stride + p];
      s.y[(t - s.first) * s.y_stride + p] = sum;
    }
}

void solve(const ChunkScan& s) {
  for (int64_t t = s.first; t < s.end; ++t)
    for (int64_t p = 0; p < s.columns; ++p) {
      float& value = s.values[t * s.value_stride + p];
      value -= s.factor[t] * recall(s, s.keys + (t - s.first) * s.key_stride, p);
      for (int64_t i = 0; i < t; ++i) value -= s.mix[t * kScanChunk + i] * s.values[i * s.value_stride + p];
    }
}

void update(const ChunkScan& s) {
  for (int64_t n = 0; n < s.size; ++n)
    for (int64_t p = 0; p < s.columns; ++p) {
      float sum = *s.factor * s.state[n * s.columns + p];
      for (int64_t i = 0; i < s.end; ++i)
        sum += s.keys[i * s.key_stride + n] * s.values[i * s.value_stride + p];
      s.state[n * s.columns + p] = sum;
    }
}

void pairs(const ChunkPairs& s) {
  for (int64_t t = s.first; t < s.end; ++t)
    for (int64_t i = 0; i <= t; ++i) {
      float sum = 0;
      for (int64_t n = 0; n < s.size; ++n)
        sum += s.rows[(t - s.first) * s.row_stride + n] * s.keys[i * s.key_stride + n];
      s.out[t * kScanChunk + i] = sum;
    }
}

void conv(const CausalConv& s) {
  const int64_t kept = s.taps - 1;
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int64_t c = 0; c < s.channels; ++c) {
      const float x = s.x[t * s.x_stride + c];
      float sum = s.bias ? s.bias[c] : 0.0f;
      for (int64_t j = 0; j < kept; ++j) {
        float& past = s.state[j * s.state_stride + c];
        sum += s.weight[j * s.weight_stride + c] * past;
        past = j + 1 < kept ? s.state[(j + 1) * s.state_stride + c] : x;
      }
      sum += s.weight[kept * s.weight_stride + c] * x;
      s.y[t * s.y_stride + c] = s.silu ? sum / (1.0f + std::exp(-sum)) : sum;
    }
}

}  // namespace

ScanKernels scalar_scan() { return {selective, read, solve, update, pairs, conv}; }

}  // namespace millrace::kernels
