// BLOOM: ALiBi, a norm right after the embedding, Q, K and V of each head side by side.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = {
      {"token_embd", "transformer.word_embeddings"},
      {"token_embd_norm", "transformer.word_embeddings_layernorm"},
      {"output_norm", "transformer.ln_f"},
      {"output", "lm_head"},
      {"blk.{}.attn_norm", "transformer.h.{}.input_layernorm"},
      {"blk.{}.attn_qkv", "transformer.h.{}.self_attention.query_key_value", Transform::kHeadsQkv},
      {"blk.{}.attn_output", "transformer.h.{}.self_attention.dense"},
      {"blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm"},
      {"blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
      {"blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"},
  };
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  use_plain_blocks(spec, weights);
  if (config.flag({nullptr, "apply_residual_connection_post_layernorm"}, false))
    config.refuse({nullptr, "apply_residual_connection_post_layernorm"},
                  "is true: expected false, as published checkpoints have");
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.embedding_norm = true;
  for (BlockSpec& b : spec.blocks) {
    b.rope = -1;
    b.alibi = true;
    b.activation = ops::Activation::kGeluTanh;
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"bloom"}, {"BloomForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
