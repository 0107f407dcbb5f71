// OPT: learned positions whose table begins with two unused rows, LayerNorm before each half, ReLU.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = {
      {"token_embd", "model.decoder.embed_tokens"},
      {"position_embd", "model.decoder.embed_positions"},
      {"output_norm", "model.decoder.final_layer_norm"},
      {"output", "lm_head"},
      {"blk.{}.attn_norm", "model.decoder.layers.{}.self_attn_layer_norm"},
      {"blk.{}.attn_q", "model.decoder.layers.{}.self_attn.q_proj"},
      {"blk.{}.attn_k", "model.decoder.layers.{}.self_attn.k_proj"},
      {"blk.{}.attn_v", "model.decoder.layers.{}.self_attn.v_proj"},
      {"blk.{}.attn_output", "model.decoder.layers.{}.self_attn.out_proj"},
      {"blk.{}.ffn_norm", "model.decoder.layers.{}.final_layer_norm"},
      {"blk.{}.ffn_up", "model.decoder.layers.{}.fc1"},
      {"blk.{}.ffn_down", "model.decoder.layers.{}.fc2"},
  };
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  use_plain_blocks(spec, weights);
  // The 350M checkpoint normalises after each half and projects its embedding; no other one does.
  if (!config.flag({nullptr, "do_layer_norm_before"}, true))
    config.refuse({nullptr, "do_layer_norm_before"}, "is false: only pre-norm OPT checkpoints are supported");
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.learned_positions = true;
  spec.position_offset = 2;
  for (BlockSpec& b : spec.blocks) {
    b.rope = -1;
    b.activation = read_activation(config, ops::Activation::kRelu);
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"opt"}, {"OPTForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
