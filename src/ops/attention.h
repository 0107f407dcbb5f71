// Paged attention. Writes this step's K and V into their blocks and attends over the cached context, for a
// ragged mix of decodes and prefill chunks. Memory O(rows): scores are tiled with online softmax
// (FlashAttention, Dao et al. 2022; split over the context for decodes, Flash-Decoding 2023). The layout
// inside a block belongs to this file.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"

namespace millrace::ops {

enum class KvFormat : uint8_t { kF32, kBF16, kInt8, kInt4 };

/// Bytes of one block of one layer: `block_size` tokens of K [kv_heads, key_dim] and V [kv_heads, value_dim].
int64_t kv_block_bytes(KvFormat format, int32_t block_size, int32_t kv_heads, int32_t key_dim,
                       int32_t value_dim);

struct AttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  ///< divides num_heads
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t block_size = 16;  ///< a multiple of 16
  KvFormat format = KvFormat::kBF16;
  int64_t block_bytes = 0;  ///< distance between blocks
};

struct AttentionOptions {
  float scale = 1.0f;    ///< of q . k
  float softcap = 0.0f;  ///< scores become softcap * tanh(score / softcap); 0: none
  int32_t window = 0;    ///< a query at p sees keys in (p - window, p]; 0: all
  int32_t chunk = 0;     ///< chunked local attention: keys of the same chunk of this length only; 0: none
  const float* sinks = nullptr;  ///< [num_heads] extra logits that take probability and give nothing; or null
  const float* alibi_slopes =
      nullptr;         ///< [num_heads]: adds -slope * (query position - key position); or null
  bool causal = true;  ///< false: every query of the step sees the whole context (encoders)
};

struct AttentionSequence {
  int32_t query_begin = 0;
  int32_t query_length = 0;
  int32_t context_length = 0;  ///< after this step
  std::span<const int32_t> block_table;
};

/// q [rows, num_heads, key_dim] with row stride q_stride (floats); k and v likewise, new rows of this step,
/// stored into the cache first. out [rows, num_heads * value_dim], stride out_stride. `blocks` is the layer's
/// array of blocks.
void paged_attention(const Context& context, const AttentionShape& shape, const AttentionOptions& options,
                     std::span<const AttentionSequence> sequences, const float* q, int64_t q_stride,
                     const float* k, int64_t k_stride, const float* v, int64_t v_stride, std::byte* blocks,
                     float* out, int64_t out_stride);

/// The storing half alone (layers that share another's cache pass null k and v to paged_attention).
void store_kv(const Context& context, const AttentionShape& shape,
              std::span<const AttentionSequence> sequences, const float* k, int64_t k_stride, const float* v,
              int64_t v_stride, std::byte* blocks);

}  // namespace millrace::ops
