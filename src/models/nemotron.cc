// Nemotron and Minitron: LayerNorm stored around one, half of each head rotated, an MLP of two matrices with
// squared ReLU.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"output_norm", "model.norm", Transform::kAddOne},
      {"blk.{}.attn_norm", "model.layers.{}.input_layernorm", Transform::kAddOne},
      {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Transform::kAddOne},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  for (BlockSpec& b : spec.blocks) {
    b.gated = false;
    b.activation = read_activation(config, ops::Activation::kReluSquared);
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"nemotron"},
                                       {"NemotronForCausalLM"},
                                       load,
                                       {{"NemotronForCausalLM", "nemotron", GgufForm::Norm::kLayer}}});

}  // namespace
}  // namespace millrace::models
