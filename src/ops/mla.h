// Multi-head latent attention (DeepSeek-V2, 2024) in its absorbed form. The cache holds one latent vector and
// one rotated key per token, shared by all heads:
//
//   score[head, token] = scale (q_latent[head] . latent[token] + q_rope[head] . k_rope[token])
//   out[head] = sum over tokens of softmax(score)[token] latent[token]
//
// The caller has multiplied the position-free part of each head's query by that head's key up-projection, and
// multiplies each head's output by its value up-projection. For the other form, in which keys and values of
// each head are made of the latents, store_latents and read_latents are what is needed beside
// paged_attention.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention.h"

namespace millrace::ops {

struct LatentShape {
  int32_t num_heads = 0;
  int32_t latent_dim = 0;
  int32_t rope_dim = 0;
  int32_t block_size = 16;            ///< a multiple of 16
  KvFormat format = KvFormat::kBF16;  ///< kInt8 and kInt4 are kept as kBF16
  int64_t block_bytes = 0;            ///< distance between blocks
};

/// Bytes of one block of one layer.
int64_t latent_block_bytes(KvFormat format, int32_t block_size, int32_t latent_dim, int32_t rope_dim);

/// Rows of the step; strides in floats.
struct LatentInput {
  const float* q_latent = nullptr;  ///< [rows, num_heads, latent_dim]
  const float* q_rope = nullptr;    ///< [rows, num_heads, rope_dim]; heads lie q_rope_head_stride apart
  int64_t q_latent_stride = 0, q_rope_stride = 0;
  int64_t q_rope_head_stride = 0;  ///< 0: rope_dim
  const float* latent = nullptr;   ///< [rows, latent_dim], after its norm; null: the cache is read as it is
  const float* k_rope = nullptr;   ///< [rows, rope_dim], after rotation
  int64_t latent_stride = 0, k_rope_stride = 0;
};

/// Stores the step's latents, then attends. out [rows, num_heads * latent_dim]. Of the options all but sinks'
/// and slopes' meaning is as for paged_attention, and theirs too.
void latent_attention(const Context& context, const LatentShape& shape, const AttentionOptions& options,
                      std::span<const AttentionSequence> sequences, const LatentInput& input,
                      std::byte* blocks, float* out, int64_t out_stride);

/// The storing half alone; `input` needs latent and k_rope only.
void store_latents(const Context& context, const LatentShape& shape,
                   std::span<const AttentionSequence> sequences, const LatentInput& input, std::byte* blocks);

/// Reads the first `tokens` tokens of one sequence back: latent [tokens, latent_dim], k_rope [tokens,
/// rope_dim].
void read_latents(const Context& context, const LatentShape& shape, std::span<const int32_t> block_table,
                  int32_t tokens, const std::byte* blocks, float* latent, float* k_rope);

}  // namespace millrace::ops
