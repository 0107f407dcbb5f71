// Arcee (AFM): Llama with an MLP of two matrices and squared ReLU.
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
  for (BlockSpec& b : spec.blocks) {
    b.gated = false;
    b.activation = read_activation(config, ops::Activation::kReluSquared);
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration(
    {{"arcee"}, {"ArceeForCausalLM"}, load, {{"ArceeForCausalLM", "arcee", GgufForm::Norm::kRms, true}}});

}  // namespace
}  // namespace millrace::models
