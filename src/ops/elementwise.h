// Row-wise operations that are no matmul.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/matmul.h"

namespace millrace::ops {

/// y [rows, n] (dense) = norm(x) for each row; x and y may be the same.
void norm_rows(const Context& context, const NormSpec& norm, const float* x, int64_t x_stride, float* y,
               int64_t y_stride, int64_t rows, int64_t n);

/// Norm of each head's vector in x [rows, heads, head_dim], in place (QK-norm).
void norm_heads(const Context& context, const NormSpec& norm, float* x, int64_t rows, int64_t row_stride,
                int32_t heads, int32_t head_dim);

enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluErf, kGeluQuick, kRelu, kReluSquared, kNone };

/// y = activation(gate) * up, row by row.
void activate_mul(const Context& context, Activation activation, const float* gate, int64_t gate_stride,
                  const float* up, int64_t up_stride, float* y, int64_t y_stride, int64_t rows, int64_t n);
/// In place.
void activate(const Context& context, Activation activation, float* x, int64_t stride, int64_t rows,
              int64_t n);

/// y += x * scale
void add_rows(const Context& context, float* y, const float* x, int64_t count, float scale = 1.0f);
void scale_rows(const Context& context, float* x, int64_t count, float scale);
/// x = cap * tanh(x / cap)
void softcap_rows(const Context& context, float* x, int64_t count, float cap);

}  // namespace millrace::ops
