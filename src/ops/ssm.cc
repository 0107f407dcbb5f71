#include "ops/ssm.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "core/error.h"
#include "ops/ssm_parts.h"

namespace millrace::ops {
namespace {

/// Channels of one unit of work of the scan: a state piece stays in the first-level cache.
constexpr int32_t kChannelBlock = 64;
/// And of the convolution: a row's piece is long enough for the processor to fetch ahead.
constexpr int32_t kConvBlock = 256;

/// body(begin, end) over rows of n floats.
template <typename Body>
void over_rows(const Context& context, int64_t rows, int64_t n, Body&& body) {
  context.pool.parallel_for(rows, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, n)),
                            [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

}  // namespace

void causal_conv1d(const Context& context, std::span<const StateSequence> sequences, const float* x,
                   int64_t x_stride, const float* weight, const float* bias, int32_t channels, int32_t kernel,
                   Activation activation, float* y, int64_t y_stride) {
  check(kernel >= 1 && (activation == Activation::kSilu || activation == Activation::kNone),
        "convolution of {} taps and activation {}", kernel, static_cast<int>(activation));
  const double values = rows_of(sequences) * channels;
  const ProfileScope profile(context, "conv1d", 8.0 * values, 2.0 * kernel * values);
  over_sequences(context, sequences, ceil_div(channels, kConvBlock),
                 [&](const StateSequence& s, int64_t block, int) {
                   const int64_t begin = block * kConvBlock, row = s.row_begin;
                   kernels::CausalConv conv{};
                   conv.tokens = s.length;
                   conv.channels = std::min<int64_t>(kConvBlock, channels - begin);
                   conv.taps = kernel;
                   conv.x = x + row * x_stride + begin;
                   conv.x_stride = x_stride;
                   conv.weight = weight + begin;
                   conv.weight_stride = conv.state_stride = channels;
                   conv.bias = bias ? bias + begin : nullptr;
                   conv.silu = activation == Activation::kSilu;
                   conv.state = s.state + begin;
                   conv.y = y + row * y_stride + begin;
                   conv.y_stride = y_stride;
                   context.kernels.scan.conv(conv);
                 });
}

void selective_scan(const Context& context, std::span<const StateSequence> sequences,
                    const SelectiveScanInput& input, int32_t channels, int32_t state_size, float* y,
                    int64_t y_stride) {
  const double values = rows_of(sequences) * channels;
  const ProfileScope profile(
      context, "selective scan",
      12.0 * values + 8.0 * static_cast<double>(sequences.size()) * channels * state_size,
      6.0 * values * state_size);
  over_sequences(context, sequences, ceil_div(channels, kChannelBlock),
                 [&](const StateSequence& s, int64_t block, int) {
                   const int64_t begin = block * kChannelBlock, row = s.row_begin;
                   kernels::SelectiveScan scan{};
                   scan.tokens = s.length;
                   scan.channels = std::min<int64_t>(kChannelBlock, channels - begin);
                   scan.state_size = state_size;
                   scan.state = s.state + begin;
                   scan.a = input.a + begin;
                   scan.state_stride = scan.a_stride = channels;
                   scan.dt = input.dt + row * input.dt_stride + begin;
                   scan.x = input.x + row * input.x_stride + begin;
                   scan.b = input.b + row * input.b_stride;
                   scan.c = input.c + row * input.c_stride;
                   scan.dt_stride = input.dt_stride;
                   scan.x_stride = input.x_stride;
                   scan.b_stride = input.b_stride;
                   scan.c_stride = input.c_stride;
                   scan.d = input.d ? input.d + begin : nullptr;
                   scan.y = y + row * y_stride + begin;
                   scan.y_stride = y_stride;
                   context.kernels.scan.selective(scan);
                 });
}

void softplus_rows(const Context& context, const float* x, int64_t x_stride, const float* bias, float* y,
                   int64_t y_stride, int64_t rows, int64_t n, float low, float high) {
  const auto values = static_cast<double>(rows * n);
  const ProfileScope profile(context, "softplus", 8.0 * values, 20.0 * values);
  over_rows(context, rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* out = y + r * y_stride;
      context.kernels.softplus(out, x + r * x_stride, bias, n);
      if (low > 0 || high < std::numeric_limits<float>::infinity())
        for (int64_t i = 0; i < n; ++i) out[i] = std::clamp(out[i], low, high);
    }
  });
}

void sigmoid_rows(const Context& context, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                  int64_t rows, int64_t n) {
  const auto values = static_cast<double>(rows * n);
  const ProfileScope profile(context, "sigmoid", 8.0 * values, 15.0 * values);
  over_rows(context, rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) context.kernels.sigmoid(y + r * y_stride, x + r * x_stride, n);
  });
}

void sigmoid_mul_rows(const Context& context, float* y, int64_t y_stride, const float* gate,
                      int64_t gate_stride, int64_t rows, int64_t n) {
  const auto values = static_cast<double>(rows * n);
  const ProfileScope profile(context, "sigmoid gate", 12.0 * values, 16.0 * values);
  over_rows(context, rows, n, [&](int64_t begin, int64_t end) {
    constexpr int64_t kPiece = 256;
    float weights[kPiece];
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < n; i += kPiece) {
        const int64_t count = std::min(kPiece, n - i);
        context.kernels.sigmoid(weights, gate + r * gate_stride + i, count);
        float* out = y + r * y_stride + i;
        for (int64_t j = 0; j < count; ++j) out[j] *= weights[j];
      }
  });
}

void gated_rms_norm(const Context& context, float* x, int64_t x_stride, const float* gate,
                    int64_t gate_stride, const float* weight, int64_t weight_count, float epsilon,
                    int64_t rows, int64_t n, int64_t group, GateOrder order) {
  check(group > 0 && n % group == 0 && (weight_count == n || weight_count == group),
        "gated norm of {} values in groups of {} with {} weights", n, group, weight_count);
  const auto values = static_cast<double>(rows * n);
  const ProfileScope profile(context, "gated norm", 12.0 * values, 24.0 * values);
  const kernels::Table& kernels = context.kernels;
  over_rows(context, rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = x + r * x_stride;
      const float* row_gate = gate ? gate + r * gate_stride : nullptr;
      if (row_gate && order == GateOrder::kBeforeNorm) kernels.silu_mul(row, row_gate, row, n);
      for (int64_t g = 0; g < n; g += group)
        kernels.rms_norm(row + g, row + g, weight + (weight_count == n ? g : 0), epsilon, group);
      if (row_gate && order == GateOrder::kAfterNorm) kernels.silu_mul(row, row_gate, row, n);
    }
  });
}

}  // namespace millrace::ops
