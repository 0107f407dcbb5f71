#include "ops/mla.h"

#include "core/error.h"
#include "ops/attention_job.h"

namespace millrace::ops {
namespace {

KvFormat kept_format(KvFormat format) { return format == KvFormat::kF32 ? KvFormat::kF32 : KvFormat::kBF16; }

}  // namespace

int64_t latent_block_bytes(KvFormat format, int32_t block_size, int32_t latent_dim, int32_t rope_dim) {
  return make_latent_layout(kept_format(format), block_size, latent_dim, rope_dim).head_bytes;
}

void latent_attention(const Context& context, const LatentShape& shape, const AttentionOptions& options,
                      std::span<const AttentionSequence> sequences, const LatentInput& input,
                      std::byte* blocks, float* out, int64_t out_stride) {
  check(shape.num_heads > 0 && shape.block_size > 0 && shape.block_size % kernels::kTokenTile == 0,
        "latent attention of {} heads in blocks of {}", shape.num_heads, shape.block_size);
  const KvLayout layout =
      make_latent_layout(kept_format(shape.format), shape.block_size, shape.latent_dim, shape.rope_dim);
  check(shape.block_bytes >= layout.head_bytes, "latent blocks of {} bytes where {} are needed",
        shape.block_bytes, layout.head_bytes);
  // To the engine this is one KV head of latent_dim + rope_dim values whose V is the front of its K.
  const AttentionShape one_head{shape.num_heads,
                                1,
                                shape.latent_dim + shape.rope_dim,
                                shape.latent_dim,
                                shape.block_size,
                                layout.format,
                                shape.block_bytes};
  const QueryPart latent{input.q_latent, input.q_latent_stride, shape.latent_dim, shape.latent_dim,
                         layout.stored_value_dim};
  const QueryPart rope{input.q_rope, input.q_rope_stride,
                       input.q_rope_head_stride ? input.q_rope_head_stride : shape.rope_dim, shape.rope_dim,
                       layout.stored_key_dim - layout.stored_value_dim};
  run_attention({context, one_head, options, sequences, layout, blocks, {latent, rope}, out, out_stride},
                {input.k_rope, input.k_rope_stride, input.latent, input.latent_stride}, "latent attention");
}

}  // namespace millrace::ops
