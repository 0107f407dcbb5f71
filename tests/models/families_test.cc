// Every family against its own modelling code: tiny random checkpoints and logits made by
// scripts/fixtures/models.py.
#include "layers/kv_cache.h"
#include "loaders/checkpoint.h"
#include "models/model.h"
#include "models/reference.h"

namespace millrace {
namespace {

class Families : public ::testing::TestWithParam<std::string> {
 protected:
  void load(IsaLevel isa) {
    folder_ = testing::fixture("models/fixtures") / GetParam();
    reference_ = testing::read_reference(folder_);
    checkpoint_ = loaders::open_checkpoint(folder_);
    models::LoadOptions options;
    options.isa = isa;
    model_ = models::load_model(checkpoint_, options, pool_);
  }

  ThreadPool pool_{2};
  std::filesystem::path folder_;
  testing::Reference reference_;
  loaders::Checkpoint checkpoint_;
  std::unique_ptr<models::Model> model_;
};

TEST_P(Families, LogitsOfAPromptInAnyChunks) {
  for (const IsaLevel isa : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (isa > best_isa()) continue;
    load(isa);
    ASSERT_TRUE(model_->info().float_weights);
    for (const int32_t chunk : {64, 1, 7}) {
      models::SequenceRunner runner(*model_, pool_, isa, layers::KvType::kF32, 128);
      const std::vector<double> rows = testing::row_differences(runner, reference_, chunk);
      const double worst = *std::max_element(rows.begin(), rows.end());
      EXPECT_LT(worst, 1e-4) << isa_name(isa) << ", chunks of " << chunk;
      if (isa == best_isa() && chunk == 64)
        RecordProperty("largest_difference", fmt::format("{:.2e}", worst));
    }
  }
}

TEST_P(Families, WhereAPromptIsCutChangesNoBit) {
  const IsaLevel isa = std::min(best_isa(), IsaLevel::kAvx512);
  load(isa);
  std::vector<float> whole;
  for (const int32_t chunk : {64, 16, 7}) {
    models::SequenceRunner runner(*model_, pool_, isa, layers::KvType::kBF16, 128);
    std::vector<float> all;
    const auto keep = [&](int32_t, int32_t rows, const float* logits) {
      all.insert(all.end(), logits, logits + int64_t{rows} * model_->info().vocab_size);
    };
    const models::SequenceRunner::LogitsVisitor visitor(keep);
    runner.append(reference_.prompt, &visitor, chunk);
    if (whole.empty()) whole = all;
    EXPECT_TRUE(all == whole) << "chunks of " << chunk;
  }
}

TEST_P(Families, GreedyContinuation) {
  load(best_isa());
  models::SequenceRunner runner(*model_, pool_, best_isa(), layers::KvType::kF32, 128);
  const float* logits = runner.append(reference_.prompt);
  for (size_t i = 0; i < reference_.greedy.size(); ++i) {
    const auto next =
        static_cast<int32_t>(std::max_element(logits, logits + model_->info().vocab_size) - logits);
    ASSERT_EQ(next, reference_.greedy[i]) << "token " << i;
    if (i + 1 < reference_.greedy.size()) logits = runner.append({&next, 1});
  }
}

TEST_P(Families, ABatchOfUnequalLengths) {
  load(best_isa());
  // Three sequences in one packed step; each has block tables of its own in every cache group.
  const auto layout = layers::make_cache_layout(model_->cache_specs(), 16, layers::KvType::kF32);
  const size_t groups = layout.groups.size();
  layers::KvCache cache(layout, std::vector<int64_t>(groups, 16));
  std::vector<std::vector<int32_t>> prompts = {reference_.others[0].first, reference_.prompt,
                                               reference_.others[1].first};
  std::vector<std::vector<std::vector<int32_t>>> tables;
  std::vector<std::vector<std::span<const int32_t>>> views(3);
  std::vector<int32_t> next_block(groups, 15);  // descending, so that no block lies where it would by chance
  for (size_t s = 0; s < 3; ++s) {
    tables.emplace_back();
    for (size_t g = 0; g < groups; ++g) {
      const bool recurrent = layout.groups[g].spec.kind == layers::CacheSpec::Kind::kRecurrent;
      const int blocks = recurrent ? 1 : static_cast<int>((prompts[s].size() + 15) / 16);
      std::vector<int32_t> table;
      for (int b = 0; b < blocks; ++b) table.push_back(next_block[g]--);
      if (recurrent) cache.zero_block(static_cast<int>(g), table[0]);
      tables.back().push_back(std::move(table));
    }
  }
  std::vector<int32_t> tokens, positions, wanted;
  std::vector<layers::BatchSequence> sequences;
  for (size_t s = 0; s < 3; ++s) {
    for (size_t g = 0; g < groups; ++g) views[s].push_back(tables[s][g]);
    const auto length = static_cast<int32_t>(prompts[s].size());
    sequences.push_back({static_cast<int32_t>(tokens.size()), length, length, views[s]});
    for (int32_t i = 0; i < length; ++i) {
      tokens.push_back(prompts[s][static_cast<size_t>(i)]);
      positions.push_back(i);
    }
    wanted.push_back(static_cast<int32_t>(tokens.size()) - 1);
  }
  Arena arena;
  const ops::Context context{pool_, kernels::table(best_isa()), arena};
  const auto vocab = static_cast<size_t>(model_->info().vocab_size);
  std::vector<float> logits(3 * vocab);
  model_->forward(context, {tokens, positions, sequences, wanted}, cache, {logits.data(), nullptr});
  EXPECT_LT(testing::largest_difference(logits.data(), reference_.others[0].second) / reference_.spread,
            1e-4);
  EXPECT_LT(testing::largest_difference(logits.data() + vocab, reference_.logits.back()) / reference_.spread,
            1e-4);
  EXPECT_LT(
      testing::largest_difference(logits.data() + 2 * vocab, reference_.others[1].second) / reference_.spread,
      1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::ValuesIn(testing::fixture_names("models/fixtures")),
                         testing::test_name);

}  // namespace
}  // namespace millrace
