// Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: QKV and gate|up each in one matrix, LongRoPE, partial rotation, a
// window.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
      {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  const int32_t window = config.find_integer({"attention.sliding_window", "sliding_window"}).value_or(0);
  for (BlockSpec& b : spec.blocks) b.window = window;
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"phi3"}, {"Phi3ForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
