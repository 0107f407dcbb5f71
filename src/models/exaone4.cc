// EXAONE 4: norms after each half only, QK-norm on each head; in the hybrid ones three windowed layers that
// rotate to one full that does not.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
      {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  const int32_t window = config.find_integer({"attention.sliding_window", "sliding_window"}).value_or(0);
  const std::vector<bool> local = local_layers(config, spec.blocks.size(), 4);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    b.attn_norm = b.ffn_norm = false;
    b.post_attn_norm = b.post_ffn_norm = true;
    b.qk_norm = BlockSpec::QkNorm::kPerHead;
    if (window == 0) continue;
    b.window = local[i] ? window : 0;
    b.rope = local[i] ? 0 : -1;
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration(
    {{"exaone4"},
     {"Exaone4ForCausalLM"},
     load,
     {{"Exaone4ForCausalLM",
       "exaone4",
       GgufForm::Norm::kRms,
       false,
       false,
       {{"attention.sliding_window", "sliding_window", GgufForm::Setting::Kind::kUnsigned}}}}});

}  // namespace
}  // namespace millrace::models
