// Every family as it is served: its tiny checkpoint (tests/models/fixtures) through the engine, with prompts
// cut into chunks, batched, found in the prefix cache, preempted both ways and forked. Greedy tokens are
// those of the reference and of the model run by itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/engine.h"
#include "engine/gate.h"
#include "loaders/checkpoint.h"
#include "models/sequence_runner.h"
#include "testing/testing.h"

namespace millrace::engine {
namespace {

using Tokens = std::vector<int32_t>;
using Kind = layers::CacheSpec::Kind;

struct Answers {
  std::vector<Tokens> choices;
  Usage usage;
};

Answers answers_of(const std::shared_ptr<Generation>& generation, size_t choices = 1) {
  Answers a;
  a.choices.resize(choices);
  Event e;
  while (generation->next(e, std::chrono::seconds(60))) {
    if (e.kind == Event::Kind::kToken) a.choices[static_cast<size_t>(e.choice)].push_back(e.token);
    if (e.kind == Event::Kind::kError) ADD_FAILURE() << e.error;
    if (e.kind == Event::Kind::kDone) a.usage = e.usage;
    if (e.kind == Event::Kind::kDone || e.kind == Event::Kind::kError) break;
  }
  return a;
}

Request greedy_request(const Tokens& prompt, int32_t tokens) {
  Request r;
  r.prompt = prompt;
  r.sampling.temperature = 0;
  r.generation.max_tokens = tokens;
  return r;
}

class EngineFamilies : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto folder = millrace::testing::fixture("models/fixtures") / GetParam();
    const auto json = nlohmann::json::parse(millrace::testing::read_file(folder / "reference.json"));
    prompt_ = json["prompt"].get<Tokens>();
    reference_ = json["greedy"].get<Tokens>();
    for (const auto& other : json["others"]) others_.push_back(other["prompt"].get<Tokens>());
    checkpoint_ = loaders::open_checkpoint(folder);
    model_ = models::load_model(checkpoint_, {}, own_pool_);
    layout_ = layers::make_cache_layout(model_->cache_specs(), 16, layers::KvType::kF32);
  }

  /// The model's own greedy tokens; they end before one that rounding could turn.
  Tokens alone(const Tokens& prompt, size_t count) {
    models::SequenceRunner runner(*model_, own_pool_, best_isa(), layers::KvType::kF32, 128);
    const int32_t vocab = model_->info().vocab_size;
    const float* logits = runner.append(prompt);
    Tokens tokens;
    while (tokens.size() < count) {
      std::vector<float> sorted(logits, logits + vocab);
      const auto next = static_cast<int32_t>(std::max_element(logits, logits + vocab) - logits);
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      if (sorted[0] - sorted[1] < 1e-3f * (sorted.front() - sorted.back())) break;
      tokens.push_back(next);
      if (tokens.size() < count) logits = runner.append({&next, 1});
    }
    return tokens;
  }

  void expect_same(Tokens got, const Tokens& expected, const std::string& what) {
    ASSERT_GE(got.size(), expected.size()) << what;
    got.resize(expected.size());
    EXPECT_EQ(got, expected) << what;
  }

  bool alone_in_length(size_t tokens) const {
    const models::ModelInfo& info = model_->info();
    return info.rope_by_length && tokens > static_cast<size_t>(info.rope_switch);
  }

  /// Memory for `sequences` of 112 tokens, of which only the growing part counts: windows and states come on
  /// top, the states as many as the engine takes of that much memory (half of it at most).
  uint64_t memory_for(double sequences) const {
    uint64_t growing = 0, state = 0;
    for (size_t g = 0; g < layout_.groups.size(); ++g) {
      const uint64_t one = static_cast<uint64_t>(layout_.block_bytes(static_cast<int>(g)));
      const Kind kind = layout_.groups[g].spec.kind;
      if (kind == Kind::kRecurrent)
        state += one;
      else
        growing +=
            static_cast<uint64_t>(static_cast<double>(one) * (kind == Kind::kWindow ? 7 : 7 * sequences));
    }
    uint64_t slots = 6;
    while (slots > 2 && slots * state > growing) --slots;
    return slots * state + growing;
  }

  std::unique_ptr<Engine> open(uint64_t memory, uint64_t swap_bytes, int32_t sequences = 4) {
    EngineOptions options;
    options.pool = pool_;
    options.kv_memory_bytes = memory;
    options.max_sequences = sequences;
    options.token_budget = 7;  // the engine raises it to a block and a token for everyone
    options.swap_bytes = swap_bytes;
    if (!model_->info().fixed_context) options.max_context = 128;
    return std::make_unique<Engine>(models::load_model(checkpoint_, {}, *pool_), options);
  }

  /// Prompts that begin alike and end differently, of 17 to 60 tokens.
  std::vector<Tokens> family_of_prompts() const {
    std::vector<Tokens> prompts;
    for (const size_t length : {17u, 33u, 40u, 52u, 60u}) {
      Tokens p;
      for (size_t i = 0; i < length; ++i)
        p.push_back(i < prompt_.size() && i + 9 < length
                        ? prompt_[i]
                        : static_cast<int32_t>(3 + (i * 7 + length * 5) % 90));
      prompts.push_back(p);
    }
    return prompts;
  }

  std::shared_ptr<ThreadPool> pool_ = std::make_shared<ThreadPool>(2);
  ThreadPool own_pool_{1};  // the engine's thread has pool_ to itself
  loaders::Checkpoint checkpoint_;
  std::unique_ptr<models::Model> model_;
  layers::CacheLayout layout_;
  Tokens prompt_, reference_;
  std::vector<Tokens> others_;
};

TEST_P(EngineFamilies, ChunkedBatchedAndFromThePrefixCache) {
  const auto engine = open(16 << 20, 0, 12);
  EXPECT_LT(engine->options().token_budget, static_cast<int32_t>(prompt_.size()));
  std::vector<Tokens> prompts = {others_[0], prompt_, others_[1]};
  for (const Tokens& p : family_of_prompts()) prompts.push_back(p);
  std::vector<std::shared_ptr<Generation>> sent;
  for (const Tokens& p : prompts) sent.push_back(engine->submit(greedy_request(p, 12)));
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Tokens expected = i == 1 ? reference_ : alone(prompts[i], 12);
    expect_same(answers_of(sent[i]).choices[0], expected, fmt::format("request {}", i));
  }
  // A prompt that goes on from one that was computed finds its blocks, and the state at their border.
  Tokens longer = prompt_;
  for (int32_t i = 0; i < 8; ++i) longer.push_back(5 + i);
  const Answers hit = answers_of(engine->submit(greedy_request(longer, 12)));
  // Keys whose rotation depends on the text's very length are of no use to another one.
  EXPECT_EQ(hit.usage.cached_tokens, alone_in_length(longer.size()) ? 0 : 32);
  expect_same(hit.choices[0], alone(longer, 12), "from the prefix cache");
}

TEST_P(EngineFamilies, CountsTheRowsOfEachExpert) {
  const auto engine = open(16 << 20, 0);
  const auto rows = [&](size_t layer) {
    const auto counts = engine->stats().expert_tokens[layer];
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  const auto before = engine->stats().expert_tokens;
  ASSERT_EQ(before.size(), static_cast<size_t>(model_->info().num_layers));
  answers_of(engine->submit(greedy_request(prompt_, 2)));
  // The prompt's rows and the first answer's, each to as many experts; in the last layer only those two whose
  // logits are wanted.
  uint64_t chosen = 0;
  for (size_t layer = 0; layer < before.size(); ++layer) {
    if (before[layer].empty()) continue;
    const uint64_t got =
        rows(layer) - std::accumulate(before[layer].begin(), before[layer].end(), uint64_t{0});
    const uint64_t computed = layer + 1 == before.size() ? 2 : prompt_.size() + 1;
    EXPECT_EQ(got % computed, 0u) << "layer " << layer;
    EXPECT_GT(got, 0u);
    if (chosen == 0) chosen = got / computed;
    EXPECT_EQ(got / computed, chosen) << "layer " << layer;
  }
  const bool experts = checkpoint_.metadata.has("num_experts_per_tok");
  EXPECT_EQ(chosen > 0, experts);
}

TEST_P(EngineFamilies, TwoAnswersFromOnePrompt) {
  const auto engine = open(16 << 20, 0);
  Request r = greedy_request(prompt_, static_cast<int32_t>(reference_.size()));
  r.generation.n = 2;
  const Answers a = answers_of(engine->submit(std::move(r)), 2);
  for (const Tokens& tokens : a.choices) EXPECT_EQ(tokens, reference_);
}

TEST_P(EngineFamilies, PreemptedByRecomputeAndBySwap) {
  const bool grows = std::any_of(layout_.groups.begin(), layout_.groups.end(), [](const auto& g) {
    return g.spec.kind == Kind::kFull || g.spec.kind == Kind::kLatent;
  });
  if (!grows) GTEST_SKIP() << "skipped: nothing that this model keeps grows, so nothing pushes it out";
  if (model_->info().rope_by_length)
    GTEST_SKIP() << "skipped: what is computed again rotates by the length reached, by definition";
  const std::vector<Tokens> prompts = family_of_prompts();
  std::vector<Tokens> expected;
  for (const Tokens& p : prompts) expected.push_back(alone(p, 45));
  for (const bool swap : {false, true}) {
    const auto engine = open(memory_for(2.4), swap ? 64 << 20 : 0);
    testing::Gate gate;
    std::vector<std::shared_ptr<Generation>> sent;
    for (const Tokens& p : prompts) {
      Request r = greedy_request(p, 45);
      if (sent.empty()) r.watcher = gate.watcher();
      sent.push_back(engine->submit(std::move(r)));
    }
    gate.open();
    for (size_t i = 0; i < prompts.size(); ++i)
      expect_same(answers_of(sent[i]).choices[0], expected[i],
                  fmt::format("request {}, {}", i, swap ? "swap" : "recompute"));
    const Stats stats = engine->stats();
    EXPECT_GT(stats.preemptions_recompute + stats.preemptions_swap, 0u);
    if (!swap) {
      EXPECT_EQ(stats.preemptions_swap, 0u);
    }
    if (swap) RecordProperty("swapped", static_cast<int>(stats.preemptions_swap));
  }
}

std::vector<std::string> all_families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(millrace::testing::fixture("models/fixtures")))
    if (std::filesystem::exists(entry.path() / "reference.json")) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EngineFamilies, ::testing::ValuesIn(all_families()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace millrace::engine
