// A trained model through the engine: mixed, preempted and cache-shared requests give the greedy tokens they
// give alone.

#include <gtest/gtest.h>

#include "core/random.h"
#include "engine/engine.h"
#include "loaders/checkpoint.h"
#include "testing/testing.h"

namespace millrace::engine {
namespace {

std::vector<int32_t> tokens_of(const std::shared_ptr<Generation>& generation) {
  std::vector<int32_t> tokens;
  Event e;
  while (generation->next(e, std::chrono::seconds(30))) {
    if (e.kind == Event::Kind::kToken) tokens.push_back(e.token);
    if (e.kind == Event::Kind::kError) ADD_FAILURE() << e.error;
    if (e.kind == Event::Kind::kDone || e.kind == Event::Kind::kError) break;
  }
  return tokens;
}

std::unique_ptr<Engine> open_engine(const std::filesystem::path& path, uint64_t kv_memory) {
  EngineOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  options.kv_memory_bytes = kv_memory;
  options.max_sequences = 12;
  options.token_budget = 48;
  const auto checkpoint = loaders::open_checkpoint(path);
  auto model = models::load_model(checkpoint, {}, *options.pool);
  return std::make_unique<Engine>(std::move(model), options);
}

TEST(RealModel, MixedRequestsGetTheTokensTheyGetAlone) {
  MILLRACE_NEED_SHARED(path, "models/stories260K.gguf");
  Random random(millrace::testing::seed());
  std::vector<int32_t> shared;
  for (int i = 0; i < 60; ++i) shared.push_back(static_cast<int32_t>(3 + random.below(500)));
  const auto make = [](const std::vector<int32_t>& prompt) {
    Request r;
    r.prompt = prompt;
    r.sampling.temperature = 0;
    r.generation.max_tokens = 40;
    return r;
  };
  std::vector<std::vector<int32_t>> prompts, alone;
  for (uint32_t i = 0; i < 24; ++i) {
    prompts.emplace_back(shared.begin(), shared.begin() + static_cast<ptrdiff_t>(1 + random.below(60)));
    prompts.back().push_back(static_cast<int32_t>(3 + random.below(500)));
  }
  const auto roomy = open_engine(path, 16 << 20);
  for (const auto& p : prompts) {
    Request r = make(p);
    r.use_prefix_cache = false;
    alone.push_back(tokens_of(roomy->submit(std::move(r))));
  }
  // A cache for some four of the longest: they push each other out, and find each other's prefixes.
  const auto one_context = roomy->options().kv_memory_bytes * 128 / (16 << 20);
  const auto tight = open_engine(path, std::max<uint64_t>(one_context, 700 << 10));
  std::vector<std::shared_ptr<Generation>> sent;
  for (const auto& p : prompts) sent.push_back(tight->submit(make(p)));
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(tokens_of(sent[i]), alone[i]) << "request " << i;
  EXPECT_GT(tight->stats().prefix_hit_tokens, 0u);
}

}  // namespace
}  // namespace millrace::engine
