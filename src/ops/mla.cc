#include "ops/mla.h"

#include "core/error.h"
#include "core/half.h"
#include "ops/attention_job.h"

namespace millrace::ops {
namespace {

KvFormat kept_format(KvFormat format) { return format == KvFormat::kF32 ? KvFormat::kF32 : KvFormat::kBF16; }

/// To the engine this is one KV head of latent_dim + rope_dim values whose V is the front of its K.
AttentionShape as_one_head(const LatentShape& shape, const KvLayout& layout) {
  check(shape.num_heads > 0 && shape.block_size > 0 && shape.block_size % kernels::kTokenTile == 0,
        "latent attention of {} heads in blocks of {}", shape.num_heads, shape.block_size);
  check(shape.block_bytes >= layout.head_bytes, "latent blocks of {} bytes where {} are needed",
        shape.block_bytes, layout.head_bytes);
  return {shape.num_heads,
          1,
          shape.latent_dim + shape.rope_dim,
          shape.latent_dim,
          shape.block_size,
          layout.format,
          shape.block_bytes};
}

KvLayout layout_of(const LatentShape& shape) {
  return make_latent_layout(kept_format(shape.format), shape.block_size, shape.latent_dim, shape.rope_dim);
}

/// Lane `lane` of a tile: its latent (in V's order) and its rotated key (in K's).
void read_lane(const KvLayout& l, const std::byte* tile, int32_t lane, float* latent, float* k_rope) {
  const int64_t dim = l.stored_value_dim, tokens = kernels::kTokenTile;
  const int32_t rope = l.key_dim - l.value_dim;
  if (l.format == KvFormat::kF32) {
    std::copy_n(reinterpret_cast<const float*>(tile + l.v_offset) + lane * dim, l.value_dim, latent);
    const auto* k = reinterpret_cast<const float*>(tile + l.rope_offset);
    for (int32_t d = 0; d < rope; ++d) k_rope[d] = k[d * tokens + lane];
    return;
  }
  const auto* v = reinterpret_cast<const bf16_t*>(tile + l.v_offset) + lane / 2 * dim * 2 + lane % 2;
  for (int32_t d = 0; d < l.value_dim; ++d) latent[d] = bf16_to_float(v[2 * d]);
  const auto* k = reinterpret_cast<const bf16_t*>(tile + l.rope_offset);
  for (int32_t d = 0; d < rope; ++d) k_rope[d] = bf16_to_float(k[(d / 2 * tokens + lane) * 2 + d % 2]);
}

}  // namespace

int64_t latent_block_bytes(KvFormat format, int32_t block_size, int32_t latent_dim, int32_t rope_dim) {
  return make_latent_layout(kept_format(format), block_size, latent_dim, rope_dim).head_bytes;
}

void latent_attention(const Context& context, const LatentShape& shape, const AttentionOptions& options,
                      std::span<const AttentionSequence> sequences, const LatentInput& input,
                      std::byte* blocks, float* out, int64_t out_stride) {
  const KvLayout layout = layout_of(shape);
  const AttentionShape one_head = as_one_head(shape, layout);
  const QueryPart latent{input.q_latent, input.q_latent_stride, shape.latent_dim, shape.latent_dim,
                         layout.stored_value_dim};
  const QueryPart rope{input.q_rope, input.q_rope_stride,
                       input.q_rope_head_stride ? input.q_rope_head_stride : shape.rope_dim, shape.rope_dim,
                       layout.stored_key_dim - layout.stored_value_dim};
  run_attention({context, one_head, options, sequences, layout, blocks, {latent, rope}, out, out_stride},
                {input.k_rope, input.k_rope_stride, input.latent, input.latent_stride}, "latent attention");
}

void store_latents(const Context& context, const LatentShape& shape,
                   std::span<const AttentionSequence> sequences, const LatentInput& input,
                   std::byte* blocks) {
  const KvLayout layout = layout_of(shape);
  store_tokens(context, as_one_head(shape, layout), layout, sequences,
               {input.k_rope, input.k_rope_stride, input.latent, input.latent_stride}, blocks);
}

void read_latents(const Context& context, const LatentShape& shape, std::span<const int32_t> block_table,
                  int32_t tokens, const std::byte* blocks, float* latent, float* k_rope) {
  const KvLayout layout = layout_of(shape);
  const ProfileScope profile(context, "read latents", 6.0 * tokens * (shape.latent_dim + shape.rope_dim), 0);
  context.pool.parallel_for(tokens, kernels::kTokenTile, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t in_block = t % shape.block_size;
      const std::byte* block =
          blocks + block_table[static_cast<size_t>(t / shape.block_size)] * shape.block_bytes;
      read_lane(layout, block + in_block / kernels::kTokenTile * layout.tile_bytes,
                static_cast<int32_t>(in_block % kernels::kTokenTile), latent + t * shape.latent_dim,
                k_rope + t * shape.rope_dim);
    }
  });
}

}  // namespace millrace::ops
