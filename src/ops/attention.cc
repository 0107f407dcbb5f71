#include "ops/attention.h"

#include "core/error.h"
#include "ops/attention_job.h"

namespace millrace::ops {
namespace {

void check_shape(const AttentionShape& shape) {
  check(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0 && shape.block_size > 0,
        "attention of {} heads over {} KV heads in blocks of {}", shape.num_heads, shape.num_kv_heads,
        shape.block_size);
  check(shape.block_size % kernels::kTokenTile == 0, "attention blocks of {} tokens, not a multiple of {}",
        shape.block_size, kernels::kTokenTile);
  const int64_t needed =
      kv_block_bytes(shape.format, shape.block_size, shape.num_kv_heads, shape.key_dim, shape.value_dim);
  check(shape.block_bytes >= needed, "attention blocks of {} bytes where {} are needed", shape.block_bytes,
        needed);
}

}  // namespace

int64_t kv_block_bytes(KvFormat format, int32_t block_size, int32_t kv_heads, int32_t key_dim,
                       int32_t value_dim) {
  return make_kv_layout(format, block_size, key_dim, value_dim).head_bytes * kv_heads;
}

void store_kv(const Context& context, const AttentionShape& shape,
              std::span<const AttentionSequence> sequences, const float* k, int64_t k_stride, const float* v,
              int64_t v_stride, std::byte* blocks) {
  check_shape(shape);
  store_tokens(context, shape, make_kv_layout(shape.format, shape.block_size, shape.key_dim, shape.value_dim),
               sequences, {k, k_stride, v, v_stride}, blocks);
}

void paged_attention(const Context& context, const AttentionShape& shape, const AttentionOptions& options,
                     std::span<const AttentionSequence> sequences, const float* q, int64_t q_stride,
                     const float* k, int64_t k_stride, const float* v, int64_t v_stride, std::byte* blocks,
                     float* out, int64_t out_stride) {
  check_shape(shape);
  const KvLayout layout = make_kv_layout(shape.format, shape.block_size, shape.key_dim, shape.value_dim);
  const QueryPart query{q, q_stride, shape.key_dim, shape.key_dim, layout.stored_key_dim};
  run_attention({context, shape, options, sequences, layout, blocks, {query, {}}, out, out_stride},
                {k, k_stride, v, v_stride}, "attention");
}

}  // namespace millrace::ops
