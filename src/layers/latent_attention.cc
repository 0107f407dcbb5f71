#include "layers/latent_attention.h"

#include "ops/elementwise.h"
#include "ops/mla.h"

namespace millrace::layers {

uint64_t LatentAttention::weight_bytes() const {
  uint64_t bytes = query_down.bytes() + query.bytes() + kv_down.bytes() + output.bytes();
  for (const auto& m : key_up) bytes += m.bytes();
  for (const auto& m : value_up) bytes += m.bytes();
  return bytes;
}

void LatentAttention::add_forms(std::vector<ops::InputForm>& forms) const {
  (query_down.empty() ? query : query_down).add_forms(forms);
  kv_down.add_forms(forms);
}

void LatentAttention::forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                              const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t rows = step.rows(), head_dim = nope_dim + rope_dim, q_width = num_heads * head_dim;
  float* q = step.floats(rows * q_width);
  if (query_down.empty()) {
    query.forward(context, x, q, q_width);
  } else {
    const int64_t rank = query_down.rows();
    float* low = step.floats(rows * rank);
    query_down.forward(context, x, low, rank);
    ops::norm_rows(context, query_norm.spec(), low, rank, low, rank, rows, rank);
    ops::MatmulInput low_input = ops::make_input(low, rows, rank);
    query.forward(context, low_input, q, q_width);
  }
  const int64_t kv_width = latent_dim + rope_dim;
  float* kv = step.floats(rows * kv_width);
  kv_down.forward(context, x, kv, kv_width);
  ops::norm_rows(context, latent_norm.spec(), kv, kv_width, kv, kv_width, rows, latent_dim);

  if (rope) {
    // The rotated part of each head lies behind the other: a dense copy keeps apply_rope's strides simple.
    float* rotated = step.floats(rows * num_heads * rope_dim);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t h = 0; h < num_heads; ++h)
        std::copy_n(q + r * q_width + h * head_dim + nope_dim, rope_dim,
                    rotated + (r * num_heads + h) * rope_dim);
    ops::apply_rope(context, *rope_table, rope->layout, rotated, rows, int64_t{num_heads} * rope_dim,
                    num_heads, rope_dim);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t h = 0; h < num_heads; ++h)
        std::copy_n(rotated + (r * num_heads + h) * rope_dim, rope_dim,
                    q + r * q_width + h * head_dim + nope_dim);
    ops::apply_rope(context, *rope_table, rope->layout, kv + latent_dim, rows, kv_width, 1, rope_dim);
  }
  const int64_t latent_width = int64_t{num_heads} * latent_dim;
  float* q_latent = step.floats(rows * latent_width);
  for (int32_t h = 0; h < num_heads; ++h) {
    ops::MatmulInput part = ops::make_input(q + h * head_dim, rows, nope_dim, q_width);
    ops::matmul(context, key_up[static_cast<size_t>(h)], part, q_latent + int64_t{h} * latent_dim,
                latent_width);
  }
  const CacheLayout& layout = step.cache().layout();
  const ops::LatentShape shape{num_heads,
                               latent_dim,
                               rope_dim,
                               layout.block_size,
                               static_cast<ops::KvFormat>(layout.kv_type),
                               step.cache().layer_block_bytes(layer)};
  ops::AttentionOptions options;
  options.scale = scale;
  ops::LatentInput input;
  input.q_latent = q_latent;
  input.q_latent_stride = latent_width;
  input.q_rope = q + nope_dim;
  input.q_rope_stride = q_width;
  input.q_rope_head_stride = head_dim;
  input.latent = kv;
  input.latent_stride = kv_width;
  input.k_rope = kv + latent_dim;
  input.k_rope_stride = kv_width;
  float* attended = step.floats(rows * latent_width);
  ops::latent_attention(context, shape, options, step.sequences(layer), input, step.cache().layer_data(layer),
                        attended, latent_width);
  const int64_t value_width = int64_t{num_heads} * value_dim;
  float* values = step.floats(rows * value_width);
  for (int32_t h = 0; h < num_heads; ++h) {
    ops::MatmulInput part =
        ops::make_input(attended + int64_t{h} * latent_dim, rows, latent_dim, latent_width);
    ops::matmul(context, value_up[static_cast<size_t>(h)], part, values + int64_t{h} * value_dim,
                value_width);
  }
  ops::MatmulInput value_input = ops::make_input(values, rows, value_width);
  output.forward(context, value_input, y, output.rows(), epilogue);
}

}  // namespace millrace::layers
