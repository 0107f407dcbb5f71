// Recurrences of state-space and linear-attention layers, over the tokens of one sequence. Token by token, so
// that a result does not depend on how a prompt was cut; the state stays in the first-level cache between
// tokens. Where one decay holds for a whole head it is not multiplied into the state but carried beside it as
// a factor, so a token takes as many multiplications as in the chunked forms of these recurrences.
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

/// Mamba-2 (Dao and Gu 2024), one head of one sequence. The state h is factor times what is stored:
///   state *= rescale (where it is not 1);  state[n][p] += b[n] step x[p];
///   y[p] = factor sum over n of state[n][p] c[n] + d x[p]
struct HeadScan {
  int64_t tokens, head_dim, state_size;
  float* state;                          ///< [state_size][head_dim]
  const float *rescale, *step, *factor;  ///< [tokens]; step is dt / factor
  const float *x, *b, *c;                ///< [tokens][head_dim], [tokens][state_size], the same
  int64_t x_stride, b_stride, c_stride;
  float d;
  float* y;  ///< [tokens][head_dim]; may be x
  int64_t y_stride;
};

/// Gated delta rule (Yang et al. 2024), one head of one sequence. S is factor times the stored state:
///   state *= rescale (where it is not 1);  e = beta (v - S^T k);  y = S^T q + (k . q) e;  S += k e^T
struct DeltaScan {
  int64_t tokens, key_dim, value_dim;
  float* state;  ///< [key_dim][value_dim]
  const float *rescale, *factor, *inverse, *beta,
      *key_query;          ///< [tokens]; inverse is 1 / factor, key_query k . q
  const float *q, *k, *v;  ///< [tokens][key_dim], the same, [tokens][value_dim]
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
