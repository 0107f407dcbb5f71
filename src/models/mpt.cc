// MPT: ALiBi with a bound of its own, no biases, LayerNorm without bias.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = {
      {"token_embd", "transformer.wte"},
      {"output_norm", "transformer.norm_f"},
      {"output", "lm_head"},
      {"blk.{}.attn_norm", "transformer.blocks.{}.norm_1"},
      {"blk.{}.attn_qkv", "transformer.blocks.{}.attn.Wqkv"},
      {"blk.{}.attn_output", "transformer.blocks.{}.attn.out_proj"},
      {"blk.{}.ffn_norm", "transformer.blocks.{}.norm_2"},
      {"blk.{}.ffn_up", "transformer.blocks.{}.ffn.up_proj"},
      {"blk.{}.ffn_down", "transformer.blocks.{}.ffn.down_proj"},
  };
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  use_plain_blocks(spec, weights);
  spec.norm = ops::NormSpec::Kind::kLayer;
  if (!config.flag({nullptr, "attn_config.alibi"}, true) || weights.has("position_embd"))
    config.refuse({"attention.max_alibi_bias", "attn_config.alibi"},
                  "is off: only MPT checkpoints with ALiBi are supported");
  const float max_bias =
      config.find_number({"attention.max_alibi_bias", "attn_config.alibi_bias_max"}).value_or(8);
  const float clip = config.find_number({"attention.clamp_kqv", "attn_config.clip_qkv"}).value_or(0);
  const float scale = config.find_number({nullptr, "attn_config.softmax_scale"}).value_or(0);
  for (BlockSpec& b : spec.blocks) {
    b.attention_scale = scale;
    b.rope = -1;
    b.alibi = true;
    b.alibi_max_bias = max_bias;
    b.clip_qkv = clip;
    b.activation = ops::Activation::kGeluErf;
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"mpt"}, {"MptForCausalLM", "MPTForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
