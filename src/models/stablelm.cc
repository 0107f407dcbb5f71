// StableLM 2 and 3B: LayerNorm, partial rotation; some run their halves in parallel or normalise Q and K per
// head.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm.norms.{}"},
      {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm.norms.{}"},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  const bool parallel = config.flag({"use_parallel_residual", "use_parallel_residual"}, false);
  const bool qk_norm =
      config.gguf() ? weights.has("blk.{}.attn_q_norm", 0) : config.flag({nullptr, "qk_layernorm"}, false);
  for (BlockSpec& b : spec.blocks) {
    b.parallel = parallel;
    b.ffn_norm = !parallel;
    if (qk_norm) b.qk_norm = BlockSpec::QkNorm::kOwnPerHead;
    b.qk_norm_kind = ops::NormSpec::Kind::kLayer;
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"stablelm"}, {"StableLmForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
