// Recurrences of state-space and linear-attention layers, over the tokens of one sequence. Token by token, so
// that a result does not depend on how a prompt was cut; the state stays in cache between tokens. In single
// precision the chunked forms of these recurrences need no fewer multiplications on a CPU: their gain is
// matrix units.
#pragma once

#include <cstdint>

namespace millrace::kernels {

/// Mamba (Gu and Dao 2023), `channels` of one sequence:
///   h[n][c] = exp(dt[c] a[n][c]) h[n][c] + dt[c] x[c] b[n];  y[c] = sum over n of h[n][c] c_[n] + d[c] x[c]
struct SelectiveScan {
  int64_t tokens, channels, state_size;
  float* state;    ///< [state_size][channels], rows state_stride apart
  const float* a;  ///< likewise, rows a_stride apart
  int64_t state_stride, a_stride;
  const float *dt, *x, *b, *c;  ///< [tokens][channels], the same, [tokens][state_size], the same
  int64_t dt_stride, x_stride, b_stride, c_stride;
  const float* d;  ///< [channels], or null
  float* y;        ///< [tokens][channels]; may be x
  int64_t y_stride;
};

/// Mamba-2 (Dao and Gu 2024), one head of one sequence:
///   h[p][n] = decay h[p][n] + dt x[p] b[n];  y[p] = sum over n of h[p][n] c[n] + d x[p]
struct HeadScan {
  int64_t tokens, head_dim, state_size;
  float* state;             ///< [head_dim][state_size]
  const float *decay, *dt;  ///< [tokens]
  const float *x, *b, *c;   ///< [tokens][head_dim], [tokens][state_size], the same
  int64_t x_stride, b_stride, c_stride;
  float d;
  float* y;  ///< [tokens][head_dim]; may be x
  int64_t y_stride;
};

/// Gated delta rule (Yang et al. 2024), one head of one sequence:
///   S = decay S;  S += k (beta (v - S^T k))^T;  y = S^T q
struct DeltaScan {
  int64_t tokens, key_dim, value_dim;
  float* state;                           ///< [key_dim][value_dim]
  const float *decay, *beta, *key_query;  ///< [tokens]; key_query is k . q
  const float *q, *k, *v;                 ///< [tokens][key_dim], the same, [tokens][value_dim]
  int64_t q_stride, k_stride, v_stride;
  float* y;  ///< [tokens][value_dim]; may be v
  int64_t y_stride;
};

struct ScanKernels {
  void (*selective)(const SelectiveScan& scan);
  void (*head)(const HeadScan& scan);
  void (*delta)(const DeltaScan& scan);
};

}  // namespace millrace::kernels
