#include "layers/attention.h"

#include <algorithm>
#include <cmath>

namespace millrace::layers {
namespace {

/// QK-norm of [rows, heads, dim]: over each head with shared weights, over each head with its own, or over
/// all heads.
void norm_projection(const ops::Context& context, const Norm& norm, float* x, int64_t rows, int64_t stride,
                     int32_t heads, int32_t dim) {
  if (!norm) return;
  const auto count = static_cast<int64_t>(norm.weight.size());
  if (count <= dim) {
    ops::norm_heads(context, norm.spec(), x, rows, stride, heads, dim);
  } else if (norm.kind == ops::NormSpec::Kind::kLayer) {
    // A weight row of its own for every head.
    for (int32_t h = 0; h < heads; ++h) {
      ops::NormSpec spec = norm.spec();
      spec.weight += int64_t{h} * dim;
      ops::norm_rows(context, spec, x + int64_t{h} * dim, stride, x + int64_t{h} * dim, stride, rows, dim);
    }
  } else {
    ops::norm_rows(context, norm.spec(), x, stride, x, stride, rows, int64_t{heads} * dim);
  }
}

void clamp_rows(const ops::Context& context, float* x, int64_t rows, int64_t stride, int64_t n, float limit) {
  context.pool.parallel_for(rows, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < n; ++i) x[r * stride + i] = std::clamp(x[r * stride + i], -limit, limit);
  });
}

}  // namespace

CacheSpec Attention::cache_spec() const {
  if (config.shared_layer >= 0) return CacheSpec::shares(config.shared_layer);
  const int32_t window = config.window ? config.window : config.chunk;
  return window ? CacheSpec::windowed(config.num_kv_heads, config.key_dim, config.value_dim, window)
                : CacheSpec::full(config.num_kv_heads, config.key_dim, config.value_dim);
}

void Attention::forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                        const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t rows = step.rows();
  const AttentionConfig& c = config;
  const int64_t stride = qkv.rows();
  float* projected = step.floats(rows * stride);
  qkv.forward(context, x, projected, stride);

  float* q = projected;
  int64_t q_stride = stride;
  const int64_t q_width = int64_t{c.num_heads} * c.key_dim;
  float* gate = nullptr;
  if (c.gated) {
    // Rows hold (query, gate) side by side for each head; the rest wants queries alone.
    q = step.floats(rows * q_width);
    gate = step.floats(rows * q_width);
    context.pool.parallel_for(rows, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t h = 0; h < c.num_heads; ++h) {
          const float* from = projected + r * stride + h * 2 * c.key_dim;
          std::copy_n(from, c.key_dim, q + r * q_width + h * c.key_dim);
          std::copy_n(from + c.key_dim, c.key_dim, gate + r * q_width + h * c.key_dim);
        }
      }
    });
    q_stride = q_width;
  }
  const bool own_kv = c.shared_layer < 0;
  float* k = own_kv ? projected + (c.gated ? 2 : 1) * q_width : nullptr;
  float* v = own_kv ? k + int64_t{c.num_kv_heads} * c.key_dim : nullptr;

  auto normalise_all = [&] {
    norm_projection(context, query_norm, q, rows, q_stride, c.num_heads, c.key_dim);
    if (k) norm_projection(context, key_norm, k, rows, stride, c.num_kv_heads, c.key_dim);
  };
  if (!c.norm_after_rope) normalise_all();
  if (c.clip_qkv > 0) clamp_rows(context, projected, rows, stride, stride, c.clip_qkv);
  if (c.rope) {
    ops::apply_rope(context, *c.rope_table, c.rope->layout, q, rows, q_stride, c.num_heads, c.key_dim);
    if (k)
      ops::apply_rope(context, *c.rope_table, c.rope->layout, k, rows, stride, c.num_kv_heads, c.key_dim);
  }
  if (c.norm_after_rope) normalise_all();

  const int64_t out_width = int64_t{c.num_heads} * c.value_dim;
  float* attended = step.floats(rows * out_width);
  const CacheLayout& layout = step.cache().layout();
  const ops::AttentionShape shape{c.num_heads,
                                  c.num_kv_heads,
                                  c.key_dim,
                                  c.value_dim,
                                  layout.block_size,
                                  static_cast<ops::KvFormat>(layout.kv_type),
                                  step.cache().layer_block_bytes(layer)};
  ops::AttentionOptions options;
  options.scale = c.scale;
  options.softcap = c.softcap;
  options.window = c.window;
  options.chunk = c.chunk;
  options.sinks = sinks.empty() ? nullptr : sinks.data();
  options.alibi_slopes = alibi_slopes.empty() ? nullptr : alibi_slopes.data();
  options.causal = c.causal;
  ops::paged_attention(context, shape, options, step.sequences(layer), q, q_stride, k, stride, v, stride,
                       step.cache().layer_data(layer), attended, out_width);
  if (gate) {
    context.pool.parallel_for(rows, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin * out_width; i < end * out_width; ++i) attended[i] /= 1.0f + std::exp(-gate[i]);
    });
  }
  ops::MatmulInput attended_input = step.input(attended, out_width);
  output.forward(context, attended_input, y, output.rows(), epilogue);
}

std::vector<float> alibi_slopes(int32_t num_heads, float max_bias) {
  // The closest power of two below gets the geometric sequence, the rest every other term of the next one.
  int32_t base = 1;
  while (base * 2 <= num_heads) base *= 2;
  std::vector<float> slopes;
  for (int32_t h = 0; h < num_heads; ++h) {
    const double exponent =
        h < base ? static_cast<double>(h + 1) / base : static_cast<double>(2 * (h - base) + 1) / (2.0 * base);
    slopes.push_back(static_cast<float>(std::pow(2.0, -max_bias * exponent)));
  }
  return slopes;
}

}  // namespace millrace::layers
