// Gemma 1, 2 and 3 (text): norm weights stored around one, embeddings scaled by sqrt(width), GeGLU; Gemma 2
// adds norms after each half, soft-caps and alternating windows; Gemma 3 QK-norm, five local layers to one
// global, two rope bases.
#include <cmath>

#include "models/decoder.h"

namespace millrace::models {
namespace {

const NameTable& names(bool post_norms) {
  // transformers stores w for a norm that multiplies by 1 + w; GGUF stores 1 + w.
  static const NameTable first = llama_names().with({
      {"output_norm", "model.norm", Transform::kAddOne},
      {"blk.{}.attn_norm", "model.layers.{}.input_layernorm", Transform::kAddOne},
      {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Transform::kAddOne},
  });
  static const NameTable later = first.with({
      {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm", Transform::kAddOne},
      {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm", Transform::kAddOne},
      {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm", Transform::kAddOne},
      {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", Transform::kAddOne},
      {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", Transform::kAddOne},
  });
  return post_norms ? later : first;
}

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  Config config(checkpoint);
  // Multi-modal Gemma 3 leaves what is the configuration class's default out of its text part.
  if (config.architecture() == "Gemma3ForConditionalGeneration") {
    config.assume("num_attention_heads", int64_t{8});
    config.assume("num_key_value_heads", int64_t{4});
    config.assume("head_dim", int64_t{256});
    config.assume("rms_norm_eps", 1e-6);
    config.assume("query_pre_attn_scalar", int64_t{256});
    config.assume("rope_theta", 1e6);
    config.assume("max_position_embeddings", int64_t{131072});
    config.assume("sliding_window", int64_t{4096});
  }
  config.assume("rms_norm_eps", 1e-6);
  const std::string& arch = config.architecture();
  const bool second = arch == "gemma2" || arch == "Gemma2ForCausalLM";
  const bool third = arch.rfind("gemma3", 0) == 0 || arch.rfind("Gemma3", 0) == 0;
  Weights weights(checkpoint, names(second || third), options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden_size));
  const int32_t head_dim = spec.blocks[0].key_dim;
  const int32_t window = config.find_integer({"attention.sliding_window", "sliding_window"}).value_or(0);
  spec.ropes = {read_rope(config, weights, head_dim, ops::RopeLayout::kHalf, third ? "full_attention" : "")};
  if (third) {
    // Local layers rotate with a base of their own and no scaling.
    layers::Rope local;
    local.layout = ops::RopeLayout::kHalf;
    local.dim = head_dim;
    const float base =
        config.find_number({"rope.freq_base_swa", "rope_local_base_freq"})
            .value_or(config.find_number({nullptr, "rope_parameters.sliding_attention.rope_theta"})
                          .value_or(10000.0f));
    local.frequencies = ops::rope_default(head_dim, base);
    spec.ropes.push_back(local);
  }
  const int32_t period =
      third
          ? config.find_integer({"attention.sliding_window_pattern", "sliding_window_pattern"}, 1).value_or(6)
          : 2;
  const std::vector<bool> is_local = local_layers(config, spec.blocks.size(), period);
  const auto scalar = config.find_number({nullptr, "query_pre_attn_scalar"});
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    b.activation = ops::Activation::kGeluTanh;
    if (scalar && (second || third)) b.attention_scale = 1.0f / std::sqrt(*scalar);
    if (!second && !third) continue;
    b.post_attn_norm = b.post_ffn_norm = true;
    const bool local = is_local[i];
    b.window = local ? window : 0;
    if (third) {
      b.qk_norm = BlockSpec::QkNorm::kPerHead;
      b.rope = local ? 1 : 0;
    } else {
      b.attention_softcap =
          config.find_number({"attn_logit_softcapping", "attn_logit_softcapping"}).value_or(0);
    }
  }
  spec.logit_softcap = config.find_number({"final_logit_softcapping", "final_logit_softcapping"}).value_or(0);
  // The 27B models scale queries by width / heads instead of the head's size; GGUF does not say so in a key.
  if (config.gguf() && second && spec.blocks.size() == 46)
    for (BlockSpec& b : spec.blocks)
      b.attention_scale =
          1.0f / std::sqrt(static_cast<float>(spec.hidden_size) / static_cast<float>(b.num_heads));
  if (config.gguf() && third && spec.blocks.size() == 62)
    for (BlockSpec& b : spec.blocks)
      b.attention_scale =
          1.0f / std::sqrt(static_cast<float>(spec.hidden_size) / static_cast<float>(b.num_heads));
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"gemma", "gemma2", "gemma3"},
                                       {"GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM",
                                        "Gemma3ForConditionalGeneration"},
                                       load});

}  // namespace
}  // namespace millrace::models
