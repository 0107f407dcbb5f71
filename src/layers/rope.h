// Rotary embedding as a model's layers share it: the frequencies of one kind of layer, and this step's table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "layers/step.h"
#include "ops/rope.h"

namespace millrace::layers {

/// Rotary parameters of a set of layers. Scalings that depend on the length (dynamic NTK, LongRoPE) choose
/// per sequence, by the length of its text as known in this step, so that a batch mixes short and long ones.
struct Rope {
  ops::RopeLayout layout = ops::RopeLayout::kHalf;
  int32_t dim = 0;  ///< rotated values of each head (partial rotary: fewer than head_dim)
  ops::RopeFrequencies frequencies;
  std::optional<ops::RopeFrequencies> long_frequencies;  ///< LongRoPE beyond original_context
  double dynamic_base = 0, dynamic_factor = 0;  ///< dynamic NTK beyond original_context, when factor > 0
  int32_t original_context = 0;

  ops::RopeTable table(const Step& step) const;
};

}  // namespace millrace::layers
