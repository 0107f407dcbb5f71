// Mixture of experts: a router sends each row to its top-k experts; each expert's weights are read once per
// step for all rows it got. Beside them may stand an expert that every row uses.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "layers/linear.h"
#include "layers/mixer.h"
#include "layers/mlp.h"
#include "ops/moe.h"

namespace millrace::layers {

class Moe final : public FeedForward {
 public:
  explicit Moe(int32_t num_experts) : load_(static_cast<size_t>(num_experts)) {}

  ops::RouterOptions routing;
  std::vector<float> selection_bias;  ///< routing.selection_bias' memory, or empty
  Linear router;
  std::vector<ops::PackedMatrix> up;  ///< gate|up of each expert
  std::vector<ops::PackedMatrix> down;
  ops::Activation activation = ops::Activation::kSilu;
  /// gpt-oss: gate and up have biases, are clamped at `clamp`, and combine as (up + 1) gate sigmoid(alpha
  /// gate).
  float clamp = 0, alpha = 1;
  std::vector<float> up_bias, down_bias;  ///< [experts, rows], or empty
  std::unique_ptr<Mlp> shared;            ///< used by every row
  Linear shared_gate;                     ///< one row: its sigmoid scales the shared expert (Qwen2-MoE)

  uint64_t weight_bytes() const override;
  void add_forms(std::vector<ops::InputForm>& forms) const override;
  void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
               const ops::Epilogue& epilogue) const override;
  /// Rows that each expert got since the start.
  std::vector<uint64_t> expert_load() const override;

 private:
  void activate_clamped(const Step& step, const ops::ExpertRows& order, const float* both, float* hidden,
                        int64_t width) const;
  void add_shared(const Step& step, int layer, ops::MatmulInput& x, float* y,
                  const ops::Epilogue& epilogue) const;

  mutable std::vector<std::atomic<uint64_t>> load_;
};

}  // namespace millrace::layers
