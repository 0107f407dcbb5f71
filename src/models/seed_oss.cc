// Seed-OSS: Llama with biases on Q, K and V and a head size of its own.
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names =
      llama_names().with({{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Transform::kNone,
                           "blk.{}.post_attention_norm"}});
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration(
    {{"seed_oss"}, {"SeedOssForCausalLM"}, load, {{"SeedOssForCausalLM", "seed_oss"}}});

}  // namespace
}  // namespace millrace::models
