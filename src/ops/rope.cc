#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace millrace::ops {
namespace {

/// base^(2i / dim), with the exponent and the result rounded to float as PyTorch has them: at large positions
/// the last bit of a frequency is visible in the angle.
std::vector<float> wavelengths(int32_t dim, double base) {
  std::vector<float> powers(static_cast<size_t>(dim / 2));
  for (size_t i = 0; i < powers.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers[i] = static_cast<float>(std::pow(base, static_cast<double>(exponent)));
  }
  return powers;
}

}  // namespace

RopeFrequencies rope_default(int32_t dim, double base) {
  RopeFrequencies frequencies{wavelengths(dim, base), 1.0f};
  for (float& f : frequencies.inverse) f = 1.0f / f;
  return frequencies;
}

RopeFrequencies rope_linear(int32_t dim, double base, double factor) {
  RopeFrequencies frequencies = rope_default(dim, base);
  for (float& f : frequencies.inverse) f /= static_cast<float>(factor);
  return frequencies;
}

RopeFrequencies rope_ntk(int32_t dim, double base, double factor) {
  if (dim <= 2) return rope_default(dim, base);
  return rope_default(dim, base * std::pow(factor, static_cast<double>(dim) / (dim - 2)));
}

// YaRN (Peng et al. 2023): pairs that turn more than beta_fast times within the original context keep their
// frequency, those that turn less than beta_slow times are interpolated, and a ramp over the pair's index
// joins the two.
RopeFrequencies rope_yarn(int32_t dim, double base, const YarnParameters& parameters) {
  const YarnParameters& p = parameters;
  require(p.original_context > 0 && p.factor > 0, ErrorCode::kInvalidArgument,
          "YaRN needs a positive factor and original context, not {} and {}", p.factor, p.original_context);
  const auto mscale = [&](double weight) {
    return p.factor <= 1 ? 1.0 : 0.1 * weight * std::log(p.factor) + 1.0;
  };
  RopeFrequencies frequencies{wavelengths(dim, base), 1.0f};
  if (p.attention_factor != 0)
    frequencies.magnitude = static_cast<float>(p.attention_factor);
  else if (p.mscale != 0 && p.mscale_all_dim != 0)
    frequencies.magnitude = static_cast<float>(mscale(p.mscale) / mscale(p.mscale_all_dim));
  else
    frequencies.magnitude = static_cast<float>(mscale(1.0));

  const auto pair_with_turns = [&](double turns) {
    return dim * std::log(p.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = pair_with_turns(p.beta_fast), high = pair_with_turns(p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.inverse.size(); ++i) {
    const float wave = frequencies.inverse[i];
    const auto ramp = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
    const float kept = 1.0f - ramp;
    frequencies.inverse[i] =
        1.0f / (static_cast<float>(p.factor) * wave) * (1.0f - kept) + 1.0f / wave * kept;
  }
  return frequencies;
}

// Llama 3.1: long waves are divided by the factor, short ones kept, and those between are blended.
RopeFrequencies rope_llama3(int32_t dim, double base, const Llama3Parameters& parameters) {
  RopeFrequencies frequencies = rope_default(dim, base);
  const double low_wavelength = parameters.original_context / parameters.low_freq_factor;
  const double high_wavelength = parameters.original_context / parameters.high_freq_factor;
  for (float& f : frequencies.inverse) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > low_wavelength) {
      f = static_cast<float>(f / parameters.factor);
    } else if (wavelength >= high_wavelength) {
      const double smooth = (parameters.original_context / wavelength - parameters.low_freq_factor) /
                            (parameters.high_freq_factor - parameters.low_freq_factor);
      f = static_cast<float>((1 - smooth) * f / parameters.factor + smooth * f);
    }
  }
  return frequencies;
}

RopeFrequencies rope_factors(int32_t dim, double base, std::span<const float> factors, float magnitude) {
  require(static_cast<int64_t>(factors.size()) == dim / 2, ErrorCode::kInvalidArgument,
          "{} rope factors given where a rotary dimension of {} needs {}", factors.size(), dim, dim / 2);
  RopeFrequencies frequencies{wavelengths(dim, base), magnitude};
  for (size_t i = 0; i < factors.size(); ++i)
    frequencies.inverse[i] = 1.0f / (factors[i] * frequencies.inverse[i]);
  return frequencies;
}

RopeTable make_rope_table(const Context& context, const RopeFrequencies& frequencies,
                          std::span<const int32_t> positions) {
  const auto half = static_cast<int64_t>(frequencies.inverse.size());
  const auto rows = static_cast<int64_t>(positions.size());
  auto* cosine = context.arena.allocate<float>(rows * half);
  auto* sine = context.arena.allocate<float>(rows * half);
  const ProfileScope profile(context, "rope table", 8.0 * static_cast<double>(rows * half), 0);
  const int64_t grain = std::max<int64_t>(1, 256 / std::max<int64_t>(1, half));
  context.pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[static_cast<size_t>(r)]) *
                            frequencies.inverse[static_cast<size_t>(i)];
        cosine[r * half + i] = std::cos(angle) * frequencies.magnitude;
        sine[r * half + i] = std::sin(angle) * frequencies.magnitude;
      }
  });
  return {cosine, sine, static_cast<int32_t>(2 * half)};
}

void apply_rope(const Context& context, const RopeTable& table, RopeLayout layout, float* x, int64_t rows,
                int64_t row_stride, int32_t heads, int32_t head_dim) {
  check(table.dim <= head_dim, "rope over {} values of heads of {}", table.dim, head_dim);
  const int64_t half = table.dim / 2;
  const auto values = static_cast<double>(rows * heads * table.dim);
  const ProfileScope profile(context, "rope", 8.0 * values, 3.0 * values);
  const auto rotate =
      layout == RopeLayout::kHalf ? context.kernels.rope_half : context.kernels.rope_interleaved;
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int32_t h = 0; h < heads; ++h)
        rotate(x + r * row_stride + static_cast<int64_t>(h) * head_dim, table.cosine + r * half,
               table.sine + r * half, half);
  };
  context.pool.parallel_for(
      rows, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, int64_t{heads} * table.dim)), body);
}

}  // namespace millrace::ops
