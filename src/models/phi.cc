// Phi-1, 1.5 and 2: one LayerNorm before both halves, which run in parallel; partial rotation; biases
// everywhere.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"output_norm", "model.final_layernorm"},
      {"blk.{}.attn_output", "model.layers.{}.self_attn.dense"},
      {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"},
      {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"},
      {"blk.{}.ffn_up", "model.layers.{}.mlp.fc1"},
      {"blk.{}.ffn_down", "model.layers.{}.mlp.fc2"},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  const bool head_norms = config.flag({nullptr, "qk_layernorm"}, false);
  for (BlockSpec& b : spec.blocks) {
    if (head_norms) b.qk_norm = BlockSpec::QkNorm::kPerHead;
    b.qk_norm_kind = ops::NormSpec::Kind::kLayer;
    b.parallel = true;
    b.ffn_norm = false;
    b.gated = false;
    b.activation = read_activation(config, ops::Activation::kGeluTanh);
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"phi2"}, {"PhiForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
