// StarCoder2: Llama's attention with biases and a window, LayerNorm, a plain GELU MLP.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"},
      {"blk.{}.ffn_down", "model.layers.{}.mlp.c_proj"},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  const int32_t window = config.find_integer({"attention.sliding_window", "sliding_window"}).value_or(0);
  for (BlockSpec& b : spec.blocks) {
    b.gated = false;
    b.activation = read_activation(config, ops::Activation::kGeluTanh);
    b.window = window;
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"starcoder2"}, {"Starcoder2ForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
