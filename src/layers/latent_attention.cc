#include "layers/latent_attention.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "core/checked.h"
#include "ops/elementwise.h"

namespace millrace::layers {

namespace {

constexpr int32_t kExpandedBlock = 16;
constexpr int64_t kExpandedBytes = int64_t{64} << 20;  ///< of the keys and values made of latents, about

/// How many of a sequence's rows in the step are computed in expanded form: those before the last border of
/// sixteen tokens in the text as it is known. That is a matter of a token's place in its text alone, so a
/// result does not depend on how a prompt is cut or what else is in the step.
int32_t expanded_rows(const BatchSequence& s) {
  const int32_t text = s.text_length ? s.text_length : s.context_length;
  const int32_t border = (text - 1) / kExpandedBlock * kExpandedBlock;
  return std::clamp(border - (s.context_length - s.query_length), 0, s.query_length);
}

}  // namespace

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

LatentAttention::Projected LatentAttention::project(const Step& step, ops::MatmulInput& x) const {
  const ops::Context& context = step.context();
  const int64_t rows = step.rows(), head_dim = nope_dim + rope_dim, q_width = num_heads * head_dim;
  const int64_t kv_width = latent_dim + rope_dim;
  const Projected p{step.floats(rows * q_width), step.floats(rows * kv_width)};
  const ScratchScope scratch(step);
  if (query_down.empty()) {
    query.forward(context, x, p.q, q_width);
  } else {
    const int64_t rank = query_down.rows();
    float* low = step.floats(rows * rank);
    query_down.forward(context, x, low, rank);
    ops::norm_rows(context, query_norm.spec(), low, rank, low, rank, rows, rank);
    ops::MatmulInput low_input = step.input(low, rank);
    query.forward(context, low_input, p.q, q_width);
  }
  kv_down.forward(context, x, p.kv, kv_width);
  ops::norm_rows(context, latent_norm.spec(), p.kv, kv_width, p.kv, kv_width, rows, latent_dim);
  if (!rope) return p;
  // The rotated part of each head lies behind the other: a dense copy keeps apply_rope's strides simple.
  float* rotated = step.floats(rows * num_heads * rope_dim);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < num_heads; ++h)
      std::copy_n(p.q + r * q_width + h * head_dim + nope_dim, rope_dim,
                  rotated + (r * num_heads + h) * rope_dim);
  ops::apply_rope(context, *rope_table, rope->layout, rotated, rows, int64_t{num_heads} * rope_dim, num_heads,
                  rope_dim);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < num_heads; ++h)
      std::copy_n(rotated + (r * num_heads + h) * rope_dim, rope_dim,
                  p.q + r * q_width + h * head_dim + nope_dim);
  ops::apply_rope(context, *rope_table, rope->layout, p.kv + latent_dim, rows, kv_width, 1, rope_dim);
  return p;
}

ops::LatentShape LatentAttention::latent_shape(const Step& step, int layer) const {
  const CacheLayout& layout = step.cache().layout();
  return {num_heads,
          latent_dim,
          rope_dim,
          layout.block_size,
          static_cast<ops::KvFormat>(layout.kv_type),
          step.cache().layer_block_bytes(layer)};
}

void LatentAttention::attend_absorbed(const Step& step, int layer,
                                      std::span<const ops::AttentionSequence> sequences, int64_t rows,
                                      const float* q, const float* kv, float* values) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t head_dim = nope_dim + rope_dim, q_width = num_heads * head_dim;
  const int64_t kv_width = latent_dim + rope_dim, latent_width = int64_t{num_heads} * latent_dim;
  float* q_latent = step.floats(rows * latent_width);
  for (int32_t h = 0; h < num_heads; ++h) {
    ops::MatmulInput part = ops::make_input(q + h * head_dim, rows, nope_dim, q_width);
    ops::matmul(context, key_up[static_cast<size_t>(h)], part, q_latent + int64_t{h} * latent_dim,
                latent_width);
  }
  ops::AttentionOptions options;
  options.scale = scale;
  ops::LatentInput input;
  input.q_latent = q_latent;
  input.q_latent_stride = latent_width;
  input.q_rope = q + nope_dim;
  input.q_rope_stride = q_width;
  input.q_rope_head_stride = head_dim;
  if (kv != nullptr) {
    input.latent = kv;
    input.latent_stride = kv_width;
    input.k_rope = kv + latent_dim;
    input.k_rope_stride = kv_width;
  }
  float* attended = step.floats(rows * latent_width);
  ops::latent_attention(context, latent_shape(step, layer), options, sequences, input,
                        step.cache().layer_data(layer), attended, latent_width);
  const int64_t value_width = int64_t{num_heads} * value_dim;
  for (int32_t h = 0; h < num_heads; ++h) {
    ops::MatmulInput part =
        ops::make_input(attended + int64_t{h} * latent_dim, rows, latent_dim, latent_width);
    ops::matmul(context, value_up[static_cast<size_t>(h)], part, values + int64_t{h} * value_dim,
                value_width);
  }
}

void LatentAttention::attend_expanded(const Step& step, int layer, const ops::AttentionSequence& sequence,
                                      const float* q, float* values) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int32_t tokens = sequence.context_length;
  const int64_t head_dim = nope_dim + rope_dim, q_width = num_heads * head_dim;
  const int64_t value_width = int64_t{num_heads} * value_dim;
  const ops::LatentShape latent = latent_shape(step, layer);
  const ops::KvFormat format =
      latent.format == ops::KvFormat::kF32 ? ops::KvFormat::kF32 : ops::KvFormat::kBF16;
  float* latents = step.floats(int64_t{tokens} * latent_dim);
  float* rotated = step.floats(int64_t{tokens} * rope_dim);
  ops::read_latents(context, latent, sequence.block_table, tokens, step.cache().layer_data(layer), latents,
                    rotated);
  // As many heads at once as their keys and values have room for.
  const int64_t one_head = tokens * (head_dim + value_dim) * int64_t{8};
  const auto at_once = static_cast<int32_t>(std::clamp<int64_t>(kExpandedBytes / one_head, 1, num_heads));
  const int64_t num_blocks = ceil_div(tokens, kExpandedBlock);
  auto* table = context.arena.allocate<int32_t>(num_blocks);
  std::iota(table, table + num_blocks, 0);
  const std::span<const int32_t> blocks(table, static_cast<size_t>(num_blocks));
  for (int32_t first = 0; first < num_heads; first += at_once) {
    const ScratchScope of_heads(step);
    const int32_t heads = std::min(at_once, num_heads - first);
    const int64_t k_width = heads * head_dim, v_width = int64_t{heads} * value_dim;
    float* k = step.floats(tokens * k_width);
    float* v = step.floats(tokens * v_width);
    // The expanded form is itself a matter of a row's place in its text.
    ops::MatmulInput latent_input = ops::make_input(latents, tokens, latent_dim, 0, tokens);
    for (int32_t h = 0; h < heads; ++h) {
      const auto head = static_cast<size_t>(first + h);
      ops::matmul(context, key_expand[head], latent_input, k + h * head_dim, k_width);
      ops::matmul(context, value_up[head], latent_input, v + int64_t{h} * value_dim, v_width);
    }
    context.pool.parallel_for(tokens, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t)
        for (int32_t h = 0; h < heads; ++h)
          std::copy_n(rotated + t * rope_dim, rope_dim, k + t * k_width + h * head_dim + nope_dim);
    });
    ops::AttentionShape shape{heads,  heads, static_cast<int32_t>(head_dim), value_dim, kExpandedBlock,
                              format, 0};
    shape.block_bytes = ops::kv_block_bytes(format, kExpandedBlock, heads, shape.key_dim, value_dim);
    auto* cache = context.arena.allocate<std::byte>(num_blocks * shape.block_bytes);
    const ops::AttentionSequence whole{0, tokens, tokens, blocks};
    ops::store_kv(context, shape, {&whole, 1}, k, k_width, v, v_width, cache);
    ops::AttentionOptions options;
    options.scale = scale;
    const ops::AttentionSequence read{sequence.query_begin, sequence.query_length, tokens, blocks};
    ops::paged_attention(context, shape, options, {&read, 1}, q + first * head_dim, q_width, nullptr, 0,
                         nullptr, 0, cache, values + int64_t{first} * value_dim, value_width);
  }
}

void LatentAttention::forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                              const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t rows = step.rows(), q_width = int64_t{num_heads} * (nope_dim + rope_dim);
  const int64_t kv_width = latent_dim + rope_dim, value_width = int64_t{num_heads} * value_dim;
  const Projected p = project(step, x);
  float* values = step.floats(rows * value_width);

  // A sequence's first rows are expanded, the others absorbed, which stand dense for that.
  const auto sequences = step.sequences(layer);
  const auto count = static_cast<int64_t>(sequences.size());
  auto* absorbed = context.arena.allocate<ops::AttentionSequence>(count);
  int64_t dense = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto& s = sequences[static_cast<size_t>(i)];
    const int32_t expanded = expanded_rows(step.batch().sequences[static_cast<size_t>(i)]);
    new (&absorbed[i]) ops::AttentionSequence{static_cast<int32_t>(dense), s.query_length - expanded,
                                              s.context_length, s.block_table};
    dense += s.query_length - expanded;
  }
  if (dense == rows) {
    attend_absorbed(step, layer, sequences, rows, p.q, p.kv, values);
  } else {
    ops::LatentInput input;
    input.latent = p.kv;
    input.k_rope = p.kv + latent_dim;
    input.latent_stride = input.k_rope_stride = kv_width;
    ops::store_latents(context, latent_shape(step, layer), sequences, input, step.cache().layer_data(layer));
    float* q = step.floats(dense * q_width);
    float* dense_values = step.floats(dense * value_width);
    for (int64_t i = 0; i < count; ++i) {
      const auto& s = sequences[static_cast<size_t>(i)];
      const int32_t rest = absorbed[i].query_length, expanded = s.query_length - rest;
      std::copy_n(p.q + (s.query_begin + expanded) * q_width, rest * q_width,
                  q + absorbed[i].query_begin * q_width);
      if (expanded > 0)
        attend_expanded(step, layer, {s.query_begin, expanded, s.context_length - rest, s.block_table}, p.q,
                        values);
    }
    if (dense > 0)
      attend_absorbed(step, layer, {absorbed, sequences.size()}, dense, q, nullptr, dense_values);
    for (int64_t i = 0; i < count; ++i) {
      const auto& s = sequences[static_cast<size_t>(i)];
      const int32_t rest = absorbed[i].query_length;
      std::copy_n(dense_values + absorbed[i].query_begin * value_width, rest * value_width,
                  values + (s.query_begin + s.query_length - rest) * value_width);
    }
  }
  ops::MatmulInput value_input = step.input(values, value_width);
  output.forward(context, value_input, y, output.rows(), epilogue);
}

}  // namespace millrace::layers
