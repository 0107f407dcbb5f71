// Gradients of the trainer against differences of the loss, kernels against plain sums.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "compress/train/model.h"
#include "core/random.h"
#include "testing/testing.h"

namespace millrace::train {
namespace {

ModelShape small_shape(int experts, int used = 2) {
  ModelShape s;
  s.vocab_size = 64;
  s.dim = 64;
  s.num_layers = 2;
  s.num_heads = 4;
  s.num_kv_heads = 2;
  s.head_dim = 32;
  s.feed_forward = 96;
  s.num_experts = experts;
  s.experts_per_token = experts ? used : 0;
  return s;
}

MicroBatch random_batch(Random& random, int vocab, const std::vector<int>& lengths) {
  MicroBatch batch;
  for (const int length : lengths) {
    std::vector<uint16_t> tokens(static_cast<size_t>(length));
    std::vector<uint8_t> answers(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<uint16_t>(random.below(static_cast<uint32_t>(vocab)));
      answers[i] = random.below(3) > 0;
    }
    batch.add(tokens.data(), answers.data(), length, 0.25f);
  }
  batch.pad();
  return batch;
}

/// Moves all parameters of a tensor along a random direction and compares the change of the loss with the
/// gradient.
void check_directions(const ModelShape& shape, Arithmetic arithmetic, bool recompute, double tolerance,
                      double step_length = 0.02) {
  Random random(testing::seed());
  ThreadPool pool(2);
  Model model(shape, arithmetic, recompute, 160, pool);
  model.initialise(testing::seed(), 0.15f, /*similar_attention=*/false);
  const MicroBatch batch = random_batch(random, shape.vocab_size, {50, 41, 2, 33});
  model.clear_gradients();
  const LossSum base = model.forward_backward(batch, 1.0f, 0.0f);
  EXPECT_NEAR(base.loss, model.forward(batch).loss, 1e-3 * base.loss);
  const std::vector<float> gradient(model.gradients().begin(), model.gradients().end());
  const std::vector<float> start(model.parameters().begin(), model.parameters().end());
  for (const TensorInfo& t : model.tensors()) {
    const int64_t matrix = t.shape.size() == 3 ? t.shape[1] * t.shape[2] : t.size();
    // Along the gradient itself with noise: a random direction alone would see only a small part of it.
    std::vector<std::pair<int64_t, double>> direction;
    double norm = 0, square = 0;
    for (int64_t i = 0; i < t.size(); ++i) {
      const int64_t at = t.shape.size() == 3 ? t.offset + i / matrix * t.stride + i % matrix : t.offset + i;
      norm += gradient[static_cast<size_t>(at)] * gradient[static_cast<size_t>(at)];
      direction.emplace_back(at, 0.0);
    }
    ASSERT_GT(norm, 0) << t.name << " has no gradient at all";
    const double scale = std::sqrt(norm / static_cast<double>(direction.size()));
    for (auto& [at, d] : direction) {
      d = gradient[static_cast<size_t>(at)] + scale * random.normal();
      square += d * d;
    }
    const double step = step_length / std::sqrt(square);
    double expected = 0;
    for (const auto& [at, d] : direction) expected += gradient[static_cast<size_t>(at)] * d * step;
    const auto loss_at = [&](double factor) {
      for (const auto& [at, d] : direction)
        model.parameters()[static_cast<size_t>(at)] =
            start[static_cast<size_t>(at)] + static_cast<float>(factor * step * d);
      model.repack();
      return model.forward(batch).loss;
    };
    const double difference = (loss_at(1) - loss_at(-1)) / 2;
    loss_at(0);
    EXPECT_NEAR(difference / expected, 1.0, tolerance) << t.name;
  }
}

TEST(TrainGradient, DenseMatchesDifferences) {
  check_directions(small_shape(0), Arithmetic::kFloat32, false, 0.01);
}

TEST(TrainGradient, DenseWithRecomputedActivationsMatchesDifferences) {
  check_directions(small_shape(0), Arithmetic::kFloat32, true, 0.01);
}

TEST(TrainGradient, AllExpertsMatchDifferences) {
  check_directions(small_shape(4, 4), Arithmetic::kFloat32, false, 0.02);
}

TEST(TrainGradient, PickedExpertsMatchDifferences) {
  // A pick that flips inside the step is a true jump of the loss, so the step is tiny and the float noise
  // larger.
  check_directions(small_shape(3, 2), Arithmetic::kFloat32, false, 0.1, 1e-3);
}

TEST(TrainGradient, Bfloat16MatchesDifferencesRoughly) {
  check_directions(small_shape(0), Arithmetic::kBfloat16, false, 0.15, 0.3);
}

TEST(TrainGradient, RecomputingChangesNoBit) {
  Random random(testing::seed());
  ThreadPool pool(2);
  const MicroBatch batch = random_batch(random, 64, {60, 41, 30});
  std::vector<std::vector<float>> results;
  for (const bool recompute : {false, true}) {
    Model model(small_shape(4), Arithmetic::kBfloat16, recompute, 160, pool);
    model.initialise(3, 0.1f, /*similar_attention=*/true);
    model.clear_gradients();
    model.forward_backward(batch, 1.0f, 0.1f);
    results.emplace_back(model.gradients().begin(), model.gradients().end());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(TrainGradient, ThreadsChangeNoBit) {
  Random random(testing::seed());
  const MicroBatch batch = random_batch(random, 64, {60, 41, 30});
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    Model model(small_shape(4), Arithmetic::kBfloat16, false, 160, pool);
    model.initialise(3, 0.1f, /*similar_attention=*/true);
    model.clear_gradients();
    model.forward_backward(batch, 1.0f, 0.1f);
    results.emplace_back(model.gradients().begin(), model.gradients().end());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace millrace::train
