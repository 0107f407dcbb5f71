// Command-R (LayerNorm without bias, both halves from one norm, scaled logits, QK-norm in R+) and Command-R7B
// / Cohere 2 (three windowed layers that rotate to one full layer that does not).
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, llama_names(), options, pool);
  DecoderSpec spec = read_common(config, weights);
  const bool second = config.architecture() == "cohere2" || config.architecture() == "Cohere2ForCausalLM";
  spec.norm = ops::NormSpec::Kind::kLayer;
  spec.logit_scale = config.find_number({"logit_scale", "logit_scale"}).value_or(1);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kInterleaved)};
  const bool qk_norm =
      config.gguf() ? weights.has("blk.{}.attn_q_norm", 0) : config.flag({nullptr, "use_qk_norm"}, false);
  const int32_t window = second ? config.integer({"attention.sliding_window", "sliding_window"}) : 0;
  const std::vector<bool> local = local_layers(config, spec.blocks.size(), 4);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    b.parallel = true;
    b.ffn_norm = false;
    if (qk_norm) b.qk_norm = BlockSpec::QkNorm::kOwnPerHead;
    b.qk_norm_kind = ops::NormSpec::Kind::kLayer;
    if (!second) continue;
    b.window = local[i] ? window : 0;
    b.rope = local[i] ? 0 : -1;
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"command-r", "cohere2"},
                                       {"CohereForCausalLM", "Cohere2ForCausalLM"},
                                       load});

}  // namespace
}  // namespace millrace::models
