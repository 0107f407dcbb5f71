// The kernels of one instruction set behind one table. Raw pointers, no threads, no allocation, no errors:
// ops checks shapes and splits the work. kernels/ref holds the plain version of every entry; a faster one
// replaces it in the table of its ISA, and tests/kernels compares every table this CPU can run against the
// plain one on random shapes.
#pragma once

#include <cstdint>

#include "core/cpu.h"
#include "core/dtype.h"
#include "kernels/attention.h"
#include "kernels/scan.h"

namespace millrace::kernels {

/// Element-wise and row-wise kernels; `n` counts floats.
struct Table {
  IsaLevel isa;

  /// y[i] += x[i]
  void (*add)(float* y, const float* x, int64_t n);
  /// y[i] = x[i] * scale
  void (*scale)(float* y, const float* x, float scale, int64_t n);
  /// y[i] = x[i] / rms(x) * weight[i], rms over n with epsilon inside the root. weight may be null (all
  /// ones).
  void (*rms_norm)(float* y, const float* x, const float* weight, float epsilon, int64_t n);
  /// y[i] = (x[i] - mean) / sqrt(variance + epsilon) * weight[i] + bias[i]; weight and bias may be null.
  void (*layer_norm)(float* y, const float* x, const float* weight, const float* bias, float epsilon,
                     int64_t n);
  /// y[i] = silu(gate[i]) * up[i]
  void (*silu_mul)(float* y, const float* gate, const float* up, int64_t n);
  /// y[i] = gelu(gate[i]) * up[i], tanh approximation
  void (*gelu_tanh_mul)(float* y, const float* gate, const float* up, int64_t n);
  /// In place: softmax over n; returns the maximum before.
  float (*softmax)(float* x, int64_t n);
  /// Largest element's first index.
  int64_t (*argmax)(const float* x, int64_t n);
  float (*dot)(const float* a, const float* b, int64_t n);
  /// y[i] = gelu(gate[i]) * up[i], exact (erf) form
  void (*gelu_erf_mul)(float* y, const float* gate, const float* up, int64_t n);
  /// y[i] = y[i] * y_scale + x[i] * x_scale
  void (*scale_add)(float* y, float y_scale, const float* x, float x_scale, int64_t n);
  /// y[i] = exp(x[i] + shift); returns the sum.
  float (*exp_sum)(float* y, const float* x, float shift, int64_t n);
  float (*max)(const float* x, int64_t n);
  /// x[i] = cap * tanh(x[i] / cap)
  void (*softcap)(float* x, float cap, int64_t n);
  /// Rotates one head in place: pairs (i, i + half) or (2i, 2i + 1), by cosine[i] and sine[i] of `half`
  /// pairs.
  void (*rope_half)(float* x, const float* cosine, const float* sine, int64_t half);
  void (*rope_interleaved)(float* x, const float* cosine, const float* sine, int64_t half);
  /// y[i] = silu(x[i]); y may be x.
  void (*silu)(float* y, const float* x, int64_t n);
  /// y[i] = 1 / (1 + exp(-x[i]))
  void (*sigmoid)(float* y, const float* x, int64_t n);
  /// y[i] = log(1 + exp(x[i] + bias[i])); bias may be null.
  void (*softplus)(float* y, const float* x, const float* bias, int64_t n);

  /// Sum of exp((x[i] + shift) * scale); nothing is stored.
  float (*exp_sum_scaled)(const float* x, float shift, float scale, int64_t n);
  /// Splits x into groups that have no element in common, each of about `size` elements, and writes their
  /// maxima; returns how many, at most n / size + 64. Which elements form a group is the kernel's choice.
  int64_t (*group_maxima)(const float* x, int64_t n, int64_t size, float* maxima);
  /// Indices and values of all x[i] >= threshold, by rising index, the first `capacity` of them; returns how
  /// many there are.
  int64_t (*collect_above)(const float* x, int64_t n, float threshold, int32_t* indices, float* values,
                           int64_t capacity);
  /// x[i] = value where bit i of `bits` (64 a word) is 0.
  void (*set_unmarked)(float* x, const uint64_t* bits, float value, int64_t n);
  ScanKernels scan;
  AttentionKernels attention;  ///< over float tiles
  /// Over bfloat16 tiles where the CPU multiplies them; else the same as `attention`.
  AttentionKernels attention_bf16;
};

/// The table of a level; the caller has checked that this CPU has it. Levels are nested: an entry with no
/// kernel of its own is that of the level below.
const Table& table(IsaLevel level);

}  // namespace millrace::kernels
