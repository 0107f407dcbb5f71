#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace millrace::ops {
namespace {

/// Floats a thread should have to do before waking the others pays.
constexpr int64_t kGrain = 8192;

/// body(begin, end) over rows of n floats each.
template <typename Body>
void over_rows(const Context& context, int64_t rows, int64_t n, Body&& body) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n));
  if (rows <= grain) {
    body(int64_t{0}, rows);
    return;
  }
  context.pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

/// body(begin, end) over `count` floats.
template <typename Body>
void over_floats(const Context& context, int64_t count, Body&& body) {
  if (count <= 2 * kGrain) {
    body(int64_t{0}, count);
    return;
  }
  context.pool.parallel_for(count, kGrain, [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

void norm_one(const kernels::Table& kernels, const NormSpec& norm, const float* x, float* y, int64_t n) {
  if (norm.kind == NormSpec::Kind::kRms)
    kernels.rms_norm(y, x, norm.weight, norm.epsilon, n);
  else
    kernels.layer_norm(y, x, norm.weight, norm.bias, norm.epsilon, n);
}

/// y = activation(gate) * up; up may be null (ones).
void activate_row(const kernels::Table& kernels, Activation activation, const float* gate, const float* up,
                  float* y, int64_t n) {
  const auto each = [&](auto&& f) {
    if (up)
      for (int64_t i = 0; i < n; ++i) y[i] = f(gate[i]) * up[i];
    else
      for (int64_t i = 0; i < n; ++i) y[i] = f(gate[i]);
  };
  // The kernels multiply: without a second factor, ones stand in for it, a piece at a time.
  const auto by_kernel = [&](auto kernel) {
    if (up) return kernel(y, gate, up, n);
    constexpr int64_t kPiece = 256;
    static const std::array<float, kPiece> ones = [] {
      std::array<float, kPiece> filled;
      filled.fill(1.0f);
      return filled;
    }();
    for (int64_t i = 0; i < n; i += kPiece) kernel(y + i, gate + i, ones.data(), std::min(kPiece, n - i));
  };
  switch (activation) {
    case Activation::kSilu:
      return by_kernel(kernels.silu_mul);
    case Activation::kGeluTanh:
      return by_kernel(kernels.gelu_tanh_mul);
    case Activation::kGeluErf:
      return by_kernel(kernels.gelu_erf_mul);
    case Activation::kGeluQuick:
      return each([](float x) { return x / (1.0f + std::exp(-1.702f * x)); });
    case Activation::kRelu:
      return each([](float x) { return std::max(x, 0.0f); });
    case Activation::kReluSquared:
      return each([](float x) { return std::max(x, 0.0f) * std::max(x, 0.0f); });
    case Activation::kNone:
      return each([](float x) { return x; });
  }
  fail(ErrorCode::kInternal, "activation {} has no kernel", static_cast<int>(activation));
}

}  // namespace

void norm_rows(const Context& context, const NormSpec& norm, const float* x, int64_t x_stride, float* y,
               int64_t y_stride, int64_t rows, int64_t n) {
  const ProfileScope profile(context, "norm", 8.0 * static_cast<double>(rows * n),
                             4.0 * static_cast<double>(rows * n));
  over_rows(context, rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      norm_one(context.kernels, norm, x + r * x_stride, y + r * y_stride, n);
  });
}

void norm_heads(const Context& context, const NormSpec& norm, float* x, int64_t rows, int64_t row_stride,
                int32_t heads, int32_t head_dim) {
  const auto values = static_cast<double>(rows * heads * head_dim);
  const ProfileScope profile(context, "head norm", 8.0 * values, 4.0 * values);
  over_rows(context, rows, static_cast<int64_t>(heads) * head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int32_t h = 0; h < heads; ++h) {
        float* head = x + r * row_stride + static_cast<int64_t>(h) * head_dim;
        norm_one(context.kernels, norm, head, head, head_dim);
      }
  });
}

void activate_mul(const Context& context, Activation activation, const float* gate, int64_t gate_stride,
                  const float* up, int64_t up_stride, float* y, int64_t y_stride, int64_t rows, int64_t n) {
  const auto values = static_cast<double>(rows * n);
  const ProfileScope profile(context, "activation", 12.0 * values, 10.0 * values);
  over_rows(context, rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      activate_row(context.kernels, activation, gate + r * gate_stride, up + r * up_stride, y + r * y_stride,
                   n);
  });
}

void activate(const Context& context, Activation activation, float* x, int64_t stride, int64_t rows,
              int64_t n) {
  const auto values = static_cast<double>(rows * n);
  const ProfileScope profile(context, "activation", 8.0 * values, 10.0 * values);
  over_rows(context, rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      activate_row(context.kernels, activation, x + r * stride, nullptr, x + r * stride, n);
  });
}

void add_rows(const Context& context, float* y, const float* x, int64_t count, float scale) {
  const ProfileScope profile(context, "add", 12.0 * static_cast<double>(count), static_cast<double>(count));
  over_floats(context, count, [&](int64_t begin, int64_t end) {
    if (scale == 1.0f)
      context.kernels.add(y + begin, x + begin, end - begin);
    else
      context.kernels.scale_add(y + begin, 1.0f, x + begin, scale, end - begin);
  });
}

void scale_rows(const Context& context, float* x, int64_t count, float scale) {
  const ProfileScope profile(context, "scale", 8.0 * static_cast<double>(count), static_cast<double>(count));
  over_floats(context, count, [&](int64_t begin, int64_t end) {
    context.kernels.scale(x + begin, x + begin, scale, end - begin);
  });
}

void softcap_rows(const Context& context, float* x, int64_t count, float cap) {
  const ProfileScope profile(context, "softcap", 8.0 * static_cast<double>(count),
                             10.0 * static_cast<double>(count));
  over_floats(context, count,
              [&](int64_t begin, int64_t end) { context.kernels.softcap(x + begin, cap, end - begin); });
}

}  // namespace millrace::ops
