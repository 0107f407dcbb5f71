// Configurations that a family's usual checkpoints do not have, but its modelling code does: logits made by
// scripts/checks/configurations.py, which has many more of them.
#include "layers/kv_cache.h"
#include "loaders/checkpoint.h"
#include "models/model.h"
#include "models/reference.h"

namespace millrace {
namespace {

class Configurations : public ::testing::TestWithParam<std::string> {};

TEST_P(Configurations, LogitsAreThoseOfTheModellingCode) {
  const auto folder = testing::fixture("models/configurations") / GetParam();
  const testing::Reference reference = testing::read_reference(folder);
  ThreadPool pool(2);
  const auto checkpoint = loaders::open_checkpoint(folder);
  models::LoadOptions options;
  options.isa = std::min(best_isa(), IsaLevel::kAvx512);
  const auto model = models::load_model(checkpoint, options, pool);
  for (const int32_t chunk : {64, 7}) {
    models::SequenceRunner runner(*model, pool, options.isa, layers::KvType::kF32, 64);
    const std::vector<double> rows = testing::row_differences(runner, reference, chunk);
    EXPECT_LT(*std::max_element(rows.begin(), rows.end()), 1e-4) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Configurations,
                         ::testing::ValuesIn(testing::fixture_names("models/configurations")),
                         testing::test_name);

}  // namespace
}  // namespace millrace
