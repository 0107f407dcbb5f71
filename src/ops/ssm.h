// State-space and linear-attention layers over a ragged batch. Each sequence's state is read and updated in
// place; all states are float and start as zeros. Results do not depend on how a prompt was cut into steps,
// nor on the batch.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "ops/context.h"
#include "ops/elementwise.h"

namespace millrace::ops {

/// Rows [row_begin, row_begin + length) of the step belong to one sequence, whose state for this operation is
/// `state`.
struct StateSequence {
  int32_t row_begin = 0;
  int32_t length = 0;
  float* state = nullptr;
};

/// Depth-wise causal convolution: y[t, c] = activation(bias[c] + sum over j of weight[j, c] x[t - kernel + 1
/// + j, c]). weight [kernel, channels] (the transpose of the checkpoint's); bias [channels] or null;
/// activation kSilu or kNone. State [kernel - 1, channels]: the last inputs, oldest first. y may be x.
void causal_conv1d(const Context& context, std::span<const StateSequence> sequences, const float* x,
                   int64_t x_stride, const float* weight, const float* bias, int32_t channels, int32_t kernel,
                   Activation activation, float* y, int64_t y_stride);
inline int64_t conv_state_floats(int32_t channels, int32_t kernel) { return int64_t{kernel - 1} * channels; }

/// Mamba's selective scan:
///   h[n, c] = exp(dt[t, c] a[n, c]) h[n, c] + dt[t, c] b[t, n] x[t, c];  y[t, c] = sum over n of c[t, n]
///   h[n, c] + d[c] x[t, c]
/// dt [rows, channels] after softplus (softplus_rows); b, c [rows, state_size]; a [state_size, channels] (the
/// transpose of the checkpoint's -exp(A_log)); d [channels] or null. State [state_size, channels]. y may be
/// x.
struct SelectiveScanInput {
  const float *x, *dt, *b, *c;
  int64_t x_stride, dt_stride, b_stride, c_stride;
  const float *a, *d;
};
void selective_scan(const Context& context, std::span<const StateSequence> sequences,
                    const SelectiveScanInput& input, int32_t channels, int32_t state_size, float* y,
                    int64_t y_stride);

/// Mamba-2: heads of head_dim channels share one dt and one a; groups of heads share b and c [rows, groups,
/// state_size].
///   h[p, n] = exp(dt[t] a) h[p, n] + dt[t] x[t, p] b[t, n];  y[t, p] = sum over n of h[p, n] c[t, n] + d
///   x[t, p]
/// x [rows, heads, head_dim]; dt [rows, heads] after softplus and clamping; a (negative), d [heads]; d may be
/// null. State head_scan_floats. y may be x.
struct HeadScanShape {
  int32_t heads, head_dim, state_size, groups;
};
/// Of a sequence's state: [heads, state_size, head_dim], and what is held of a chunk's tokens till it is
/// full.
int64_t head_scan_floats(const HeadScanShape& s);
struct HeadScanInput {
  const float *x, *dt, *b, *c;
  int64_t x_stride, dt_stride, b_stride, c_stride;
  const float *a, *d;
};
void head_scan(const Context& context, std::span<const StateSequence> sequences, const HeadScanShape& shape,
               const HeadScanInput& input, float* y, int64_t y_stride);

/// Gated DeltaNet: S = exp(decay[t]) S;  S += k (beta (v - S^T k))^T;  y = S^T q, for each value head; value
/// head h reads key head h / (value_heads / key_heads). q and k [rows, key_heads, key_dim], v [rows,
/// value_heads, value_dim]; log_decay, beta [rows, value_heads]. q and k are made unit vectors first when
/// l2_epsilon > 0 (x / sqrt(sum x^2 + l2_epsilon)), then q times `scale`. State delta_rule_floats.
/// y may be v.
struct DeltaRuleShape {
  int32_t key_heads, value_heads, key_dim, value_dim;
};
/// Of a sequence's state: [value_heads, key_dim, value_dim], and what is held of a chunk's tokens till it is
/// full.
int64_t delta_rule_floats(const DeltaRuleShape& s);
struct DeltaRuleInput {
  const float *q, *k, *v, *log_decay, *beta;
  int64_t q_stride, k_stride, v_stride, decay_stride, beta_stride;
  float scale = 1.0f;
  float l2_epsilon = 0.0f;
};
void gated_delta_rule(const Context& context, std::span<const StateSequence> sequences,
                      const DeltaRuleShape& shape, const DeltaRuleInput& input, float* y, int64_t y_stride);

/// y = log(1 + exp(x + bias)), clamped to [low, high]; bias [n] or null. In place allowed.
void softplus_rows(const Context& context, const float* x, int64_t x_stride, const float* bias, float* y,
                   int64_t y_stride, int64_t rows, int64_t n, float low = 0.0f,
                   float high = std::numeric_limits<float>::infinity());

/// y = sigmoid(x), and y *= sigmoid(gate) (gated attention, shared experts). In place allowed.
void sigmoid_rows(const Context& context, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                  int64_t rows, int64_t n);
void sigmoid_mul_rows(const Context& context, float* y, int64_t y_stride, const float* gate,
                      int64_t gate_stride, int64_t rows, int64_t n);

/// RMS norm over groups of `group` values, with silu(gate) multiplied in before the norm (Mamba-2) or after
/// it (Gated DeltaNet); weight [n], or [group] shared by all groups, as weight_count says. In place; gate may
/// be null.
enum class GateOrder : uint8_t { kBeforeNorm, kAfterNorm };
void gated_rms_norm(const Context& context, float* x, int64_t x_stride, const float* gate,
                    int64_t gate_stride, const float* weight, int64_t weight_count, float epsilon,
                    int64_t rows, int64_t n, int64_t group, GateOrder order);

}  // namespace millrace::ops
