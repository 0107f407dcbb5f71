// The engine over a model whose answers betray a wrong block: alone, mixed, preempted, shared and forked,
// everyone gets the tokens that the model gives without any cache.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/arena.h"
#include "core/cpu.h"
#include "core/error.h"
#include "core/random.h"
#include "engine/engine_rig.h"
#include "engine/fake_model.h"
#include "testing/testing.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;
using namespace testing;

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

TEST(Engine, CacheMemoryIsThereBeforeItIsUsed) {
  FakeOptions model;
  model.window = 64;
  EngineOptions options = small();
  options.kv_memory_bytes = 256 << 20;
  options.max_sequences = 4096;
  const auto grown = [&](uint64_t ahead) {
    options.kv_ahead_bytes = ahead;
    Engine engine(std::make_unique<FakeModel>(model), options);
    EXPECT_GE(engine.options().kv_memory_bytes, uint64_t{128} << 20);
    const uint64_t before = resident_bytes();
    engine.warm_up();
    const auto bytes = static_cast<int64_t>(resident_bytes() - before);
    // One that is busy is left alone, and answers as ever.
    FakeModel reference(model);
    EXPECT_EQ(collect(engine.submit(greedy({1, 2, 3}, 50))).tokens[0],
              reference.reference_greedy({1, 2, 3}, 50));
    return bytes;
  };
  if (!AlignedBuffer(kHugePage).populate(0, kHugePage))
    GTEST_SKIP() << "this system has no MADV_POPULATE_WRITE";
  const int64_t none = grown(0), some = grown(64 << 20);
  EXPECT_LT(none, 32 << 20);
  EXPECT_GT(some, 56 << 20);
  EXPECT_LT(some, 96 << 20);
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
