// A normalisation with its weights: RMSNorm (Zhang & Sennrich 2019) or LayerNorm.
#pragma once

#include <vector>

#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace millrace::layers {

struct Norm {
  ops::NormSpec::Kind kind = ops::NormSpec::Kind::kRms;
  float epsilon = 1e-5f;
  std::vector<float> weight;  ///< empty: all ones (with present true)
  std::vector<float> bias;
  bool present = false;  ///< false: this block has no such norm

  explicit operator bool() const { return present; }
  ops::NormSpec spec() const {
    return {kind, weight.empty() ? nullptr : weight.data(), bias.empty() ? nullptr : bias.data(), epsilon};
  }
};

}  // namespace millrace::layers
