#include "models/experts.h"

#include <algorithm>

namespace millrace::models {

ExpertSpec read_experts(const Config& config, Key count, Key used, Key width) {
  ExpertSpec spec;
  spec.num_experts = config.integer(count, 1, 1 << 16);
  spec.top_k = config.integer(used, 1, 1 << 16);
  if (spec.top_k > spec.num_experts)
    config.refuse(used, fmt::format("is {}: expected at most the {} experts", spec.top_k, spec.num_experts));
  spec.width = config.integer(width, 1, 1 << 24);
  return spec;
}

std::vector<bool> sparse_layers(const Config& config, size_t num_layers) {
  const std::vector<int64_t> dense = config.integers({nullptr, "mlp_only_layers"});
  const int32_t step = config.find_integer({nullptr, "decoder_sparse_step"}, 1).value_or(1);
  std::vector<bool> sparse;
  for (size_t i = 0; i < num_layers; ++i)
    sparse.push_back(static_cast<int64_t>(i + 1) % step == 0 &&
                     std::find(dense.begin(), dense.end(), static_cast<int64_t>(i)) == dense.end());
  return sparse;
}

std::unique_ptr<layers::Moe> make_moe(Weights& weights, const ExpertSpec& spec, int64_t hidden, int layer) {
  auto moe = std::make_unique<layers::Moe>(spec.num_experts);
  ops::RouterOptions& r = moe->routing;
  r.num_experts = spec.num_experts;
  r.top_k = spec.top_k;
  r.scoring = spec.scoring;
  r.group_score = spec.group_score;
  r.num_groups = spec.num_groups;
  r.top_groups = spec.top_groups;
  r.normalize = spec.normalize;
  r.normalize_epsilon = spec.normalize_epsilon;
  r.scale = spec.scale;
  if (spec.selection_bias) {
    const auto suffix = weights.has_plain("blk.{}.exp_probs_b", layer) ? "" : ".bias";
    moe->selection_bias =
        weights.values("blk.{}.exp_probs_b", suffix, spec.num_experts, Weights::Need::kRequired, layer);
    r.selection_bias = moe->selection_bias.data();
  }
  moe->router = weights.linear("blk.{}.ffn_gate_inp", spec.num_experts, hidden, layer);
  moe->up = weights.experts({{"blk.{}.ffn_gate_exps", spec.width}, {"blk.{}.ffn_up_exps", spec.width}},
                            spec.num_experts, hidden, layer);
  moe->down = weights.experts({{"blk.{}.ffn_down_exps", hidden}}, spec.num_experts, spec.width, layer);
  if (spec.shared_width > 0) {
    moe->shared = std::make_unique<layers::Mlp>();
    const int64_t width = spec.shared_width;
    moe->shared->up =
        weights.linear({{"blk.{}.ffn_gate_shexp", width}, {"blk.{}.ffn_up_shexp", width}}, hidden, layer);
    moe->shared->down = weights.linear("blk.{}.ffn_down_shexp", hidden, width, layer);
    if (spec.shared_gate) moe->shared_gate = weights.linear("blk.{}.ffn_gate_inp_shexp", 1, hidden, layer);
  }
  return moe;
}

}  // namespace millrace::models
