// Mixture of experts: which experts a token goes to, and the way of its row to them and back.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"

namespace millrace::ops {

struct RouterOptions {
  enum class Scoring : uint8_t {
    kSoftmax,          ///< over all experts (Mixtral, Qwen-MoE, OLMoE, DeepSeek-V2)
    kSigmoid,          ///< each by itself (DeepSeek-V3)
    kSoftmaxOfChosen,  ///< over the chosen ones' logits (gpt-oss)
  } scoring = Scoring::kSoftmax;
  enum class GroupScore : uint8_t {
    kMaximum,   ///< a group counts as its best expert (DeepSeek-V2)
    kSumOfTwo,  ///< as its two best together (DeepSeek-V3)
  } group_score = GroupScore::kMaximum;
  int32_t num_experts = 0;
  int32_t top_k = 0;
  int32_t num_groups = 1;                 ///< divides num_experts
  int32_t top_groups = 1;                 ///< experts outside the best top_groups groups cannot be chosen
  const float* selection_bias = nullptr;  ///< [num_experts], added to scores for the choice only; or null
  bool normalize = false;                 ///< weights divided by their sum
  float normalize_epsilon = 0.0f;         ///< added to that sum
  float scale = 1.0f;                     ///< of the weights
};

/// Chooses top_k experts for each row of logits [rows, num_experts]: ids and weights [rows, top_k], by
/// falling score; of equal scores the lower id comes first. Errors: kInternal for a shape that does not fit.
void route_tokens(const Context& context, const RouterOptions& options, const float* logits, int64_t stride,
                  int64_t rows, int32_t* experts, float* weights);

/// The rows of a step in the order of their experts. Memory from the arena.
struct ExpertRows {
  std::span<const int32_t>
      row_offsets;  ///< [num_experts + 1]: expert e has rows [row_offsets[e], row_offsets[e + 1])
  std::span<const int32_t> source;    ///< [rows * top_k] row of the step that each one is
  std::span<const int32_t> position;  ///< [rows, top_k] where each (row, choice) went
  std::span<const int32_t>
      rounded;  ///< [num_experts] how many of an expert's rows, its first, are rounded ones
};
/// Counting sort; rows of one expert keep their order. The step's first `rounded` rows are MatmulInput's.
ExpertRows group_by_expert(const Context& context, const int32_t* experts, int64_t rows, int32_t top_k,
                           int32_t num_experts, int64_t rounded = 0);

/// [rows * top_k, n] dense: x's rows in the order of `order`, from the arena.
float* gather_rows(const Context& context, const ExpertRows& order, const float* x, int64_t stride,
                   int64_t n);

/// out[row] += sum over choices of weights[row, choice] * y[position[row, choice]], in the order of the
/// choices. y [rows * top_k, n] with stride y_stride.
void scatter_add(const Context& context, const ExpertRows& order, const float* weights, int32_t top_k,
                 const float* y, int64_t y_stride, int64_t n, float* out, int64_t out_stride);

}  // namespace millrace::ops
