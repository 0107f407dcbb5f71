#include "engine/sampling/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/sampling/logprobs.h"

namespace millrace::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

void apply_mask(const kernels::Table& kernels, std::span<float> logits, std::span<const uint64_t> bits) {
  const size_t covered = std::min(logits.size(), bits.size() * 64);
  kernels.set_unmarked(logits.data(), bits.data(), kNever, static_cast<int64_t>(covered));
  std::fill(logits.begin() + static_cast<ptrdiff_t>(covered), logits.end(), kNever);
}

SamplerChain::SamplerChain(const SamplingParams& p, uint64_t seed, uint64_t stream, int32_t vocab_size,
                           std::span<const TokenId> prompt)
    : seed_(seed),
      temperature_(p.temperature),
      top_k_(std::max(p.top_k, 0)),
      logprobs_(p.logprobs),
      logit_bias_(p.logit_bias),
      random_(seed, stream) {
  const bool penalties =
      p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
  if (penalties && p.penalty_last_n != 0) processors_.push_back(make_penalties(p, prompt));
  if (p.dry_multiplier > 0 && p.dry_penalty_last_n != 0) processors_.push_back(make_dry(p));
  if (p.mirostat != 0) {
    top_k_ = 0;
    if (p.mirostat == 1) filters_.push_back(make_mirostat_1(p.mirostat_tau, p.mirostat_eta, vocab_size));
    if (p.mirostat == 2) filters_.push_back(make_mirostat_2(p.mirostat_tau, p.mirostat_eta));
    return;
  }
  if (p.top_p < 1) enough_.mass = static_cast<double>(p.top_p);
  enough_.share = p.min_p;
  if (p.top_p < 1) filters_.push_back(make_top_p(p.top_p));
  if (p.min_p > 0) filters_.push_back(make_min_p(p.min_p));
  if (p.typical_p < 1) filters_.push_back(make_typical(p.typical_p));
  if (p.xtc_probability > 0 && p.xtc_threshold <= 0.5f)
    filters_.push_back(make_xtc(p.xtc_probability, p.xtc_threshold));
  only_top_p_ = p.top_p < 1 && filters_.size() == 1 && top_k_ == 0;
}

void SamplerChain::process(std::span<float> logits, std::span<const TokenId> tokens,
                           std::span<const uint64_t> mask, std::span<const TokenId> banned,
                           const kernels::Table& kernels) {
  if (!mask.empty()) apply_mask(kernels, logits, mask);
  for (const TokenId t : banned)
    if (t >= 0 && static_cast<size_t>(t) < logits.size()) logits[static_cast<size_t>(t)] = kNever;
  for (const auto& [token, bias] : logit_bias_) {
    float& x = logits[static_cast<size_t>(token)];
    x = bias <= -100.0f ? kNever : x + bias;
  }
  for (const auto& processor : processors_) processor->apply(logits, tokens);
}

Picked SamplerChain::sample(std::span<float> logits, std::span<const TokenId> tokens,
                            std::span<const uint64_t> mask, std::span<const TokenId> banned,
                            SampleScratch& scratch) {
  const kernels::Table& kernels = scratch.candidates.kernels();
  if (logprobs_ < 0) {
    process(logits, tokens, mask, banned, kernels);
    return pick(logits, scratch);
  }
  const double log_sum = log_sum_exp(logits, kernels);
  std::vector<TokenLogprob> top = top_logprobs(logits, logprobs_, log_sum, kernels);
  scratch.logits.assign(logits.begin(), logits.end());
  process(logits, tokens, mask, banned, kernels);
  Picked picked = pick(logits, scratch);
  if (picked.token < 0) return picked;
  picked.logprob = static_cast<float>(scratch.logits[static_cast<size_t>(picked.token)] - log_sum);
  picked.top = std::move(top);
  return picked;
}

Picked SamplerChain::pick(std::span<float> logits, SampleScratch& scratch) {
  Candidates& candidates = scratch.candidates;
  Picked picked;
  if (temperature_ == 0) {
    picked.token = candidates.likeliest(logits);
    return picked;
  }
  if (filters_.empty() && top_k_ == 0) {
    picked.token = candidates.draw_from(logits, temperature_, random_.uniform_double());
    return picked;
  }
  if (only_top_p_) {
    // The random number is taken only by whoever draws.
    const Random before = random_;
    if (const auto drawn =
            candidates.draw_flat(logits, temperature_, enough_.mass, random_.uniform_double())) {
      picked.token = *drawn;
      return picked;
    }
    random_ = before;
  }
  candidates.collect(logits, top_k_, temperature_, enough_);
  if (candidates.empty()) return picked;
  for (const auto& filter : filters_) filter->apply(candidates, random_);
  candidates.normalise();
  const Candidate drawn = candidates[candidates.draw(random_.uniform_double())];
  for (const auto& filter : filters_) filter->drawn(drawn);
  picked.token = drawn.token;
  return picked;
}

void SamplerChain::accept(std::span<const TokenId> tokens) {
  for (const auto& processor : processors_) processor->accept(tokens);
}

SamplerChain SamplerChain::fork(uint64_t stream) const {
  SamplerChain copy;
  copy.seed_ = seed_;
  copy.temperature_ = temperature_;
  copy.top_k_ = top_k_;
  copy.logprobs_ = logprobs_;
  copy.enough_ = enough_;
  copy.only_top_p_ = only_top_p_;
  copy.logit_bias_ = logit_bias_;
  for (const auto& p : processors_) copy.processors_.push_back(p->fork());
  for (const auto& f : filters_) copy.filters_.push_back(f->fork());
  copy.random_ = Random(seed_, stream);
  return copy;
}

}  // namespace millrace::engine
