// Checkpoints stored in FP8 or MXFP4 as the hub has them (scripts/fixtures/quantised_models.py): the logits
// are those of the weights that their bytes mean, up to what sixteen-bit weights and eight-bit activations
// lose.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "layers/kv_cache.h"
#include "loaders/checkpoint.h"
#include "models/model.h"
#include "models/sequence_runner.h"
#include "testing/testing.h"

namespace millrace {
namespace {

class Quantised : public ::testing::TestWithParam<std::string> {};

TEST_P(Quantised, LogitsAreThoseOfWhatTheBytesMean) {
  const auto folder = testing::fixture("models/quantised") / GetParam();
  const auto json = nlohmann::json::parse(testing::read_file(folder / "reference.json"));
  const auto expected = json["logits"].get<std::vector<std::vector<float>>>();
  ThreadPool pool(2);
  const auto checkpoint = loaders::open_checkpoint(folder);
  for (const IsaLevel isa : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (isa > best_isa()) continue;
    models::LoadOptions options;
    options.isa = isa;
    const auto model = models::load_model(checkpoint, options, pool);
    models::SequenceRunner runner(*model, pool, isa, layers::KvType::kF32, 64);
    std::vector<double> worst_of_row;
    const auto compare = [&](int32_t first, int32_t rows, const float* logits) {
      for (int32_t r = 0; r < rows; ++r) {
        double worst = 0;
        for (size_t i = 0; i < expected[0].size(); ++i) {
          const double d = logits[static_cast<size_t>(r) * expected[0].size() + i] -
                           static_cast<double>(expected[static_cast<size_t>(first + r)][i]);
          worst = std::isnan(d) ? INFINITY : std::max(worst, std::abs(d));
        }
        worst_of_row.push_back(worst / json["spread"].get<double>());
      }
    };
    const models::SequenceRunner::LogitsVisitor visitor(compare);
    runner.append(json["prompt"].get<std::vector<int32_t>>(), &visitor);
    ASSERT_EQ(worst_of_row.size(), expected.size());
    // The median row: rounding may send a row to other experts. A scale left out or a row in the wrong place
    // makes differences of the order of the spread; latent attention with eight-bit up-projections loses
    // most.
    std::sort(worst_of_row.begin(), worst_of_row.end());
    EXPECT_LT(worst_of_row[worst_of_row.size() / 2], 0.04) << isa_name(isa);
  }
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testing::fixture("models/quantised")))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Quantised, ::testing::ValuesIn(all_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace millrace
