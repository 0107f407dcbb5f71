// What the engine's tests share: requests, and answers gathered.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/random.h"
#include "engine/engine.h"
#include "engine/fake_model.h"

namespace millrace::engine::testing {

/// All that a request got, by choice where it has several.
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

inline Answer collect(const std::shared_ptr<Generation>& generation, int32_t n = 1) {
  Answer a;
  a.tokens.resize(static_cast<size_t>(n));
  a.logprobs.resize(static_cast<size_t>(n));
  a.reasons.resize(static_cast<size_t>(n));
  a.scores.resize(static_cast<size_t>(n));
  Event e;
  for (;;) {
    if (!generation->next(e, std::chrono::seconds(20))) {
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

inline Request greedy(std::vector<int32_t> prompt, int32_t max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.generation.max_tokens = max_tokens;
  return r;
}

inline std::vector<int32_t> random_tokens(Random& random, int32_t count, int32_t vocab = 61) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint32_t>(vocab))));
  return tokens;
}

inline EngineOptions small(uint64_t kv_memory = 1 << 20) {
  EngineOptions o;
  o.threads = 2;
  o.kv_memory_bytes = kv_memory;
  o.max_sequences = 16;
  o.token_budget = 64;
  return o;
}

/// Layers with a full cache or none, with a window or with a state.
inline FakeOptions layers_of(bool full, int32_t window, bool state) {
  FakeOptions o;
  o.full = full;
  o.window = window;
  o.state = state;
  o.context_length = 512;
  o.kinds = true;
  return o;
}

/// Waits for the engine to have nothing open and returns how many blocks are held.
inline int64_t blocks_held(const Engine& engine) {
  for (int i = 0; i < 2000; ++i) {
    const Stats s = engine.stats();
    if (s.running + s.waiting + s.swapped == 0) return s.blocks_used;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return -1;
}

}  // namespace millrace::engine::testing
