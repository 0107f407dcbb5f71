#include "layers/state_space.h"

#include <cmath>
#include <new>

#include "ops/elementwise.h"

namespace millrace::layers {
namespace {

/// The batch's sequences with a pointer `offset` floats into each one's state of this layer.
std::span<const ops::StateSequence> states(const Step& step, int layer, int64_t offset) {
  const auto sequences = step.sequences(layer);
  auto* out = step.context().arena.allocate<ops::StateSequence>(static_cast<int64_t>(sequences.size()));
  std::byte* base = step.cache().layer_data(layer);
  const int64_t bytes = step.cache().layer_block_bytes(layer);
  for (size_t i = 0; i < sequences.size(); ++i) {
    auto* state = reinterpret_cast<float*>(base + bytes * sequences[i].block_table[0]);
    new (&out[i]) ops::StateSequence{sequences[i].query_begin, sequences[i].query_length, state + offset};
  }
  return {out, sequences.size()};
}

CacheSpec recurrent(int64_t floats) {
  return CacheSpec::recurrent(floats * static_cast<int64_t>(sizeof(float)));
}

}  // namespace

CacheSpec Mamba::cache_spec() const {
  return recurrent(ops::conv_state_floats(inner, kernel) + int64_t{inner} * state_size);
}

void Mamba::forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                    const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t rows = step.rows(), both = 2 * int64_t{inner};
  float* xz = step.floats(rows * both);
  input.forward(context, x, xz, both);
  float* u = step.floats(rows * inner);
  ops::causal_conv1d(context, states(step, layer, 0), xz, both, conv_weight.data(),
                     conv_bias.empty() ? nullptr : conv_bias.data(), inner, kernel, ops::Activation::kSilu, u,
                     inner);
  const int64_t width = dt_rank + 2 * int64_t{state_size};
  float* p = step.floats(rows * width);
  ops::MatmulInput u_input = step.input(u, inner);
  parameters.forward(context, u_input, p, width);
  auto norm = [&](const Norm& n, float* part, int64_t count) {
    if (n) ops::norm_rows(context, n.spec(), part, width, part, width, rows, count);
  };
  norm(dt_norm, p, dt_rank);
  norm(b_norm, p + dt_rank, state_size);
  norm(c_norm, p + dt_rank + state_size, state_size);
  float* step_size = step.floats(rows * inner);
  ops::MatmulInput dt_input = step.input(p, dt_rank, width);
  dt.forward(context, dt_input, step_size, inner);
  ops::softplus_rows(context, step_size, inner, dt_bias.data(), step_size, inner, rows, inner);
  const ops::SelectiveScanInput scan{
      u, step_size, p + dt_rank, p + dt_rank + state_size, inner, inner, width, width, a.data(), d.data()};
  ops::selective_scan(context, states(step, layer, ops::conv_state_floats(inner, kernel)), scan, inner,
                      state_size, u, inner);
  ops::activate_mul(context, ops::Activation::kSilu, xz + inner, both, u, inner, u, inner, rows, inner);
  ops::MatmulInput out = step.input(u, inner);
  output.forward(context, out, y, output.rows(), epilogue);
}

CacheSpec Mamba2::cache_spec() const {
  const int32_t channels = shape.heads * shape.head_dim + 2 * shape.groups * shape.state_size;
  return recurrent(ops::conv_state_floats(channels, kernel) + ops::head_scan_floats(shape));
}

void Mamba2::forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                     const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t rows = step.rows(), inner = int64_t{shape.heads} * shape.head_dim;
  const int64_t bc = int64_t{shape.groups} * shape.state_size, channels = inner + 2 * bc;
  const int64_t width = inner + channels + shape.heads;
  float* projected = step.floats(rows * width);
  input.forward(context, x, projected, width);
  float* convolved = step.floats(rows * channels);
  ops::causal_conv1d(context, states(step, layer, 0), projected + inner, width, conv_weight.data(),
                     conv_bias.empty() ? nullptr : conv_bias.data(), static_cast<int32_t>(channels), kernel,
                     ops::Activation::kSilu, convolved, channels);
  float* dt = step.floats(rows * shape.heads);
  ops::softplus_rows(context, projected + inner + channels, width, dt_bias.data(), dt, shape.heads, rows,
                     shape.heads, dt_low, dt_high);
  float* result = step.floats(rows * inner);
  const ops::HeadScanInput scan{convolved, dt,          convolved + inner, convolved + inner + bc,
                                channels,  shape.heads, channels,          channels,
                                a.data(),  d.data()};
  const int64_t conv_floats = ops::conv_state_floats(static_cast<int32_t>(channels), kernel);
  ops::head_scan(context, states(step, layer, conv_floats), shape, scan, result, inner);
  ops::gated_rms_norm(context, result, inner, projected, width, norm_weight.data(), inner, norm_epsilon, rows,
                      inner, norm_group ? norm_group : inner, ops::GateOrder::kBeforeNorm);
  ops::MatmulInput out = step.input(result, inner);
  output.forward(context, out, y, output.rows(), epilogue);
}

CacheSpec GatedDeltaNet::cache_spec() const {
  const int32_t channels = 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim;
  return recurrent(ops::conv_state_floats(channels, kernel) + ops::delta_rule_floats(shape));
}

void GatedDeltaNet::forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                            const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t rows = step.rows(), heads = shape.value_heads;
  const int64_t keys = int64_t{shape.key_heads} * shape.key_dim, values = heads * shape.value_dim;
  const int64_t channels = 2 * keys + values, width = channels + values;
  float* projected = step.floats(rows * width);
  input.forward(context, x, projected, width);
  float* ba = step.floats(rows * 2 * heads);
  beta_and_decay.forward(context, x, ba, 2 * heads);
  float* qkv = step.floats(rows * channels);
  ops::causal_conv1d(context, states(step, layer, 0), projected, width, conv_weight.data(),
                     conv_bias.empty() ? nullptr : conv_bias.data(), static_cast<int32_t>(channels), kernel,
                     ops::Activation::kSilu, qkv, channels);
  ops::sigmoid_rows(context, ba, 2 * heads, ba, 2 * heads, rows, heads);
  float* decay = ba + heads;
  ops::softplus_rows(context, decay, 2 * heads, dt_bias.data(), decay, 2 * heads, rows, heads);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < heads; ++h) decay[r * 2 * heads + h] *= a[static_cast<size_t>(h)];
  float* result = step.floats(rows * values);
  ops::DeltaRuleInput rule{qkv,
                           qkv + keys,
                           qkv + 2 * keys,
                           decay,
                           ba,
                           channels,
                           channels,
                           channels,
                           2 * heads,
                           2 * heads,
                           1.0f / std::sqrt(static_cast<float>(shape.key_dim)),
                           1e-6f};
  const int64_t conv_floats = ops::conv_state_floats(static_cast<int32_t>(channels), kernel);
  ops::gated_delta_rule(context, states(step, layer, conv_floats), shape, rule, result, values);
  ops::gated_rms_norm(context, result, values, projected + channels, width, norm_weight.data(),
                      shape.value_dim, norm_epsilon, rows, values, shape.value_dim,
                      ops::GateOrder::kAfterNorm);
  ops::MatmulInput out = step.input(result, values);
  output.forward(context, out, y, output.rows(), epilogue);
}

}  // namespace millrace::layers
