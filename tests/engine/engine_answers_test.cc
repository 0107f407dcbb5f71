// What an answer is made of: sampling, the best of several, log probabilities, stops, constraints, beams and
// embeddings, over the model whose answers betray a wrong block.

#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"
#include "engine/engine_rig.h"
#include "engine/fake_model.h"
#include "engine/gate.h"
#include "engine/sampling/logprobs.h"
#include "testing/testing.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;
using namespace testing;

TEST(Engine, SeededSamplingDoesNotDependOnTheBatch) {
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), small());
  const auto make = [](uint64_t seed) {
    Request r = greedy({9, 8, 7}, 30);
    r.sampling.temperature = 0.9f;
    r.sampling.top_p = 0.9f;
    r.sampling.seed = seed;
    r.generation.n = 3;
    return r;
  };
  const Answer alone = collect(engine.submit(make(11)), 3);
  std::vector<std::shared_ptr<Generation>> others;
  for (uint64_t i = 0; i < 10; ++i) others.push_back(engine.submit(make(100 + i)));
  const Answer mixed = collect(engine.submit(make(11)), 3);
  EXPECT_EQ(alone.tokens, mixed.tokens);
  EXPECT_NE(alone.tokens[0], alone.tokens[1]);
  for (const auto& o : others) collect(o, 3);
}

TEST(Engine, BestOfGivesTheLikeliest) {
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), small());
  Request r = greedy({4, 4}, 12);
  r.sampling.temperature = 1.5f;
  r.sampling.seed = 3;
  r.generation.n = 6;
  Request all = greedy({4, 4}, 12);
  all.sampling = r.sampling;
  all.sampling.logprobs = 0;
  all.generation.n = 6;
  const Answer every = collect(engine.submit(std::move(all)), 6);
  Request best = greedy({4, 4}, 12);
  best.sampling = r.sampling;
  best.generation.n = 2;
  best.generation.best_of = 6;
  const Answer two = collect(engine.submit(std::move(best)), 2);
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < 6; ++i) order.emplace_back(-every.scores[i], i);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(two.tokens[0], every.tokens[order[0].second]);
  EXPECT_EQ(two.tokens[1], every.tokens[order[1].second]);
  EXPECT_EQ(two.usage.completion_tokens, 6 * 12);
}

TEST(Engine, LogprobsAreTheModelsOwn) {
  const FakeModel reference{FakeOptions{}};
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), small());
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9};
  Request r = greedy(prompt, 3);
  r.sampling.logprobs = 2;
  r.sampling.prompt_logprobs = 1;
  r.sampling.presence_penalty = 1.0f;
  const Answer a = collect(engine.submit(std::move(r)));
  ASSERT_EQ(a.prompt_logprobs.size(), prompt.size());
  EXPECT_TRUE(a.prompt_logprobs[0].empty());
  for (size_t i = 1; i < prompt.size(); ++i) {
    const auto logits = reference.reference_logits(std::span(prompt).first(i));
    ASSERT_GE(a.prompt_logprobs[i].size(), 2u);
    EXPECT_EQ(a.prompt_logprobs[i][0].token, prompt[i]);
    EXPECT_NEAR(a.prompt_logprobs[i][0].logprob, logits[static_cast<size_t>(prompt[i])] - log_sum_exp(logits),
                1e-5);
  }
  auto tokens = prompt;
  for (size_t i = 0; i < a.tokens[0].size(); ++i) {
    const auto logits = reference.reference_logits(tokens);
    EXPECT_NEAR(a.logprobs[0][i], logits[static_cast<size_t>(a.tokens[0][i])] - log_sum_exp(logits), 1e-5);
    tokens.push_back(a.tokens[0][i]);
  }
}

TEST(Engine, StopTokensWatchersAndMinTokens) {
  const FakeModel reference{FakeOptions{}};
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), small());
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto tokens = reference.reference_greedy(prompt, 50);
  const int32_t stop = tokens[10];
  const auto first = std::find(tokens.begin(), tokens.end(), stop) - tokens.begin();
  Request r = greedy(prompt, 50);
  r.generation.end_tokens = {stop};
  Answer a = collect(engine.submit(std::move(r)));
  EXPECT_EQ(a.reasons[0], FinishReason::kStop);
  EXPECT_EQ(static_cast<ptrdiff_t>(a.tokens[0].size()), first + 1);

  r = greedy(prompt, 50);
  r.generation.end_tokens = {stop};
  r.generation.ignore_eos = true;
  EXPECT_EQ(collect(engine.submit(std::move(r))).tokens[0], tokens);

  r = greedy(prompt, 50);
  r.generation.end_tokens = {stop};
  r.generation.min_tokens = 20;
  a = collect(engine.submit(std::move(r)));
  EXPECT_GE(a.tokens[0].size(), 20u);
  EXPECT_EQ(std::find(a.tokens[0].begin(), a.tokens[0].begin() + 20, stop), a.tokens[0].begin() + 20);

  struct AfterSeven : TokenWatcher {
    int seen = 0;
    bool push(TokenId) override { return ++seen == 7; }
    std::unique_ptr<TokenWatcher> fork() const override { return std::make_unique<AfterSeven>(*this); }
  };
  r = greedy(prompt, 50);
  r.watcher = std::make_unique<AfterSeven>();
  r.generation.n = 2;
  a = collect(engine.submit(std::move(r)), 2);
  EXPECT_EQ(a.tokens[0].size(), 7u);
  EXPECT_EQ(a.tokens[1].size(), 7u);
  EXPECT_EQ(a.reasons[1], FinishReason::kStop);
}

class Constraints : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(MasksBesideTheStep, Constraints, ::testing::Bool());

TEST_P(Constraints, DecideWhatMayCome) {
  // Even tokens only, twelve of them.
  struct Even : TokenConstraint {
    int left = 12;
    void fill_mask(std::span<uint64_t> bits) override {
      std::fill(bits.begin(), bits.end(), 0x5555555555555555u);
    }
    bool accept(TokenId t) override {
      --left;
      return t % 2 == 0;
    }
    bool finished() const override { return left == 0; }
    std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Even>(*this); }
  };
  EngineOptions options = small();
  options.masks_beside_step = GetParam();
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), options);
  Request r = greedy({3}, 50);
  r.constraint = std::make_unique<Even>();
  r.sampling.temperature = 1;
  const Answer a = collect(engine.submit(std::move(r)));
  ASSERT_EQ(a.error, -1) << a.sentence;
  EXPECT_EQ(a.tokens[0].size(), 12u);
  EXPECT_EQ(a.reasons[0], FinishReason::kStop);
  for (const int32_t t : a.tokens[0]) EXPECT_EQ(t % 2, 0);

  struct Nothing : Even {
    void fill_mask(std::span<uint64_t>) override {}
    std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Nothing>(*this); }
  };
  r = greedy({3}, 50);
  r.constraint = std::make_unique<Nothing>();
  EXPECT_EQ(collect(engine.submit(std::move(r))).error, static_cast<int>(ErrorCode::kInternal));
  EXPECT_EQ(blocks_held(engine), 0);
}

// A free even token, then 1, 3 and 5, and so on: forced tokens change nothing but the number of steps.
TEST(Engine, ForcedTokensAreComputedTogether) {
  struct Pattern : TokenConstraint {
    explicit Pattern(bool j) : jumps(j) {}
    bool jumps;
    int at = 0;
    void fill_mask(std::span<uint64_t> bits) override {
      if (at % 4 == 0)
        std::fill(bits.begin(), bits.end(), 0x5555555555555555u);
      else
        bits[0] = uint64_t{1} << (2 * (at % 4) - 1);
    }
    bool accept(TokenId t) override {
      const bool good = at % 4 == 0 ? t % 2 == 0 : t == 2 * (at % 4) - 1;
      ++at;
      return good;
    }
    bool finished() const override { return false; }
    std::vector<TokenId> forced(size_t most) override {
      std::vector<TokenId> tokens;
      for (int a = at; jumps && a % 4 != 0 && tokens.size() < most; ++a) tokens.push_back(2 * (a % 4) - 1);
      return tokens;
    }
    std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Pattern>(*this); }
  };
  for (const bool tight : {false, true}) {
    std::vector<std::vector<int32_t>> answers[2];
    uint64_t steps[2];
    for (const bool jumps : {false, true}) {
      EngineOptions options = small(tight ? 60 << 10 : 1 << 20);
      options.masks_beside_step = jumps;
      options.mixed_step_factor = 0;  // what a step of a few microseconds takes is noise
      Engine engine(std::make_unique<FakeModel>(layers_of(true, 30, true)), options);
      testing::Gate gate;
      std::vector<std::shared_ptr<Generation>> sent;
      for (int32_t i = 0; i < 8; ++i) {
        Request r = greedy({i, 2}, 90 + i);
        if (i == 0) r.watcher = gate.watcher();
        r.constraint = std::make_unique<Pattern>(jumps);
        r.generation.n = 1 + i % 2;
        sent.push_back(engine.submit(std::move(r)));
      }
      gate.open();
      for (int32_t i = 0; i < 8; ++i) {
        const Answer a = collect(sent[static_cast<size_t>(i)], 2);
        ASSERT_EQ(a.error, -1) << a.sentence;
        EXPECT_EQ(static_cast<int32_t>(a.tokens[0].size()), 90 + i);
        for (const auto& tokens : a.tokens) answers[jumps].push_back(tokens);
      }
      const Stats stats = engine.stats();
      steps[jumps] = stats.steps;
      EXPECT_EQ(stats.jumped_tokens > 0, jumps);
      EXPECT_EQ(blocks_held(engine), 0);
    }
    EXPECT_EQ(answers[0], answers[1]);
    if (!tight) {
      EXPECT_LT(steps[1] * 3, steps[0]);
    }
  }

  // A constraint that contradicts itself ends its request and no other.
  struct Liar : Pattern {
    Liar() : Pattern(true) {}
    std::vector<TokenId> forced(size_t) override { return {60000}; }
    std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Liar>(*this); }
  };
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), small());
  const auto other = engine.submit(greedy({1}, 100));
  Request r = greedy({1}, 100);
  r.constraint = std::make_unique<Liar>();
  EXPECT_EQ(collect(engine.submit(std::move(r))).error, static_cast<int>(ErrorCode::kInternal));
  EXPECT_EQ(collect(other).tokens[0].size(), 100u);
  EXPECT_EQ(blocks_held(engine), 0);
}

/// Beam search written plainly over the reference: no cache, no forks.
std::vector<std::pair<double, std::vector<int32_t>>> reference_beams(const FakeModel& model,
                                                                     const std::vector<int32_t>& prompt,
                                                                     int32_t max_tokens, size_t width,
                                                                     double penalty, int32_t end) {
  struct Beam {
    std::vector<int32_t> tokens;
    double total;
  };
  std::vector<Beam> beams = {{{}, 0.0}};
  std::vector<std::pair<double, std::vector<int32_t>>> done;
  const auto score = [&](double total, size_t length) {
    return total / std::pow(static_cast<double>(length), penalty);
  };
  while (!beams.empty()) {
    std::vector<Beam> next;
    for (const Beam& b : beams) {
      auto all = prompt;
      all.insert(all.end(), b.tokens.begin(), b.tokens.end());
      const auto logits = model.reference_logits(all, static_cast<int32_t>(prompt.size()));
      const double sum = log_sum_exp(logits);
      for (size_t v = 0; v < logits.size(); ++v) {
        Beam longer = b;
        longer.tokens.push_back(static_cast<int32_t>(v));
        longer.total += static_cast<double>(static_cast<float>(logits[v] - sum));
        next.push_back(std::move(longer));
      }
    }
    std::stable_sort(next.begin(), next.end(),
                     [](const Beam& a, const Beam& b) { return a.total > b.total; });
    next.resize(2 * width);
    beams.clear();
    for (size_t i = 0; i < next.size() && beams.size() < width; ++i) {
      const bool full = static_cast<int32_t>(next[i].tokens.size()) >= max_tokens;
      if (next[i].tokens.back() == end || full) {
        if (i < width || (full && next[i].tokens.back() != end))
          done.emplace_back(score(next[i].total, next[i].tokens.size()), next[i].tokens);
      } else {
        beams.push_back(next[i]);
      }
    }
    std::stable_sort(done.begin(), done.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    if (done.size() > width) done.resize(width);
    if (done.size() >= width && !beams.empty() &&
        score(beams[0].total, beams[0].tokens.size()) <= done.back().first)
      break;
  }
  return done;
}

TEST(Engine, BeamSearchMatchesThePlainOne) {
  Random random(millrace::testing::seed());
  for (int round = 0; round < 12; ++round) {
    FakeOptions model = layers_of(true, round % 3 == 1 ? 20 : 0, round % 3 == 2);
    const FakeModel reference{model};
    Engine engine(std::make_unique<FakeModel>(model), small(round % 2 == 0 ? 1 << 20 : 60 << 10));
    const auto prompt = random_tokens(random, 1 + static_cast<int32_t>(random.below(40)));
    const size_t width = 2 + random.below(6);
    Request r = greedy(prompt, 25);
    r.generation.beam_width = static_cast<int32_t>(width);
    r.generation.n = static_cast<int32_t>(width);
    r.generation.length_penalty = 0.8f;
    r.generation.end_tokens = {13};
    const auto other = engine.submit(greedy(random_tokens(random, 50), 60));  // company
    const Answer a = collect(engine.submit(std::move(r)), static_cast<int32_t>(width));
    ASSERT_EQ(a.error, -1) << a.sentence;
    const auto expected = reference_beams(reference, prompt, 25, width, static_cast<double>(0.8f), 13);
    ASSERT_EQ(expected.size(), width);
    for (size_t i = 0; i < width; ++i) EXPECT_EQ(a.tokens[i], expected[i].second) << "beam " << i;
    collect(other);
    EXPECT_EQ(blocks_held(engine), 0);
  }
}

TEST(Engine, EmbeddingsAreUnitVectorsWhateverTheChunks) {
  FakeOptions model;
  EngineOptions options = small();
  Engine engine(std::make_unique<FakeModel>(model), options);
  options.token_budget = 1000;
  Engine whole(std::make_unique<FakeModel>(model), options);
  Random random(millrace::testing::seed());
  const auto prompt = random_tokens(random, 300);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kFirst}) {
    const auto embed = [&](Engine& e) {
      Request r;
      r.task = Task::kEmbed;
      r.prompt = prompt;
      r.pooling = pooling;
      return collect(e.submit(std::move(r))).embedding;
    };
    const auto a = embed(engine), b = embed(whole);
    ASSERT_EQ(a.size(), static_cast<size_t>(FakeModel::kHidden));
    double square = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i], b[i], 1e-6);
      square += static_cast<double>(a[i]) * a[i];
    }
    EXPECT_NEAR(square, 1.0, 1e-5);
  }
}

}  // namespace
}  // namespace millrace::engine
