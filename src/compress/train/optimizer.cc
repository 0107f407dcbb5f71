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
  std::vector<std::pair<int64_t, int64_t>> norms;
  for (const TensorInfo& t : model.tensors())
    if (t.is_norm()) norms.emplace_back(t.offset, t.offset + t.size());
  std::sort(norms.begin(), norms.end());
  const auto add = [&](int64_t begin, int64_t end, float decay) {
    for (int64_t at = begin; at < end; at += kChunk) {
      chunks_.emplace_back(at, std::min(end, at + kChunk));
      decay_of_chunk_.push_back(decay);
    }
  };
  int64_t at = 0;
  for (const auto& [begin, end] : norms) {
    add(at, begin, config.weight_decay);
    add(begin, end, 0.0f);
    at = end;
  }
  add(at, count, config.weight_decay);
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
      AdamStep mine = update;
      mine.weight_decay = decay_of_chunk_[static_cast<size_t>(i)];
      k.adam(model_.parameters().data() + range.first, gradient + range.first, first_.data() + range.first,
             second_.data() + range.first, range.second - range.first, mine);
    }
  });
  model_.repack();
  return norm;
}

}  // namespace millrace::train
