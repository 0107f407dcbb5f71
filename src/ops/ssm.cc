#include "ops/ssm.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "core/error.h"

namespace millrace::ops {
namespace {

/// Channels of one unit of work: enough to fill vectors, few enough that a state piece stays in the
/// first-level cache.
constexpr int32_t kChannelBlock = 64;

/// body(sequence, unit, thread) for `units` pieces of every sequence.
template <typename Body>
void over_sequences(const Context& context, std::span<const StateSequence> sequences, int64_t units,
                    Body&& body) {
  const int64_t total = static_cast<int64_t>(sequences.size()) * units;
  context.pool.parallel_for(total, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      const StateSequence& s = sequences[static_cast<size_t>(i / units)];
      if (s.length > 0) body(s, i % units, thread);
    }
  });
}

double rows_of(std::span<const StateSequence> sequences) {
  double rows = 0;
  for (const StateSequence& s : sequences) rows += s.length;
  return rows;
}

/// body(begin, end) over rows of n floats.
template <typename Body>
void over_rows(const Context& context, int64_t rows, int64_t n, Body&& body) {
  context.pool.parallel_for(rows, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, n)),
                            [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

/// Smallest factor that is carried beside a state before it is multiplied in.
constexpr float kSmallestFactor = 1.0f / 65536;

/// Decays of tokens to what the kernels want: the state stands for `factor` times what is stored, so that a
/// decay of the whole state is one multiplication; where the factor becomes small the stored state is
/// multiplied by `rescale`, which is 1 elsewhere. `carried` lies with the state (0 at its beginning), so that
/// a prompt gives the same bits however it is cut. rescale may be decay.
void carry_decays(const float* decay, int32_t tokens, float& carried, float* rescale, float* factor) {
  float now = carried == 0.0f ? 1.0f : carried;
  for (int32_t t = 0; t < tokens; ++t) {
    now *= decay[t];
    const bool small = now < kSmallestFactor;
    rescale[t] = small ? now : 1.0f;
    if (small) now = 1.0f;
    factor[t] = now;
  }
  carried = now;
}

struct ConvArguments {
  const float* x;
  int64_t x_stride;
  const float* weight;
  const float* bias;
  int32_t channels, kernel;
  float* y;
  int64_t y_stride;
};

/// Channels [begin, begin + count) of one sequence. `window` [kernel][kChannelBlock] holds the last inputs,
/// oldest first.
void convolve_block(const kernels::Table& kernels, const StateSequence& s, const ConvArguments& a,
                    Activation activation, int32_t begin, int32_t count, float* window, float* taps) {
  const int32_t kept = a.kernel - 1;
  for (int32_t j = 0; j < a.kernel; ++j)
    for (int32_t c = 0; c < count; ++c)
      taps[j * kChannelBlock + c] = a.weight[int64_t{begin + c} * a.kernel + j];
  for (int32_t j = 0; j < kept; ++j)
    std::copy_n(s.state + int64_t{j} * a.channels + begin, count, window + j * kChannelBlock);
  for (int32_t t = 0; t < s.length; ++t) {
    const int64_t row = int64_t{s.row_begin} + t;
    // Rows lie on pages of their own, where the processor does not fetch ahead by itself.
    if (constexpr int32_t kAhead = 8; t + kAhead < s.length)
      for (int32_t c = 0; c < count; c += 16) {
        __builtin_prefetch(a.x + (row + kAhead) * a.x_stride + begin + c);
        __builtin_prefetch(a.y + (row + kAhead) * a.y_stride + begin + c, 1);
      }
    // The window is a ring: slot (t + j) % kernel holds the input of tap j.
    float* newest = window + (t + kept) % a.kernel * kChannelBlock;
    std::copy_n(a.x + row * a.x_stride + begin, count, newest);
    float sums[kChannelBlock];
    for (int32_t c = 0; c < count; ++c) sums[c] = a.bias ? a.bias[begin + c] : 0.0f;
    for (int32_t j = 0; j < a.kernel; ++j) {
      const float* input = window + (t + j) % a.kernel * kChannelBlock;
      const float* tap = taps + j * kChannelBlock;
      for (int32_t c = 0; c < count; ++c) sums[c] += tap[c] * input[c];
    }
    float* out = a.y + row * a.y_stride + begin;
    if (activation == Activation::kSilu)
      kernels.silu(out, sums, count);
    else
      std::copy_n(sums, count, out);
  }
  for (int32_t j = 0; j < kept; ++j)
    std::copy_n(window + (s.length + j) % a.kernel * kChannelBlock, count,
                s.state + int64_t{j} * a.channels + begin);
}

}  // namespace

void causal_conv1d(const Context& context, std::span<const StateSequence> sequences, const float* x,
                   int64_t x_stride, const float* weight, const float* bias, int32_t channels, int32_t kernel,
                   Activation activation, float* y, int64_t y_stride) {
  check(kernel >= 1 && (activation == Activation::kSilu || activation == Activation::kNone),
        "convolution of {} taps and activation {}", kernel, static_cast<int>(activation));
  const double values = rows_of(sequences) * channels;
  const ProfileScope profile(context, "conv1d", 8.0 * values, 2.0 * kernel * values);
  const Arena::Mark mark = context.arena.mark();
  const int64_t each = int64_t{kernel} * kChannelBlock;
  auto* scratch = context.arena.allocate<float>(2 * each * context.pool.num_threads());
  const ConvArguments arguments{x, x_stride, weight, bias, channels, kernel, y, y_stride};
  over_sequences(context, sequences, ceil_div(channels, kChannelBlock),
                 [&](const StateSequence& s, int64_t block, int thread) {
                   const auto begin = static_cast<int32_t>(block * kChannelBlock);
                   float* own = scratch + 2 * each * thread;
                   convolve_block(context.kernels, s, arguments, activation, begin,
                                  std::min(kChannelBlock, channels - begin), own, own + each);
                 });
  context.arena.release(mark);
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

void head_scan(const Context& context, std::span<const StateSequence> sequences, const HeadScanShape& shape,
               const HeadScanInput& input, float* y, int64_t y_stride) {
  check(shape.groups > 0 && shape.heads % shape.groups == 0, "{} heads in {} groups", shape.heads,
        shape.groups);
  const double values = rows_of(sequences) * shape.heads * shape.head_dim;
  const int64_t head_state = int64_t{shape.head_dim} * shape.state_size;
  const ProfileScope profile(
      context, "head scan",
      8.0 * values + 8.0 * static_cast<double>(sequences.size() * shape.heads * head_state),
      4.0 * values * shape.state_size);
  int32_t longest = 0;
  for (const StateSequence& s : sequences) longest = std::max(longest, s.length);
  const Arena::Mark mark = context.arena.mark();
  auto* scratch = context.arena.allocate<float>(int64_t{3} * longest * context.pool.num_threads());
  over_sequences(context, sequences, shape.heads, [&](const StateSequence& s, int64_t head, int thread) {
    const int64_t row = s.row_begin, group = head / (shape.heads / shape.groups);
    float* rescale = scratch + int64_t{3} * longest * thread;
    float* factor = rescale + longest;
    float* dt = factor + longest;
    for (int32_t t = 0; t < s.length; ++t) {
      dt[t] = input.dt[(row + t) * input.dt_stride + head];
      rescale[t] = dt[t] * input.a[head];
    }
    context.kernels.exp_sum(rescale, rescale, 0.0f, s.length);
    carry_decays(rescale, s.length, s.state[shape.heads * head_state + head], rescale, factor);
    for (int32_t t = 0; t < s.length; ++t) dt[t] /= factor[t];
    kernels::HeadScan scan{};
    scan.tokens = s.length;
    scan.head_dim = shape.head_dim;
    scan.state_size = shape.state_size;
    scan.state = s.state + head * head_state;
    scan.rescale = rescale;
    scan.step = dt;
    scan.factor = factor;
    scan.x = input.x + row * input.x_stride + head * shape.head_dim;
    scan.b = input.b + row * input.b_stride + group * shape.state_size;
    scan.c = input.c + row * input.c_stride + group * shape.state_size;
    scan.x_stride = input.x_stride;
    scan.b_stride = input.b_stride;
    scan.c_stride = input.c_stride;
    scan.d = input.d ? input.d[head] : 0.0f;
    scan.y = y + row * y_stride + head * shape.head_dim;
    scan.y_stride = y_stride;
    context.kernels.scan.head(scan);
  });
  context.arena.release(mark);
}

void gated_delta_rule(const Context& context, std::span<const StateSequence> sequences,
                      const DeltaRuleShape& shape, const DeltaRuleInput& input, float* y, int64_t y_stride) {
  check(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0, "{} value heads over {} key heads",
        shape.value_heads, shape.key_heads);
  const int64_t head_state = int64_t{shape.key_dim} * shape.value_dim;
  const double rows = rows_of(sequences);
  const ProfileScope profile(context, "delta rule",
                             8.0 * static_cast<double>(sequences.size() * shape.value_heads * head_state),
                             6.0 * rows * static_cast<double>(shape.value_heads * head_state));
  // Unit queries and keys of all rows, and their products, made once for all value heads that read them.
  int64_t num_rows = 0;
  for (const StateSequence& s : sequences) num_rows = std::max(num_rows, int64_t{s.row_begin} + s.length);
  const Arena::Mark mark = context.arena.mark();
  const int64_t width = int64_t{shape.key_heads} * shape.key_dim;
  auto* q = context.arena.allocate<float>(num_rows * width);
  auto* k = context.arena.allocate<float>(num_rows * width);
  auto* key_query = context.arena.allocate<float>(num_rows * shape.key_heads);
  const kernels::Table& kernels = context.kernels;
  over_rows(context, num_rows, 2 * width, [&](int64_t begin, int64_t end) {
    const auto factor = [&](const float* x) {
      if (input.l2_epsilon <= 0) return 1.0f;
      return 1.0f / std::sqrt(kernels.dot(x, x, shape.key_dim) + input.l2_epsilon);
    };
    for (int64_t r = begin; r < end; ++r)
      for (int32_t h = 0; h < shape.key_heads; ++h) {
        const float* from_q = input.q + r * input.q_stride + int64_t{h} * shape.key_dim;
        const float* from_k = input.k + r * input.k_stride + int64_t{h} * shape.key_dim;
        float* to_q = q + r * width + int64_t{h} * shape.key_dim;
        float* to_k = k + r * width + int64_t{h} * shape.key_dim;
        kernels.scale(to_q, from_q, factor(from_q) * input.scale, shape.key_dim);
        kernels.scale(to_k, from_k, factor(from_k), shape.key_dim);
        key_query[r * shape.key_heads + h] = kernels.dot(to_q, to_k, shape.key_dim);
      }
  });
  int32_t longest = 0;
  for (const StateSequence& s : sequences) longest = std::max(longest, s.length);
  auto* scratch = context.arena.allocate<float>(int64_t{5} * longest * context.pool.num_threads());
  over_sequences(
      context, sequences, shape.value_heads, [&](const StateSequence& s, int64_t head, int thread) {
        const int64_t row = s.row_begin, key_head = head / (shape.value_heads / shape.key_heads);
        float* rescale = scratch + int64_t{5} * longest * thread;
        float* factor = rescale + longest;
        float* inverse = factor + longest;
        float* beta = inverse + longest;
        float* products = beta + longest;
        for (int32_t t = 0; t < s.length; ++t) {
          rescale[t] = input.log_decay[(row + t) * input.decay_stride + head];
          beta[t] = input.beta[(row + t) * input.beta_stride + head];
          products[t] = key_query[(row + t) * shape.key_heads + key_head];
        }
        kernels.exp_sum(rescale, rescale, 0.0f, s.length);
        carry_decays(rescale, s.length, s.state[shape.value_heads * head_state + head], rescale, factor);
        for (int32_t t = 0; t < s.length; ++t) inverse[t] = 1.0f / factor[t];
        kernels::DeltaScan scan{};
        scan.tokens = s.length;
        scan.key_dim = shape.key_dim;
        scan.value_dim = shape.value_dim;
        scan.state = s.state + head * head_state;
        scan.rescale = rescale;
        scan.factor = factor;
        scan.inverse = inverse;
        scan.beta = beta;
        scan.key_query = products;
        scan.q = q + row * width + key_head * shape.key_dim;
        scan.k = k + row * width + key_head * shape.key_dim;
        scan.v = input.v + row * input.v_stride + head * shape.value_dim;
        scan.q_stride = scan.k_stride = width;
        scan.v_stride = input.v_stride;
        scan.y = y + row * y_stride + head * shape.value_dim;
        scan.y_stride = y_stride;
        kernels.scan.delta(scan);
      });
  context.arena.release(mark);
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
