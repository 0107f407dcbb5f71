// Checkpoints stored in FP8 or MXFP4 as the hub has them (scripts/fixtures/quantised_models.py): the logits
// are those of the weights that their bytes mean, up to what sixteen-bit weights and eight-bit activations
// lose.
#include "layers/kv_cache.h"
#include "loaders/checkpoint.h"
#include "models/model.h"
#include "models/reference.h"

namespace millrace {
namespace {

class Quantised : public ::testing::TestWithParam<std::string> {};

TEST_P(Quantised, LogitsAreThoseOfWhatTheBytesMean) {
  const auto folder = testing::fixture("models/quantised") / GetParam();
  const testing::Reference reference = testing::read_reference(folder);
  ThreadPool pool(2);
  const auto checkpoint = loaders::open_checkpoint(folder);
  for (const IsaLevel isa : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (isa > best_isa()) continue;
    models::LoadOptions options;
    options.isa = isa;
    const auto model = models::load_model(checkpoint, options, pool);
    models::SequenceRunner runner(*model, pool, isa, layers::KvType::kF32, 64);
    std::vector<double> rows = testing::row_differences(runner, reference, 64);
    // The median row: rounding may send a row to other experts. A scale left out or a row in the wrong place
    // makes differences of the order of the spread; latent attention with eight-bit up-projections loses
    // most.
    std::sort(rows.begin(), rows.end());
    EXPECT_LT(rows[rows.size() / 2], 0.04) << isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Quantised, ::testing::ValuesIn(testing::fixture_names("models/quantised")),
                         testing::test_name);

}  // namespace
}  // namespace millrace
