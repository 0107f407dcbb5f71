// Qwen2 (biases on Q, K, V) and Qwen3 (RMSNorm on each head's Q and K instead).
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, llama_names(), options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  const bool third = config.architecture() == "qwen3" || config.architecture() == "Qwen3ForCausalLM";
  // config.json: the window counts only where it is switched on, from layer max_window_layers up.
  const bool windowed = config.flag({nullptr, "use_sliding_window"}, false);
  const int32_t window = windowed ? config.find_integer({nullptr, "sliding_window"}).value_or(0) : 0;
  const int32_t first = config.find_integer({nullptr, "max_window_layers"}).value_or(0);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    if (third) spec.blocks[i].qk_norm = BlockSpec::QkNorm::kPerHead;
    if (static_cast<int32_t>(i) >= first) spec.blocks[i].window = window;
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"qwen2", "qwen3"}, {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
