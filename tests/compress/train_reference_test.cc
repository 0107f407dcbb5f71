// The trainer's loss and gradients against PyTorch's (fixtures/train_reference.py).

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "compress/train/model.h"
#include "testing/testing.h"

namespace millrace::train {
namespace {

// The same hash as in the script.
double noise(uint64_t index) {
  return static_cast<double>((index * 2654435761ULL + 12345) % (1ULL << 32)) / 4294967296.0 - 0.5;
}

int64_t place_of(const TensorInfo& t, int64_t i) {
  const int64_t matrix = t.shape.size() == 3 ? t.shape[1] * t.shape[2] : t.size();
  return t.shape.size() == 3 ? t.offset + i / matrix * t.stride + i % matrix : t.offset + i;
}

/// Weights in the order of the table, which is the script's.
void fill(Model& model) {
  uint64_t index = 0;
  for (const TensorInfo& t : model.tensors()) {
    for (int64_t i = 0; i < t.size(); ++i) {
      const double value = static_cast<float>(noise(index++));
      model.parameters()[static_cast<size_t>(place_of(t, i))] =
          static_cast<float>(t.is_norm() ? 1.0 + 0.2 * value : 0.5 * value);
    }
  }
  model.repack();
}

MicroBatch documents() {
  MicroBatch batch;
  uint64_t at = 1000003;
  for (const int length : {21, 9, 14}) {
    std::vector<uint16_t> tokens;
    for (int i = 0; i < length; ++i) tokens.push_back(static_cast<uint16_t>((noise(at++) + 0.5) * 64));
    const std::vector<uint8_t> answers(tokens.size(), 1);
    batch.add(tokens.data(), answers.data(), length, 1.0f);
  }
  batch.pad();
  return batch;
}

TEST(TrainReference, LossAndGradientsAreThoseOfPyTorch) {
  std::ifstream in(testing::fixture("compress/fixtures/train_reference.txt"));
  ASSERT_TRUE(in.good());
  ThreadPool pool(2);
  const MicroBatch batch = documents();
  std::unique_ptr<Model> model;
  std::string line;
  int compared = 0;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "experts") {
      ModelShape s{64, 64, 2, 4, 2, 32, 96, 0, 0};
      std::string label;
      double loss = 0;
      words >> s.num_experts >> label >> loss;
      s.experts_per_token = s.num_experts ? 2 : 0;
      model = std::make_unique<Model>(s, Arithmetic::kFloat32, false, 64, pool);
      fill(*model);
      model->clear_gradients();
      EXPECT_NEAR(model->forward_backward(batch, 1.0f, 0.0f).loss, loss, 1e-4 * loss);
      continue;
    }
    ASSERT_TRUE(model);
    const TensorInfo* t = nullptr;
    for (const TensorInfo& candidate : model->tensors())
      if (candidate.name == name) t = &candidate;
    ASSERT_TRUE(t) << name;
    double expected_sum = 0, expected_norm = 0, sum = 0, square = 0;
    words >> expected_sum >> expected_norm;
    const auto gradient = [&](int64_t i) {
      return static_cast<double>(model->gradients()[static_cast<size_t>(place_of(*t, i))]);
    };
    for (int64_t i = 0; i < t->size(); ++i) {
      sum += gradient(i);
      square += gradient(i) * gradient(i);
    }
    EXPECT_NEAR(std::sqrt(square), expected_norm, 1e-3 * expected_norm) << name;
    EXPECT_NEAR(sum, expected_sum, 1e-3 * expected_norm * std::sqrt(static_cast<double>(t->size()))) << name;
    for (int64_t i = 0; i < 4; ++i) {
      double expected = 0;
      words >> expected;
      EXPECT_NEAR(gradient(t->size() * i / 4 + 3 * i), expected, 1e-3 * expected_norm)
          << name << " entry " << i;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 20 + 22);
}

}  // namespace
}  // namespace millrace::train
