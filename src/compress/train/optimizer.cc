#include "compress/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace::train {
namespace {

constexpr int64_t kChunk = 16384;

}  // namespace

float learning_rate(const TrainConfig& c, int64_t step) {
  const double warm = c.warmup_steps;
  if (static_cast<double>(step) < warm)
    return c.learning_rate * static_cast<float>((static_cast<double>(step) + 1) / warm);
  const double rest = std::max(1.0, static_cast<double>(c.steps) - warm);
  const double progress = std::min(1.0, (static_cast<double>(step) - warm) / rest);
  const double share =
      c.final_rate + (1.0 - c.final_rate) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return c.learning_rate * static_cast<float>(share);
}

Optimizer::Optimizer(const TrainConfig& config, Model& model, ThreadPool& pool)
    : config_(config), model_(model), pool_(pool) {
  const auto count = static_cast<int64_t>(model.parameters().size());
  first_.allocate(count);
  second_.allocate(count);
  scratch_.resize(static_cast<size_t>(pool.num_threads()));
  struct Range {
    int64_t begin, end;
    float decay;
    uint8_t adam;
  };
  std::vector<Range> ranges;  // those that are not plain AdamW with decay
  int64_t largest = 0;
  for (const TensorInfo& t : model.tensors()) {
    const bool attention = !t.is_norm() && t.name.find(".attn_") != std::string::npos;
    if (t.is_norm()) ranges.push_back({t.offset, t.offset + t.size(), 0.0f, 1});
    if (attention && config.orthogonal_attention) {
      ranges.push_back({t.offset, t.offset + t.size(), config.weight_decay, 0});
      orthogonal_.push_back(&t);
      largest = std::max(largest, t.size());
    }
  }
  update_.allocate(largest * pool.num_threads());
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  const auto add = [&](int64_t begin, int64_t end, float decay, uint8_t adam) {
    for (int64_t at = begin; at < end; at += kChunk) {
      chunks_.emplace_back(at, std::min(end, at + kChunk));
      decay_of_chunk_.push_back(decay);
      adam_of_chunk_.push_back(adam);
    }
  };
  int64_t at = 0;
  for (const Range& range : ranges) {
    add(at, range.begin, config.weight_decay, 1);
    add(range.begin, range.end, range.decay, range.adam);
    at = range.end;
  }
  add(at, count, config.weight_decay, 1);
}

void Optimizer::step_orthogonal(float gradient_scale, float rate) {
  constexpr float kMomentum = 0.95f;
  const Kernels& k = kernels();
  const auto count = static_cast<int64_t>(orthogonal_.size());
  const int64_t stride = count ? update_.size() / pool_.num_threads() : 0;
  pool_.parallel_for(count, 1, [&](int64_t begin, int64_t end, int thread) {
    float* update = update_.data() + thread * stride;
    for (int64_t i = begin; i < end; ++i) {
      const TensorInfo& t = *orthogonal_[static_cast<size_t>(i)];
      const float* gradient = model_.gradients().data() + t.offset;
      float* momentum = first_.data() + t.offset;
      float* weight = model_.parameters().data() + t.offset;
      const int64_t size = t.size();
      k.scale(momentum, kMomentum, size);
      k.add_scaled(gradient, gradient_scale, momentum, size);
      // Nesterov: one step further along the momentum.
      std::copy_n(momentum, size, update);
      k.scale(update, kMomentum, size);
      k.add_scaled(gradient, gradient_scale, update, size);
      orthogonalise(k, update, t.shape[0], t.shape[1], scratch_[static_cast<size_t>(thread)]);
      // The scale gives the elements the size that AdamW's updates have.
      const float size_like_adam = 0.2f * std::sqrt(static_cast<float>(std::max(t.shape[0], t.shape[1])));
      k.scale(weight, 1.0f - rate * config_.weight_decay, size);
      k.add_scaled(update, -rate * size_like_adam, weight, size);
    }
  });
}

double Optimizer::step(int64_t step) {
  const Kernels& k = kernels();
  const float* gradient = model_.gradients().data();
  std::vector<double> squares(chunks_.size());
  const auto chunk_count = static_cast<int64_t>(chunks_.size());
  pool_.parallel_for(chunk_count, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& range = chunks_[static_cast<size_t>(i)];
      squares[static_cast<size_t>(i)] =
          k.dot(gradient + range.first, gradient + range.first, range.second - range.first);
    }
  });
  double square = 0;
  for (const double part : squares) square += part;
  const double norm = std::sqrt(square);
  AdamStep update;
  update.learning_rate = learning_rate(config_, step);
  update.beta1 = config_.beta1;
  update.beta2 = config_.beta2;
  update.epsilon = config_.epsilon;
  update.correction1 = static_cast<float>(
      1.0 / (1.0 - std::pow(static_cast<double>(config_.beta1), static_cast<double>(step) + 1)));
  update.correction2 = static_cast<float>(
      1.0 / (1.0 - std::pow(static_cast<double>(config_.beta2), static_cast<double>(step) + 1)));
  update.gradient_scale =
      config_.clip > 0 && norm > config_.clip ? static_cast<float>(config_.clip / norm) : 1.0f;
  pool_.parallel_for(chunk_count, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& range = chunks_[static_cast<size_t>(i)];
      if (!adam_of_chunk_[static_cast<size_t>(i)]) continue;
      AdamStep mine = update;
      mine.weight_decay = decay_of_chunk_[static_cast<size_t>(i)];
      k.adam(model_.parameters().data() + range.first, gradient + range.first, first_.data() + range.first,
             second_.data() + range.first, range.second - range.first, mine);
    }
  });
  step_orthogonal(update.gradient_scale, update.learning_rate);
  model_.repack();
  return norm;
}

}  // namespace millrace::train
