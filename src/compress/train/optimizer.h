// AdamW over the flat buffers of train::Model, with the learning rate of a warm-up and a cosine. Attention
// matrices may take orthogonalised updates instead (train/orthogonal.h).
#pragma once

#include "compress/train/config.h"
#include "compress/train/linear.h"
#include "compress/train/model.h"
#include "compress/train/orthogonal.h"

namespace millrace::train {

/// Rate of step `step` (from 0): rises linearly over the warm-up, then falls as a cosine to its final share.
float learning_rate(const TrainConfig& config, int64_t step);

class Optimizer {
 public:
  Optimizer(const TrainConfig& config, Model& model, ThreadPool& pool);

  /// Clips, updates the parameters and packs them again. Returns the norm of the gradient before clipping.
  double step(int64_t step);

  Buffer<float>& first_moment() { return first_; }
  Buffer<float>& second_moment() { return second_; }

 private:
  void step_orthogonal(float gradient_scale, float rate);

  const TrainConfig& config_;
  Model& model_;
  ThreadPool& pool_;
  Buffer<float> first_, second_;
  std::vector<float> decay_of_chunk_;   // weight decay, norms excepted
  std::vector<uint8_t> adam_of_chunk_;  // whether AdamW moves it
  std::vector<const TensorInfo*> orthogonal_;
  std::vector<OrthogonalScratch> scratch_;
  Buffer<float> update_;
  std::vector<std::pair<int64_t, int64_t>> chunks_;
};

}  // namespace millrace::train
