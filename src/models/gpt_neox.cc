// GPT-NeoX and Pythia: Q, K and V of each head side by side, two LayerNorms, halves in parallel or one after
// the other.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = {
      {"token_embd", "gpt_neox.embed_in"},
      {"output_norm", "gpt_neox.final_layer_norm"},
      {"output", "embed_out"},
      {"blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"},
      {"blk.{}.attn_qkv", "gpt_neox.layers.{}.attention.query_key_value", Transform::kHeadsQkv},
      {"blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"},
      {"blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"},
      {"blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
      {"blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"},
  };
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  use_plain_blocks(spec, weights);
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf, "",
                          {"rope.freq_base", "rotary_emb_base"})};
  const bool parallel = config.flag({"use_parallel_residual", "use_parallel_residual"}, true);
  for (BlockSpec& b : spec.blocks) {
    b.parallel = parallel;
    b.activation = read_activation(config, ops::Activation::kGeluErf);
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"gptneox"}, {"GPTNeoXForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
