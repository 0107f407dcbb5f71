// The engine over a model whose answers betray a wrong block: alone, mixed, preempted, shared and forked,
// everyone gets the tokens that the model gives without any cache.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "engine/fake_model.h"
#include "engine/gate.h"
#include "engine/sampling/logprobs.h"
#include "testing/testing.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;
using testing::FakeModel;
using testing::FakeOptions;

struct Answer {
  std::vector<std::vector<int32_t>> tokens;  // by choice
  std::vector<FinishReason> reasons;
  std::vector<std::vector<float>> logprobs;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  std::vector<float> embedding;
  std::vector<double> scores;
  Usage usage;
  Timing timing;
  int error = -1;
  std::string sentence;
};

Answer collect(const std::shared_ptr<Generation>& generation, int32_t n = 1) {
  Answer a;
  a.tokens.resize(static_cast<size_t>(n));
  a.logprobs.resize(static_cast<size_t>(n));
  a.reasons.resize(static_cast<size_t>(n));
  a.scores.resize(static_cast<size_t>(n));
  Event e;
  for (;;) {
    if (!generation->next(e, 20s)) {
      ADD_FAILURE() << "nothing came for 20 seconds";
      return a;
    }
    const auto c = static_cast<size_t>(e.choice);
    switch (e.kind) {
      case Event::Kind::kPrompt:
        a.prompt_logprobs = e.prompt_logprobs;
        break;
      case Event::Kind::kToken:
        a.tokens[c].push_back(e.token);
        a.logprobs[c].push_back(e.logprob);
        break;
      case Event::Kind::kFinish:
        a.reasons[c] = e.finish_reason;
        a.scores[c] = e.cumulative_logprob;
        break;
      case Event::Kind::kEmbedding:
        a.embedding = e.embedding;
        break;
      case Event::Kind::kDone:
        a.usage = e.usage;
        a.timing = e.timing;
        return a;
      case Event::Kind::kError:
        a.error = e.error_code;
        a.sentence = e.error;
        return a;
    }
  }
}

Request greedy(std::vector<int32_t> prompt, int32_t max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.generation.max_tokens = max_tokens;
  return r;
}

std::vector<int32_t> random_tokens(Random& random, int32_t count, int32_t vocab = 61) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint32_t>(vocab))));
  return tokens;
}

EngineOptions small(uint64_t kv_memory = 1 << 20) {
  EngineOptions o;
  o.threads = 2;
  o.kv_memory_bytes = kv_memory;
  o.max_sequences = 16;
  o.token_budget = 64;
  return o;
}

/// Waits for the engine to have nothing open and returns how many blocks are held.
int64_t blocks_held(const Engine& engine) {
  for (int i = 0; i < 2000; ++i) {
    const Stats s = engine.stats();
    if (s.running + s.waiting + s.swapped == 0) return s.blocks_used;
    std::this_thread::sleep_for(1ms);
  }
  return -1;
}

TEST(Engine, GreedyFollowsTheModel) {
  const FakeModel reference{FakeOptions{}};
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), small());
  const auto prompt = std::vector<int32_t>{1, 2, 3};
  const Answer a = collect(engine.submit(greedy(prompt, 100)));
  EXPECT_EQ(a.tokens[0], reference.reference_greedy(prompt, 100));
  EXPECT_EQ(a.reasons[0], FinishReason::kLength);
  EXPECT_EQ(a.usage.prompt_tokens, 3);
  EXPECT_EQ(a.usage.completion_tokens, 100);
  EXPECT_EQ(blocks_held(engine), 0);
}

struct MixedCase {
  const char* name;
  FakeOptions model;
  uint64_t kv_memory;
  uint64_t swap_bytes;
  Policy policy;
  bool prefix_cache;
};

class Mixed : public ::testing::TestWithParam<MixedCase> {};

TEST_P(Mixed, EveryRequestGetsTheTokensItGetsAlone) {
  const MixedCase& c = GetParam();
  Random random(millrace::testing::seed());
  const FakeModel reference{c.model};
  EngineOptions options = small(c.kv_memory);
  options.swap_bytes = c.swap_bytes;
  options.policy = c.policy;
  options.prefix_cache = c.prefix_cache;
  options.static_batch = 4;
  options.batch_wait_seconds = 0.001;
  Engine engine(std::make_unique<FakeModel>(c.model), options);

  const auto shared = random_tokens(random, 200);
  struct Sent {
    std::vector<int32_t> prompt;
    int32_t max_tokens, n;
    std::shared_ptr<Generation> generation;
    bool cancelled;
  };
  std::vector<Sent> sent;
  const int64_t count = std::max<int64_t>(20, millrace::testing::scaled(60));  // enough to meet in the cache
  for (int64_t i = 0; i < count; ++i) {
    Sent s;
    if (random.below(2) == 0) {
      s.prompt.assign(shared.begin(), shared.begin() + 1 + random.below(200));
      const auto own = random_tokens(random, static_cast<int32_t>(random.below(40)));
      s.prompt.insert(s.prompt.end(), own.begin(), own.end());
    } else {
      s.prompt = random_tokens(random, 1 + static_cast<int32_t>(random.below(120)));
    }
    s.max_tokens = 1 + static_cast<int32_t>(random.below(60));
    s.n = random.below(5) == 0 ? 1 + static_cast<int32_t>(random.below(4)) : 1;
    Request r = greedy(s.prompt, s.max_tokens);
    r.generation.n = s.n;
    r.priority = static_cast<int32_t>(random.below(3)) - 1;
    s.generation = engine.submit(std::move(r));
    s.cancelled = random.below(12) == 0;
    if (s.cancelled) s.generation->cancel();
    sent.push_back(std::move(s));
    if (random.below(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
  }
  for (Sent& s : sent) {
    const Answer a = collect(s.generation, s.n);
    if (s.cancelled && a.error >= 0) continue;
    ASSERT_EQ(a.error, -1) << a.sentence;
    const auto expected = reference.reference_greedy(s.prompt, s.max_tokens);
    for (int32_t i = 0; i < s.n; ++i) ASSERT_EQ(a.tokens[static_cast<size_t>(i)], expected);
  }
  EXPECT_EQ(blocks_held(engine), 0);
  // In the crowd a hit may be a matter of luck where there is hardly any memory; with nobody else it is not.
  for (int again = 0; again < 2; ++again) {
    const std::vector<int32_t> prompt(shared.begin(), shared.begin() + 100);
    EXPECT_EQ(collect(engine.submit(greedy(prompt, 3))).tokens[0], reference.reference_greedy(prompt, 3));
  }
  const Stats stats = engine.stats();
  if (c.prefix_cache)
    EXPECT_GT(stats.prefix_hit_tokens, 0u);
  else
    EXPECT_EQ(stats.prefix_hit_tokens, 0u);
}

// One block of the fake model's full layer takes 1 KiB, so 40 KiB hold 40 blocks: some three of the longest
// requests.
FakeOptions layers_of(bool full, int32_t window, bool state) {
  FakeOptions o;
  o.full = full;
  o.window = window;
  o.state = state;
  o.context_length = 512;
  o.kinds = true;
  return o;
}
INSTANTIATE_TEST_SUITE_P(
    Caches, Mixed,
    ::testing::Values(
        MixedCase{"roomy", layers_of(true, 0, false), 1 << 20, 0, Policy::kFcfs, true},
        MixedCase{"tight_recompute", layers_of(true, 0, false), 40 << 10, 0, Policy::kFcfs, true},
        MixedCase{"tight_swap", layers_of(true, 0, false), 40 << 10, 1 << 20, Policy::kFcfs, true},
        MixedCase{"tight_no_cache", layers_of(true, 0, false), 40 << 10, 1 << 20, Policy::kSjf, false},
        MixedCase{"tight_priority", layers_of(true, 0, false), 40 << 10, 1 << 16, Policy::kPriority, true},
        MixedCase{"tight_deadline", layers_of(true, 0, false), 40 << 10, 0, Policy::kDeadline, true},
        MixedCase{"tight_max_batch", layers_of(true, 0, false), 40 << 10, 0, Policy::kMaxBatch, true},
        MixedCase{"static", layers_of(true, 0, false), 1 << 20, 0, Policy::kStatic, true},
        MixedCase{"dynamic", layers_of(true, 0, false), 1 << 20, 0, Policy::kDynamic, true},
        MixedCase{"one_by_one", layers_of(true, 0, false), 1 << 20, 0, Policy::kOneByOne, true},
        MixedCase{"window", layers_of(true, 40, false), 200 << 10, 0, Policy::kFcfs, true},
        MixedCase{"window_tight", layers_of(true, 40, false), 80 << 10, 1 << 20, Policy::kPriority, true},
        MixedCase{"window_only", layers_of(false, 24, false), 1 << 20, 1 << 20, Policy::kFcfs, true},
        MixedCase{"state", layers_of(true, 0, true), 1 << 20, 0, Policy::kFcfs, true},
        MixedCase{"state_tight", layers_of(true, 0, true), 50 << 10, 1 << 20, Policy::kPriority, true},
        MixedCase{"state_only", layers_of(false, 0, true), 1 << 20, 0, Policy::kFcfs, true},
        MixedCase{"all_three", layers_of(true, 40, true), 100 << 10, 1 << 18, Policy::kFcfs, true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Engine, PreemptsBySwapAndByRecompute) {
  for (const bool swap : {false, true}) {
    const FakeOptions model = layers_of(true, 0, false);
    const FakeModel reference{model};
    EngineOptions options = small(24 << 10);
    options.prefix_cache = false;
    options.swap_bytes = swap ? 1 << 20 : 0;
    FakeOptions slow = model;
    slow.seconds_per_row = 20e-6;  // so that copying is cheaper than computing
    Engine engine(std::make_unique<FakeModel>(slow), options);
    std::vector<std::shared_ptr<Generation>> all;
    for (int32_t i = 0; i < 6; ++i) all.push_back(engine.submit(greedy({i, 1, 2}, 150)));
    for (int32_t i = 0; i < 6; ++i)
      EXPECT_EQ(collect(all[static_cast<size_t>(i)]).tokens[0], reference.reference_greedy({i, 1, 2}, 150));
    const Stats s = engine.stats();
    if (swap)
      EXPECT_GT(s.preemptions_swap, 0u);
    else
      EXPECT_GT(s.preemptions_recompute, 0u);
    EXPECT_EQ(s.swap_bytes_used, 0u);
    EXPECT_EQ(blocks_held(engine), 0);
  }
}

// Answers of one request rank alike, and each waited for the other's blocks.
TEST(Engine, AnswersOfOneRequestGiveWayToEachOther) {
  const FakeModel reference{layers_of(true, 0, false)};
  Engine engine(std::make_unique<FakeModel>(layers_of(true, 0, false)), small(24 << 10));
  Request r = greedy({1, 2, 3}, 200);
  r.generation.n = 4;
  const Answer a = collect(engine.submit(std::move(r)), 4);
  for (const auto& tokens : a.tokens) EXPECT_EQ(tokens, reference.reference_greedy({1, 2, 3}, 200));
  EXPECT_GT(a.timing.preemptions, 0);
  EXPECT_EQ(blocks_held(engine), 0);
}

TEST(Engine, SharesAPrefixThatIsBeingComputed) {
  FakeOptions slow;
  slow.seconds_per_step = 0.002;
  Engine engine(std::make_unique<FakeModel>(slow), small());
  Random random(millrace::testing::seed());
  const auto system = random_tokens(random, 256);
  std::vector<std::shared_ptr<Generation>> all;
  for (int32_t i = 0; i < 8; ++i) {
    auto prompt = system;
    prompt.push_back(i);
    all.push_back(engine.submit(greedy(prompt, 4)));
  }
  int32_t cached = 0;
  for (const auto& g : all) cached += collect(g).usage.cached_tokens;
  EXPECT_EQ(cached, 7 * 256);
}

TEST(Engine, SaltAndTenantKeepPrefixesApart) {
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), small());
  Random random(millrace::testing::seed());
  const auto prompt = random_tokens(random, 100);
  const auto cached = [&](const char* tenant, const char* salt) {
    Request r = greedy(prompt, 2);
    r.tenant = tenant;
    r.cache_salt = salt;
    return collect(engine.submit(std::move(r))).usage.cached_tokens;
  };
  EXPECT_EQ(cached("a", ""), 0);
  EXPECT_EQ(cached("a", ""), 96);
  EXPECT_EQ(cached("a", "s"), 0);
  EXPECT_EQ(cached("", "as"), 0);
  EXPECT_EQ(cached("b", ""), 0);
  EXPECT_EQ(cached("a", "s"), 96);
}

TEST(Engine, PinnedPrefixOutlivesOthers) {
  Engine engine(std::make_unique<FakeModel>(layers_of(true, 0, false)), small(64 << 10));
  Random random(millrace::testing::seed());
  const auto pinned = random_tokens(random, 128), loose = random_tokens(random, 128);
  const auto cached = [&](const std::vector<int32_t>& prompt, bool pin) {
    Request r = greedy(prompt, 2);
    r.pin_prefix = pin;
    return collect(engine.submit(std::move(r))).usage.cached_tokens;
  };
  cached(pinned, true);
  cached(loose, false);
  for (int i = 0; i < 20; ++i) cached(random_tokens(random, 200), false);
  EXPECT_EQ(cached(pinned, false), 112);
  EXPECT_EQ(cached(loose, false), 0);
}

TEST(Engine, ForksShareThePromptsBlocks) {
  FakeOptions slow;
  slow.seconds_per_step = 0.001;
  Engine engine(std::make_unique<FakeModel>(slow), small());
  Request r = greedy(std::vector<int32_t>(160, 7), 20);
  r.generation.n = 8;
  r.sampling.temperature = 1.0f;
  r.sampling.seed = 5;
  r.sampling.logprobs = 0;
  const auto g = engine.submit(std::move(r));
  int64_t most = 0;
  Event e;
  for (;;) {
    if (!g->next(e, 20ms)) continue;
    most = std::max(most, engine.stats().blocks_used);
    if (e.kind == Event::Kind::kDone) break;
    ASSERT_NE(e.kind, Event::Kind::kError) << e.error;
  }
  // Ten blocks of prompt once, and two of each answer's own.
  EXPECT_LE(most, 10 + 8 * 2);
  EXPECT_GE(most, 10 + 8);
}

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

TEST(Engine, CancelGivesTheBlocksBack) {
  FakeOptions slow;
  slow.seconds_per_step = 0.001;
  Engine engine(std::make_unique<FakeModel>(slow), small());
  const auto kept = engine.submit(greedy({1}, 200));
  std::vector<std::shared_ptr<Generation>> all;
  for (int i = 0; i < 10; ++i) all.push_back(engine.submit(greedy({2, i}, 2000)));
  Event e;
  ASSERT_TRUE(all[3]->next(e, 5s));
  EXPECT_TRUE(engine.cancel(all[3]->id()));
  for (size_t i = 0; i < all.size(); ++i)
    if (i % 2 == 0) all[i]->cancel();
  all[5].reset();  // a reader that goes away cancels, too
  all[7].reset();
  all[1]->cancel();
  all[9]->cancel();
  const Answer a = collect(all[4]);
  EXPECT_EQ(a.error, static_cast<int>(ErrorCode::kCancelled));
  EXPECT_EQ(collect(kept).tokens[0].size(), 200u);
  EXPECT_EQ(blocks_held(engine), 0);
  EXPECT_FALSE(engine.cancel(12345));
}

TEST(Engine, AReaderThatStopsIsPausedThenDropped) {
  EngineOptions options = small();
  options.max_queued_events = 16;
  options.stall_seconds = 0.2;
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), options);
  const auto stuck = engine.submit(greedy({1}, 2000));
  const auto slow = engine.submit(greedy({2}, 100));
  EXPECT_EQ(collect(engine.submit(greedy({3}, 300))).tokens[0].size(), 300u);
  EXPECT_EQ(collect(slow).tokens[0].size(), 100u);
  EXPECT_EQ(blocks_held(engine), 0);
  EXPECT_EQ(engine.stats().stalled_dropped, 1u);
  Event e;
  int tokens = 0;
  while (stuck->try_next(e) && e.kind != Event::Kind::kError) ++tokens;
  EXPECT_LE(tokens, 17);
  EXPECT_EQ(e.error_code, static_cast<int>(ErrorCode::kUnavailable));
}

TEST(Engine, DeadlinesThatCannotBeMetAreRefused) {
  FakeOptions slow;
  slow.seconds_per_row = 0.0005;
  Engine engine(std::make_unique<FakeModel>(slow), small());
  engine.warm_up();
  Request r = greedy(std::vector<int32_t>(1000, 3), 4);
  r.deadline_seconds = 0.05;
  const auto begin = std::chrono::steady_clock::now();
  const Answer a = collect(engine.submit(std::move(r)));
  EXPECT_EQ(a.error, static_cast<int>(ErrorCode::kDeadlineExceeded));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 40ms);

  r = greedy({3}, 4000);
  r.deadline_seconds = 0.2;
  const Answer late = collect(engine.submit(std::move(r)));
  EXPECT_EQ(late.reasons[0], FinishReason::kDeadline);
  EXPECT_GT(late.tokens[0].size(), 10u);
  EXPECT_EQ(blocks_held(engine), 0);
}

TEST(Engine, RefusesWhatCannotRun) {
  EngineOptions options = small();
  options.max_waiting = 4;
  FakeOptions slow;
  slow.seconds_per_step = 0.005;
  Engine engine(std::make_unique<FakeModel>(slow), options);
  const auto code_of = [&](Request r) {
    try {
      engine.submit(std::move(r));
    } catch (const Error& e) {
      return static_cast<int>(e.code());
    }
    return -1;
  };
  EXPECT_EQ(code_of(greedy({}, 1)), static_cast<int>(ErrorCode::kInvalidArgument));
  EXPECT_EQ(code_of(greedy({61}, 1)), static_cast<int>(ErrorCode::kInvalidArgument));
  EXPECT_EQ(code_of(greedy({-1}, 1)), static_cast<int>(ErrorCode::kInvalidArgument));
  EXPECT_EQ(code_of(greedy(std::vector<int32_t>(5000, 1), 1)), static_cast<int>(ErrorCode::kLimitExceeded));
  EXPECT_EQ(code_of(greedy({1}, 5000)), static_cast<int>(ErrorCode::kLimitExceeded));
  std::vector<std::shared_ptr<Generation>> all;
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    try {
      all.push_back(engine.submit(greedy({1, i}, 20)));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnavailable);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  for (const auto& g : all) EXPECT_EQ(collect(g).tokens[0].size(), 20u);
  EXPECT_TRUE(engine.drain(1));
  EXPECT_EQ(code_of(greedy({1}, 1)), static_cast<int>(ErrorCode::kUnavailable));
}

TEST(Engine, RefusesOptionsThatCannotWork) {
  for (const int32_t block : {-16, 0, 1, 8, 17, 24, 1040}) {
    EngineOptions options = small();
    options.block_size = block;
    try {
      Engine engine(std::make_unique<FakeModel>(FakeOptions{}), options);
      ADD_FAILURE() << "a block size of " << block << " was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find("multiple of 16"), std::string::npos) << e.what();
    }
  }
  for (const int32_t block : {16, 32, 48}) {
    EngineOptions options = small();
    options.block_size = block;
    Engine engine(std::make_unique<FakeModel>(FakeOptions{}), options);
    EXPECT_EQ(collect(engine.submit(greedy({1, 2}, 60))).tokens[0].size(), 60u);
  }
}

TEST(Engine, ShutsDownWithRequestsOpen) {
  FakeOptions slow;
  slow.seconds_per_step = 0.001;
  std::vector<std::shared_ptr<Generation>> all;
  {
    Engine engine(std::make_unique<FakeModel>(slow), small());
    for (int i = 0; i < 30; ++i) all.push_back(engine.submit(greedy({1, i}, 3000)));
    std::this_thread::sleep_for(20ms);
  }
  for (const auto& g : all) EXPECT_EQ(collect(g).error, static_cast<int>(ErrorCode::kCancelled));
}

TEST(Engine, GenerateCallsBackInOrder) {
  const FakeModel reference{FakeOptions{}};
  Engine engine(std::make_unique<FakeModel>(FakeOptions{}), small());
  std::vector<int32_t> tokens;
  const Event done = generate(engine, greedy({5}, 10), [&](const Event& e) {
    if (e.kind == Event::Kind::kToken) tokens.push_back(e.token);
    return true;
  });
  EXPECT_EQ(tokens, reference.reference_greedy({5}, 10));
  EXPECT_EQ(done.usage.completion_tokens, 10);
  int seen = 0;
  const Event cut = generate(engine, greedy({5}, 4000), [&](const Event&) { return ++seen < 5; });
  EXPECT_EQ(cut.kind, Event::Kind::kError);
}

}  // namespace
}  // namespace millrace::engine
