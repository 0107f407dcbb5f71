// The feed-forward half of a dense block: gated (SwiGLU, GeGLU; Shazeer 2020) or plain.
#pragma once

#include <optional>

#include "layers/linear.h"
#include "layers/mixer.h"
#include "ops/elementwise.h"

namespace millrace::layers {

/// What pairs gate and up in a product's epilogue, for activations that have such a one.
std::optional<ops::Epilogue::Kind> pair_kind(ops::Activation activation);

class Mlp final : public FeedForward {
 public:
  ops::Activation activation = ops::Activation::kSilu;
  bool gated = true;
  Linear up;  ///< gated: gate|up stacked, 2 * width rows; plain: width rows
  Linear down;

  uint64_t weight_bytes() const override { return up.bytes() + down.bytes(); }
  void add_forms(std::vector<ops::InputForm>& forms) const override { up.add_forms(forms); }
  void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
               const ops::Epilogue& epilogue) const override;

 private:
  /// What `down` reads.
  ops::MatmulInput activate(const Step& step, ops::MatmulInput& x) const;
};

}  // namespace millrace::layers
