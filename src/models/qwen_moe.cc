// Qwen2-MoE (a gated shared expert beside the routed ones), Qwen3-MoE (none, QK-norm) and OLMoE (QK-norm over
// all heads).
#include "models/decoder.h"
#include "models/experts.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"},
      {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"},
      {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"},
      {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"},
      {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
      {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
      {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"},
      {"blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"},
  });
  const Config config(checkpoint);
  const std::string& arch = config.architecture();
  const bool second = arch == "qwen2moe" || arch == "Qwen2MoeForCausalLM";
  const bool olmoe = arch == "olmoe" || arch == "OlmoeForCausalLM";
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  const Key width = config.has({"expert_feed_forward_length", "moe_intermediate_size"})
                        ? Key{"expert_feed_forward_length", "moe_intermediate_size"}
                        : Key{"feed_forward_length", "intermediate_size"};
  ExpertSpec experts = read_experts(config, {"expert_count", "num_experts"},
                                    {"expert_used_count", "num_experts_per_tok"}, width);
  // GGUF files have no key for it: Qwen3 normalises, the other two do not.
  experts.normalize = config.flag({nullptr, "norm_topk_prob"}, config.gguf() && !second && !olmoe);
  if (second) {
    experts.shared_width =
        config.integer({"expert_shared_feed_forward_length", "shared_expert_intermediate_size"});
    experts.shared_gate = true;
  }
  const std::vector<bool> sparse = sparse_layers(config, spec.blocks.size());
  const int64_t hidden = spec.hidden_size;
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    if (olmoe)
      b.qk_norm = BlockSpec::QkNorm::kAllHeads;
    else if (!second)
      b.qk_norm = BlockSpec::QkNorm::kPerHead;
    if (olmoe) b.clip_qkv = config.find_number({"attention.clamp_kqv", "clip_qkv"}).value_or(0);
    if (sparse[i]) b.make_ffn = [=](Weights& w, int layer) { return make_moe(w, experts, hidden, layer); };
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"qwen2moe", "qwen3moe", "olmoe"},
                                       {"Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM"},
                                       load});

}  // namespace
}  // namespace millrace::models
