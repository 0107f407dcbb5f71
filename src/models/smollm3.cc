// SmolLM3: Llama in which every fourth layer does not rotate.
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
  const std::vector<int64_t> rotates =
      config.integers({nullptr, "no_rope_layers"});  // 1 where a layer does rotate
  if (!rotates.empty() && rotates.size() != spec.blocks.size())
    config.refuse({nullptr, "no_rope_layers"},
                  fmt::format("has {} entries: expected {}", rotates.size(), spec.blocks.size()));
  for (size_t i = 0; i < spec.blocks.size(); ++i)
    spec.blocks[i].rope = (rotates.empty() ? (i + 1) % 4 != 0 : rotates[i] != 0) ? 0 : -1;
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"smollm3"}, {"SmolLM3ForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
