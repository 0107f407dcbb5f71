// The whole way from a row of logits to a token, for one answer. The order, and nothing that is off is run:
//
//   1 log-probabilities are read, from the model's own distribution
//   2 mask: grammar, banned tokens (min_tokens), logit bias
//   3 repetition, presence, frequency penalties
//   4 DRY
//   5 temperature 0: the largest logit, the smaller id of two equal ones; done
//   6 temperature
//   7 top-k
//   8 top-p    9 min-p    10 typical    11 XTC      (mirostat stands for 7 to 11)
//  12 draw
//
// Random numbers come from the request's seed and the answer's number alone: what else is in the batch
// changes nothing.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampling/sampler.h"

namespace millrace::engine {

struct Picked {
  TokenId token = -1;  ///< -1: nothing can be picked (a mask without tokens, logits without numbers)
  float logprob = 0;   ///< when logprobs were asked for
  std::vector<TokenLogprob> top;
};

/// Memory of one worker, used for one answer after the other.
struct SampleScratch {
  Candidates candidates;
  std::vector<float> logits;
  std::vector<uint64_t> mask;
};

/// Removes tokens whose bit is 0 (those beyond the bits, too).
void apply_mask(const kernels::Table& kernels, std::span<float> logits, std::span<const uint64_t> bits);

class SamplerChain {
 public:
  /// `stream` tells the answers of one request apart.
  SamplerChain(const SamplingParams& params, uint64_t seed, uint64_t stream, int32_t vocab_size,
               std::span<const TokenId> prompt);
  SamplerChain(SamplerChain&&) = default;
  SamplerChain& operator=(SamplerChain&&) = default;

  /// Picks from `logits` (overwritten). `tokens`: all so far. `mask`: one bit a token, or empty. `banned`:
  /// tokens that must not come now.
  Picked sample(std::span<float> logits, std::span<const TokenId> tokens, std::span<const uint64_t> mask,
                std::span<const TokenId> banned, SampleScratch& scratch);

  /// The picked token is now the last of `tokens`.
  void accept(std::span<const TokenId> tokens);

  /// Steps 2 to 4 alone, for beam search.
  void process(std::span<float> logits, std::span<const TokenId> tokens, std::span<const uint64_t> mask,
               std::span<const TokenId> banned, const kernels::Table& kernels);

  /// A copy for another answer, with random numbers of its own.
  SamplerChain fork(uint64_t stream) const;

 private:
  SamplerChain() : random_(0) {}
  Picked pick(std::span<float> logits, SampleScratch& scratch);

  uint64_t seed_ = 0;
  float temperature_ = 1;
  int32_t top_k_ = 0;
  int32_t logprobs_ = -1;
  Candidates::Enough enough_;
  bool only_top_p_ = false;  ///< nothing else cuts the distribution
  std::vector<std::pair<TokenId, float>> logit_bias_;
  std::vector<std::unique_ptr<LogitProcessor>> processors_;
  std::vector<std::unique_ptr<CandidateFilter>> filters_;
  Random random_;
};

}  // namespace millrace::engine
