// GLM-4 (glm-4-9b-chat-hf) and GLM-4-0414: adjacent pairs rotated in half of each head, gate|up in one
// matrix; the later one has norms after each half too.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable first = llama_names().with({{"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"}});
  static const NameTable second = first.with({
      {"blk.{}.post_attention_norm", "model.layers.{}.post_self_attn_layernorm"},
      {"blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm"},
  });
  const std::string arch = Config(checkpoint).architecture();
  const bool post_norms = arch == "glm4" || arch == "Glm4ForCausalLM";
  const Config config(checkpoint);
  Weights weights(checkpoint, post_norms ? second : first, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kInterleaved)};
  for (BlockSpec& b : spec.blocks) b.post_attn_norm = b.post_ffn_norm = post_norms;
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"chatglm", "glm4"}, {"GlmForCausalLM", "Glm4ForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
