// Experts as most families arrange them.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/moe.h"
#include "models/config.h"
#include "models/weights.h"

namespace millrace::models {

struct ExpertSpec {
  int32_t num_experts = 0, top_k = 0, width = 0;
  int32_t shared_width = 0;  ///< 0: no shared expert
  bool shared_gate = false;
  bool normalize = false;
  float normalize_epsilon = 0;
  float scale = 1;
  ops::RouterOptions::Scoring scoring = ops::RouterOptions::Scoring::kSoftmax;
  ops::RouterOptions::GroupScore group_score = ops::RouterOptions::GroupScore::kMaximum;
  int32_t num_groups = 1, top_groups = 1;
  bool selection_bias = false;  ///< "exp_probs_b"
};

/// The layers with experts as Qwen's configurations have it: every decoder_sparse_step-th, without those in
/// mlp_only_layers.
std::vector<bool> sparse_layers(const Config& config, size_t num_layers);

/// num_experts and top_k from their usual keys, checked against each other.
ExpertSpec read_experts(const Config& config, Key count, Key used, Key width);

/// The layer with its weights under GGUF's names: ffn_gate_inp, ffn_{gate,up,down}_exps,
/// ffn_{gate,up,down}_shexp.
std::unique_ptr<layers::Moe> make_moe(Weights& weights, const ExpertSpec& spec, int64_t hidden, int layer);

}  // namespace millrace::models
