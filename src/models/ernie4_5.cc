// ERNIE 4.5 (dense): Llama whose rotation mixes neighbours.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, llama_names(), options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kInterleaved)};
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration(
    {{"ernie4_5"}, {"Ernie4_5ForCausalLM"}, load, {{"Ernie4_5ForCausalLM", "ernie4_5"}}});

}  // namespace
}  // namespace millrace::models
