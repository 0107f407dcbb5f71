// GPT-2: learned positions, LayerNorm with biases, GELU (tanh form), matrices stored transposed by
// transformers.
#include <cmath>

#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = {
      {"token_embd", "transformer.wte"},
      {"position_embd", "transformer.wpe"},
      {"output_norm", "transformer.ln_f"},
      {"output", "lm_head"},
      {"blk.{}.attn_norm", "transformer.h.{}.ln_1"},
      {"blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", Transform::kTranspose},
      {"blk.{}.attn_output", "transformer.h.{}.attn.c_proj", Transform::kTranspose},
      {"blk.{}.ffn_norm", "transformer.h.{}.ln_2"},
      {"blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", Transform::kTranspose},
      {"blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", Transform::kTranspose},
  };
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  use_plain_blocks(spec, weights);
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.learned_positions = true;
  const bool scaled = config.flag({nullptr, "scale_attn_weights"}, true);
  const bool by_layer = config.flag({nullptr, "scale_attn_by_inverse_layer_idx"}, false);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    b.attention_scale = (scaled ? 1.0f / std::sqrt(static_cast<float>(b.key_dim)) : 1.0f) /
                        (by_layer ? static_cast<float>(i + 1) : 1.0f);
    b.rope = -1;
    b.activation = read_activation(config, ops::Activation::kGeluTanh);
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"gpt2"}, {"GPT2LMHeadModel"}, load});

}  // namespace
}  // namespace millrace::models
