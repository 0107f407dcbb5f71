// Granite 3: Llama with multipliers on embedding, attention, residual and logits.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, llama_names(), options, pool);
  DecoderSpec spec = read_common(config, weights);
  const auto layout = config.gguf() ? ops::RopeLayout::kInterleaved : ops::RopeLayout::kHalf;
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, layout)};
  spec.embedding_scale = config.find_number({"embedding_scale", "embedding_multiplier"}).value_or(1);
  spec.residual_scale = config.find_number({"residual_scale", "residual_multiplier"}).value_or(1);
  const float divisor = config.find_number({"logit_scale", "logits_scaling"}).value_or(1);
  if (divisor <= 0) config.refuse({"logit_scale", "logits_scaling"}, "is not positive");
  spec.logit_scale = 1.0f / divisor;
  const float scale = config.find_number({"attention.scale", "attention_multiplier"}).value_or(0);
  for (BlockSpec& b : spec.blocks) b.attention_scale = scale;
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"granite"}, {"GraniteForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
