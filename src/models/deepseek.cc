// DeepSeek-V2 and V3 (also R1): latent attention whose cache is one vector per token; the first layers dense,
// the others with shared and routed experts, chosen by groups.
#include <cmath>

#include "layers/latent_attention.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace millrace::models {
namespace {

struct LatentSpec {
  int32_t heads, query_rank, latent, rope, nope, value;
  float scale, epsilon;
};

/// Splits kv_b [heads x (nope + value), latent] into the matrices that each head needs in either form.
void split_kv_up(Weights& weights, const LatentSpec& s, int layer, layers::LatentAttention& attention) {
  const int64_t latent = s.latent, nope = s.nope, value = s.value;
  std::vector<float> keys, values;  // [heads][latent][nope], [heads][value][latent]
  const bool split = weights.has("blk.{}.attn_k_b", layer);
  if (split) {
    keys = weights.matrix_values("blk.{}.attn_k_b", s.heads * latent, nope, layer);
    values = weights.matrix_values("blk.{}.attn_v_b", s.heads * value, latent, layer);
  } else {
    const std::vector<float> both =
        weights.matrix_values("blk.{}.attn_kv_b", s.heads * (nope + value), latent, layer);
    keys.resize(static_cast<size_t>(s.heads * latent * nope));
    values.resize(static_cast<size_t>(s.heads * value * latent));
    for (int64_t h = 0; h < s.heads; ++h) {
      const float* block = both.data() + h * (nope + value) * latent;
      for (int64_t n = 0; n < nope; ++n)
        for (int64_t l = 0; l < latent; ++l)
          keys[static_cast<size_t>((h * latent + l) * nope + n)] = block[n * latent + l];
      std::copy_n(block + nope * latent, value * latent, values.data() + h * value * latent);
    }
  }
  // Exact for F32 checkpoints; others keep eight bits where the width allows, which is more than most files
  // have.
  const auto type = [&](int64_t cols) {
    return weights.all_float() ? DType::kF32 : cols % 32 == 0 ? DType::kQ8_0 : DType::kBF16;
  };
  const auto part = [](const std::vector<float>& of, int64_t h, int64_t size) {
    return std::span<const float>(of).subspan(static_cast<size_t>(h * size), static_cast<size_t>(size));
  };
  std::vector<float> expand(static_cast<size_t>(nope * latent));
  for (int64_t h = 0; h < s.heads; ++h) {
    const auto key = part(keys, h, latent * nope);
    for (int64_t n = 0; n < nope; ++n)
      for (int64_t l = 0; l < latent; ++l)
        expand[static_cast<size_t>(n * latent + l)] = key[static_cast<size_t>(l * nope + n)];
    attention.key_up.push_back(weights.pack_values(key, latent, nope, type(nope)));
    attention.key_expand.push_back(weights.pack_values(expand, nope, latent, type(latent)));
    attention.value_up.push_back(
        weights.pack_values(part(values, h, value * latent), value, latent, type(latent)));
  }
}

std::unique_ptr<layers::Mixer> make_latent(Weights& weights, const LatentSpec& s, int64_t hidden, int layer,
                                           const layers::Rope* rope, const ops::RopeTable* table) {
  auto a = std::make_unique<layers::LatentAttention>();
  a->num_heads = s.heads;
  a->latent_dim = s.latent;
  a->rope_dim = s.rope;
  a->nope_dim = s.nope;
  a->value_dim = s.value;
  a->scale = s.scale;
  a->rope = rope;
  a->rope_table = table;
  const int64_t q_rows = int64_t{s.heads} * (s.nope + s.rope);
  const auto rms = ops::NormSpec::Kind::kRms;
  if (s.query_rank > 0) {
    a->query_down = weights.linear("blk.{}.attn_q_a", s.query_rank, hidden, layer);
    a->query_norm = weights.norm("blk.{}.attn_q_a_norm", s.query_rank, rms, s.epsilon, layer);
    a->query = weights.linear("blk.{}.attn_q_b", q_rows, s.query_rank, layer);
  } else {
    a->query = weights.linear("blk.{}.attn_q", q_rows, hidden, layer);
  }
  a->kv_down = weights.linear("blk.{}.attn_kv_a_mqa", s.latent + s.rope, hidden, layer);
  a->latent_norm = weights.norm("blk.{}.attn_kv_a_norm", s.latent, rms, s.epsilon, layer);
  split_kv_up(weights, s, layer, *a);
  a->output = weights.linear("blk.{}.attn_output", hidden, int64_t{s.heads} * s.value, layer);
  return a;
}

/// YaRN with mscale: the softmax is sharpened where the rotation's magnitude is not.
float attention_scale(const Config& config, int32_t head_dim) {
  const float plain = 1.0f / std::sqrt(static_cast<float>(head_dim));
  double mscale = 1;
  if (config.gguf()) {
    const double factor = config.find_number({"rope.scaling.factor", nullptr}).value_or(1);
    const double multiplier = config.find_number({"rope.scaling.yarn_log_multiplier", nullptr}).value_or(0);
    if (factor > 1) mscale = multiplier * std::log(factor) + 1;
  } else {
    for (const char* prefix : {"rope_parameters.", "rope_scaling."}) {
      const std::string p = prefix;
      const double factor = config.find_number({nullptr, (p + "factor").c_str()}).value_or(1);
      const double all_dim = config.find_number({nullptr, (p + "mscale_all_dim").c_str()}).value_or(0);
      if (factor > 1 && all_dim != 0) mscale = 0.1 * all_dim * std::log(factor) + 1;
    }
  }
  return static_cast<float>(plain * mscale * mscale);
}

const NameTable& names() {
  static const NameTable table = llama_names().with({
      {"blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj"},
      {"blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm"},
      {"blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj"},
      {"blk.{}.attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa"},
      {"blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm"},
      {"blk.{}.attn_kv_b", "model.layers.{}.self_attn.kv_b_proj"},
      {"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"},
      {"blk.{}.exp_probs_b", "model.layers.{}.mlp.gate.e_score_correction_bias", Transform::kNone,
       "blk.{}.exp_probs_b.bias"},
      {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"},
      {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"},
      {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"},
      {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"},
      {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"},
      {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"},
  });
  return table;
}

ExpertSpec read_deepseek_experts(const Config& config, bool third) {
  ExpertSpec e =
      read_experts(config, {"expert_count", "n_routed_experts"}, {"expert_used_count", "num_experts_per_tok"},
                   {"expert_feed_forward_length", "moe_intermediate_size"});
  e.shared_width = e.width * config.find_integer({"expert_shared_count", "n_shared_experts"}).value_or(0);
  e.scale = config.find_number({"expert_weights_scale", "routed_scaling_factor"}).value_or(1);
  // V2's modelling code has no use for its key.
  e.normalize =
      config.gguf() || third ? config.flag({"expert_weights_norm", "norm_topk_prob"}, third) : false;
  const bool sigmoid = config.gguf()
                           ? config.find_integer({"expert_gating_func", nullptr}).value_or(third ? 2 : 1) == 2
                           : third;
  if (sigmoid) {
    e.scoring = ops::RouterOptions::Scoring::kSigmoid;
    e.group_score = ops::RouterOptions::GroupScore::kSumOfTwo;
    e.normalize_epsilon = 1e-20f;
    e.selection_bias = true;
  }
  // GGUF has a number of groups only where they count.
  const bool grouped =
      third || config.gguf() || config.text({nullptr, "topk_method"}) == "group_limited_greedy";
  if (grouped) {
    e.num_groups = config.find_integer({"expert_group_count", "n_group"}, 1, e.num_experts).value_or(1);
    e.top_groups = config.find_integer({"expert_group_used_count", "topk_group"}, 1, e.num_groups)
                       .value_or(e.num_groups);
    if (e.num_experts % e.num_groups != 0)
      config.refuse({"expert_group_count", "n_group"},
                    fmt::format("is {}: expected a divisor of {}", e.num_groups, e.num_experts));
  }
  return e;
}

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, names(), options, pool);
  const bool third = config.gguf() ? weights.has_plain("blk.{}.exp_probs_b", 3) ||
                                         config.find_integer({"expert_gating_func", nullptr}).value_or(1) == 2
                                   : config.architecture() == "DeepseekV3ForCausalLM";
  DecoderSpec spec = read_common(config, weights);
  LatentSpec latent{};
  latent.heads = spec.blocks[0].num_heads;
  latent.query_rank = config.find_integer({"attention.q_lora_rank", "q_lora_rank"}).value_or(0);
  latent.latent = config.integer({"attention.kv_lora_rank", "kv_lora_rank"}, 1, 1 << 16);
  latent.rope = config.integer({"rope.dimension_count", "qk_rope_head_dim"}, 2, 1 << 12);
  if (config.gguf()) {
    // key_length_mla is the head as published; key_length that of the absorbed form in newer files.
    const int32_t key = config.has({"attention.key_length_mla", nullptr})
                            ? config.integer({"attention.key_length_mla", nullptr})
                            : config.integer({"attention.key_length", nullptr});
    latent.nope = key - latent.rope;
    latent.value = config.has({"attention.value_length_mla", nullptr})
                       ? config.integer({"attention.value_length_mla", nullptr})
                       : config.integer({"attention.value_length", nullptr});
  } else {
    latent.nope = config.integer({nullptr, "qk_nope_head_dim"}, 1, 1 << 12);
    latent.value = config.integer({nullptr, "v_head_dim"}, 1, 1 << 12);
  }
  latent.scale = attention_scale(config, latent.nope + latent.rope);
  latent.epsilon = 1e-6f;  // of the inner norms, fixed in the modelling code
  const bool pairs = config.flag({nullptr, "rope_interleave"}, true) || !third;
  spec.ropes = {read_rope(config, weights, latent.rope,
                          pairs ? ops::RopeLayout::kInterleaved : ops::RopeLayout::kHalf)};
  const int32_t dense =
      config.find_integer({"leading_dense_block_count", "first_k_dense_replace"}).value_or(0);
  const ExpertSpec experts = read_deepseek_experts(config, third);
  const int64_t hidden = spec.hidden_size;
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    b.make_mixer = [=](Weights& w, int layer, const layers::Rope* rope, const ops::RopeTable* table) {
      return make_latent(w, latent, hidden, layer, rope, table);
    };
    if (static_cast<int32_t>(i) >= dense)
      b.make_ffn = [=](Weights& w, int layer) { return make_moe(w, experts, hidden, layer); };
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"deepseek2"},
                                       {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"},
                                       load});

}  // namespace
}  // namespace millrace::models
