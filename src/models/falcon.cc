// Falcon: 7B (one KV head, one norm), 40B, 180B and Falcon 2 (grouped heads; one or two norms), RW (ALiBi,
// one head after the other). Attention and MLP in parallel.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  const bool alibi = Config(checkpoint).flag({nullptr, "alibi"}, false);
  const bool grouped = Config(checkpoint).flag({nullptr, "new_decoder_architecture"}, false);
  const bool one_kv_head = Config(checkpoint).flag({nullptr, "multi_query"}, true);
  const bool two_norms =
      checkpoint.find("transformer.h.0.ln_mlp.weight") || checkpoint.find("blk.0.attn_norm_2.weight");
  const NameTable names = {
      {"token_embd", "transformer.word_embeddings"},
      {"output_norm", "transformer.ln_f"},
      {"output", "lm_head"},
      // GGUF files with two norms call the attention's the second.
      {"blk.{}.attn_norm", two_norms ? "transformer.h.{}.ln_attn" : "transformer.h.{}.input_layernorm",
       Transform::kNone, two_norms ? "blk.{}.attn_norm_2" : ""},
      {"blk.{}.ffn_norm", two_norms ? "transformer.h.{}.ln_mlp" : "transformer.h.{}.post_attention_layernorm",
       Transform::kNone, two_norms ? "blk.{}.attn_norm" : ""},
      {"blk.{}.attn_qkv", "transformer.h.{}.self_attention.query_key_value",
       grouped || one_kv_head ? Transform::kGroupsQkv : Transform::kHeadsQkv},
      {"blk.{}.attn_output", "transformer.h.{}.self_attention.dense"},
      {"blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
      {"blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"},
  };
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  use_plain_blocks(spec, weights);
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  const bool parallel = config.flag({nullptr, "parallel_attn"}, true) || grouped;
  for (BlockSpec& b : spec.blocks) {
    if (config.gguf())
      b.num_kv_heads = config.integer({"attention.head_count_kv", nullptr}, 1, b.num_heads);
    else
      b.num_kv_heads = grouped       ? config.integer({nullptr, "num_kv_heads"}, 1, b.num_heads)
                       : one_kv_head ? 1
                                     : b.num_heads;
    b.parallel = parallel;
    b.ffn_norm = two_norms || !parallel;
    b.activation = read_activation(config, ops::Activation::kGeluErf);
    b.alibi = alibi;
    // Falcon adds ALiBi before the scores are scaled.
    if (alibi) {
      b.rope = -1;
      b.alibi_scaled = true;
    }
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"falcon"}, {"FalconForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
