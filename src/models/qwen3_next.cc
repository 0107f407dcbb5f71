// Qwen3-Next: three Gated DeltaNet layers to one of gated attention with partial rotation; experts with a
// gated shared one; norm weights stored around one.
#include "layers/state_space.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace millrace::models {
namespace {

/// The checkpoint groups rows by key head: for each its q, k, and the v and z of the value heads that read
/// it. Here come all q, all k, all v, all z.
std::vector<int64_t> qkvz_order(const ops::DeltaRuleShape& s) {
  const int64_t ratio = s.value_heads / s.key_heads, kd = s.key_dim, vd = ratio * s.value_dim,
                group = 2 * kd + 2 * vd;
  std::vector<int64_t> order;
  const int64_t begins[4] = {0, kd, 2 * kd, 2 * kd + vd}, counts[4] = {kd, kd, vd, vd};
  for (int part = 0; part < 4; ++part)
    for (int64_t h = 0; h < s.key_heads; ++h)
      for (int64_t i = 0; i < counts[part]; ++i) order.push_back(h * group + begins[part] + i);
  return order;
}

std::vector<int64_t> ba_order(const ops::DeltaRuleShape& s) {
  const int64_t ratio = s.value_heads / s.key_heads;
  std::vector<int64_t> order;
  for (int64_t part = 0; part < 2; ++part)
    for (int64_t h = 0; h < s.key_heads; ++h)
      for (int64_t i = 0; i < ratio; ++i) order.push_back((h * 2 + part) * ratio + i);
  return order;
}

std::unique_ptr<layers::Mixer> make_delta(Weights& weights, const ops::DeltaRuleShape& s, int32_t kernel,
                                          float epsilon, int64_t hidden, int layer) {
  const auto need = Weights::Need::kRequired;
  auto m = std::make_unique<layers::GatedDeltaNet>();
  m->shape = s;
  m->kernel = kernel;
  const int64_t values = int64_t{s.value_heads} * s.value_dim;
  // Newer GGUF files have q, k, v in order already, and the gate apart.
  if (weights.has("blk.{}.attn_qkv", layer))
    m->input = weights.linear(
        {{"blk.{}.attn_qkv", 2 * int64_t{s.key_heads} * s.key_dim + values}, {"blk.{}.attn_gate", values}},
        hidden, layer);
  else
    m->input = weights.linear_in_order("blk.{}.ssm_in", qkvz_order(s), hidden, layer);
  m->beta_and_decay = weights.linear_in_order("blk.{}.ssm_ba", ba_order(s), hidden, layer);
  const int64_t channels = 2 * int64_t{s.key_heads} * s.key_dim + int64_t{s.value_heads} * s.value_dim;
  m->conv_weight = weights.transposed("blk.{}.ssm_conv1d", ".weight", channels, kernel, layer);
  m->dt_bias = weights.values("blk.{}.ssm_dt", "", s.value_heads, need, layer);
  m->a = weights.values("blk.{}.ssm_a", "", s.value_heads, need, layer);
  m->norm_weight = weights.values("blk.{}.ssm_norm", ".weight", s.value_dim, need, layer);
  m->norm_epsilon = epsilon;
  m->output = weights.linear("blk.{}.ssm_out", hidden, int64_t{s.value_heads} * s.value_dim, layer);
  return m;
}

const NameTable& names() {
  static const NameTable table = llama_names().with({
      {"output_norm", "model.norm", Transform::kAddOne},
      {"blk.{}.attn_norm", "model.layers.{}.input_layernorm", Transform::kAddOne},
      {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Transform::kAddOne,
       "blk.{}.post_attention_norm"},
      {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", Transform::kAddOne},
      {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", Transform::kAddOne},
      {"blk.{}.ssm_in", "model.layers.{}.linear_attn.in_proj_qkvz"},
      {"blk.{}.ssm_ba", "model.layers.{}.linear_attn.in_proj_ba"},
      {"blk.{}.ssm_conv1d", "model.layers.{}.linear_attn.conv1d"},
      {"blk.{}.ssm_dt", "model.layers.{}.linear_attn.dt_bias", Transform::kNone, "blk.{}.ssm_dt.bias"},
      {"blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log", Transform::kNegateExp},
      {"blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm"},
      {"blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj"},
      {"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"},
      {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"},
      {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"},
      {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"},
      {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
      {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
      {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"},
      {"blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"},
  });
  return table;
}

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, names(), options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  ops::DeltaRuleShape delta{};
  delta.key_heads = config.integer({"ssm.group_count", "linear_num_key_heads"}, 1, 1 << 12);
  delta.value_heads =
      config.integer({"ssm.time_step_rank", "linear_num_value_heads"}, delta.key_heads, 1 << 12);
  delta.key_dim = config.integer({"ssm.state_size", "linear_key_head_dim"}, 1, 1 << 12);
  delta.value_dim = config.gguf() ? config.integer({"ssm.inner_size", nullptr}) / delta.value_heads
                                  : config.integer({nullptr, "linear_value_head_dim"}, 1, 1 << 12);
  const int32_t kernel = config.integer({"ssm.conv_kernel", "linear_conv_kernel_dim"}, 2, 64);
  ExpertSpec experts =
      read_experts(config, {"expert_count", "num_experts"}, {"expert_used_count", "num_experts_per_tok"},
                   {"expert_feed_forward_length", "moe_intermediate_size"});
  experts.normalize = config.flag({nullptr, "norm_topk_prob"}, true);
  experts.shared_width =
      config.integer({"expert_shared_feed_forward_length", "shared_expert_intermediate_size"});
  experts.shared_gate = true;
  const std::vector<std::string> types = config.texts({nullptr, "layer_types"});
  const std::vector<bool> sparse = sparse_layers(config, spec.blocks.size());
  const int64_t hidden = spec.hidden_size;
  const float epsilon = spec.norm_epsilon;
  const int32_t interval =
      config.find_integer({"full_attention_interval", "full_attention_interval"}, 1).value_or(4);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    const bool linear = types.size() == spec.blocks.size() ? types[i] == "linear_attention"
                                                           : static_cast<int32_t>(i + 1) % interval != 0;
    if (linear) {
      b.make_mixer = [=](Weights& w, int layer, const layers::Rope*, const ops::RopeTable*) {
        return make_delta(w, delta, kernel, epsilon, hidden, layer);
      };
    } else {
      b.gated_attention = true;
      b.qk_norm = BlockSpec::QkNorm::kPerHead;
    }
    if (sparse[i]) b.make_ffn = [=](Weights& w, int layer) { return make_moe(w, experts, hidden, layer); };
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"qwen3next"}, {"Qwen3NextForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
