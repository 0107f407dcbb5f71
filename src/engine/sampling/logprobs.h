// Log-probabilities of the model's own distribution, before any change by the chain.
#pragma once

#include <span>
#include <vector>

#include "core/cpu.h"
#include "engine/request.h"
#include "kernels/table.h"

namespace millrace::engine {

/// log(sum(exp(logits))), -infinity when nothing is finite.
double log_sum_exp(std::span<const float> logits, const kernels::Table& kernels = kernels::table(best_isa()));

/// The `count` likeliest, likeliest first (equal ones by id); fewer where fewer are finite.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t count, double log_sum,
                                       const kernels::Table& kernels = kernels::table(best_isa()));

}  // namespace millrace::engine
