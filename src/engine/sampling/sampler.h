// The two kinds of parts a chain is made of. A part exists only when its parameter asks for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/random.h"
#include "engine/request.h"
#include "engine/sampling/candidates.h"

namespace millrace::engine {

/// Changes logits before candidates are chosen. `tokens` are all so far, the prompt's first.
class LogitProcessor {
 public:
  virtual ~LogitProcessor() = default;
  virtual void apply(std::span<float> logits, std::span<const TokenId> tokens) = 0;
  /// `tokens` now ends with one more.
  virtual void accept(std::span<const TokenId> tokens) {}
  virtual std::unique_ptr<LogitProcessor> fork() const = 0;
};

/// Cuts the list of candidates; leaves at least one.
class CandidateFilter {
 public:
  virtual ~CandidateFilter() = default;
  virtual void apply(Candidates& candidates, Random& random) = 0;
  /// What was drawn from the list that apply() left.
  virtual void drawn(const Candidate& candidate) {}
  virtual std::unique_ptr<CandidateFilter> fork() const = 0;
};

// Logit processors, in the order of the chain.
std::unique_ptr<LogitProcessor> make_penalties(const SamplingParams& params, std::span<const TokenId> prompt);
std::unique_ptr<LogitProcessor> make_dry(const SamplingParams& params);

// Candidate filters.
std::unique_ptr<CandidateFilter> make_top_p(float p);
std::unique_ptr<CandidateFilter> make_min_p(float p);
std::unique_ptr<CandidateFilter> make_typical(float p);
std::unique_ptr<CandidateFilter> make_xtc(float probability, float threshold);
std::unique_ptr<CandidateFilter> make_mirostat_1(float tau, float eta, int32_t vocab_size);
std::unique_ptr<CandidateFilter> make_mirostat_2(float tau, float eta);

}  // namespace millrace::engine
