// The two halves of a block. A mixer moves information between positions (attention of any kind, state
// space); a feed-forward works on each row alone (MLP, experts). Both read a prepared input and write or add
// their result.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/cache_spec.h"
#include "layers/step.h"
#include "ops/matmul.h"

namespace millrace::layers {

class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual CacheSpec cache_spec() const = 0;
  virtual uint64_t weight_bytes() const = 0;
  /// Input forms that the first matmuls read.
  virtual void add_forms(std::vector<ops::InputForm>& forms) const = 0;
  /// y [rows, hidden] (dense) by `epilogue`: kStore or kAdd, with its scale.
  virtual void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                       const ops::Epilogue& epilogue) const = 0;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual uint64_t weight_bytes() const = 0;
  virtual void add_forms(std::vector<ops::InputForm>& forms) const = 0;
  /// Mixture of experts: rows that each expert got since the start; empty for others.
  virtual std::vector<uint64_t> expert_load() const { return {}; }
  virtual void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                       const ops::Epilogue& epilogue) const = 0;
};

}  // namespace millrace::layers
