// OLMo 1 (norms without weights, clipped Q, K, V), OLMo 2 (norms after each half, QK-norm over all heads) and
// OLMo 3 (three windowed layers to one full).
#include "models/decoder.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable later = llama_names().with({
      {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
      {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
  });
  const std::string arch = Config(checkpoint).architecture();
  const bool first = arch == "olmo" || arch == "OlmoForCausalLM";
  const Config config(checkpoint);
  Weights weights(checkpoint, first ? llama_names() : later, options, pool);
  DecoderSpec spec = read_common(config, weights);
  const int32_t window = config.find_integer({"attention.sliding_window", "sliding_window"}).value_or(0);
  const bool third = !first && window > 0;
  const int32_t head_dim = spec.blocks[0].key_dim;
  const auto layout = first && config.gguf() ? ops::RopeLayout::kInterleaved : ops::RopeLayout::kHalf;
  spec.ropes = {read_rope(config, weights, head_dim, layout, third ? "full_attention" : "")};
  if (third) {
    // Scaling for long contexts is on the full layers only.
    layers::Rope local;
    local.layout = layout;
    local.dim = head_dim;
    float base = config.find_number({"rope.freq_base", "rope_theta"}).value_or(0);
    for (const char* key : {"rope_parameters.sliding_attention.rope_theta", "rope_parameters.rope_theta"})
      if (base == 0) base = config.find_number({nullptr, key}).value_or(0);
    if (base == 0) base = 500000;
    local.frequencies = ops::rope_default(head_dim, base);
    spec.ropes.push_back(local);
  }
  const std::vector<bool> local = local_layers(config, spec.blocks.size(), 4);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    if (first) {
      b.clip_qkv = config.find_number({"attention.clamp_kqv", "clip_qkv"}).value_or(0);
      continue;
    }
    b.attn_norm = b.ffn_norm = false;
    b.post_attn_norm = b.post_ffn_norm = true;
    b.qk_norm = BlockSpec::QkNorm::kAllHeads;
    if (third && local[i]) {
      b.window = window;
      b.rope = 1;
    }
  }
  if (first) {
    spec.norm = ops::NormSpec::Kind::kLayer;
    spec.norm_weights = false;
    spec.norm_epsilon = 1e-5f;
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"olmo", "olmo2"},
                                       {"OlmoForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM"},
                                       load});

}  // namespace
}  // namespace millrace::models
