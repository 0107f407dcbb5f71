// Log-probabilities of the model's own distribution, before any change by the chain.
#pragma once

#include <span>
#include <vector>

#include "engine/request.h"

namespace millrace::engine {

/// log(sum(exp(logits))), -infinity when nothing is finite.
double log_sum_exp(std::span<const float> logits);

/// The `count` likeliest, likeliest first (equal ones by id), by a heap of that size over one pass.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t count, double log_sum);

}  // namespace millrace::engine
