// Llama 1-3.x and what shares its block: Mistral (window), SmolLM, TinyLlama, Yi, ...
#include "models/decoder.h"
#include "models/experts.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, llama_names(), options, pool);
  DecoderSpec spec = read_common(config, weights);
  // llama.cpp's converter reorders the rows of Q and K so that rotated pairs lie side by side.
  for (const char* key : {"rope_parameters.partial_rotary_factor", "partial_rotary_factor"})
    if (config.find_number({nullptr, key}).value_or(1) != 1)
      config.refuse({nullptr, key}, "is not 1: a Llama rotates whole heads");
  const auto layout = config.gguf() ? ops::RopeLayout::kInterleaved : ops::RopeLayout::kHalf;
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, layout)};
  const int32_t window = config.find_integer({"attention.sliding_window", "sliding_window"}).value_or(0);
  for (BlockSpec& b : spec.blocks) b.window = window;
  // GGUF calls Mixtral a Llama with experts.
  if (config.gguf() && config.find_integer({"expert_count", nullptr}).value_or(0) > 0) {
    ExpertSpec experts = read_experts(config, {"expert_count", nullptr}, {"expert_used_count", nullptr},
                                      {"feed_forward_length", nullptr});
    experts.normalize = true;
    const int64_t hidden = spec.hidden_size;
    for (BlockSpec& b : spec.blocks)
      b.make_ffn = [=](Weights& w, int layer) { return make_moe(w, experts, hidden, layer); };
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"llama"}, {"LlamaForCausalLM", "MistralForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
