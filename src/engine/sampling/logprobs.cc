#include "engine/sampling/logprobs.h"

#include "ops/topk.h"

namespace millrace::engine {

double log_sum_exp(std::span<const float> logits, const kernels::Table& kernels) {
  return static_cast<double>(ops::log_sum_exp(kernels, logits));
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t count, double log_sum,
                                       const kernels::Table& kernels) {
  if (count <= 0) return {};
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::vector<float> values(ids.size());
  ops::TopKScratch scratch;
  const int32_t found = ops::top_k(kernels, logits, count, ids.data(), values.data(), scratch);
  std::vector<TokenLogprob> best;
  for (size_t i = 0; i < static_cast<size_t>(found); ++i)
    best.push_back({ids[i], static_cast<float>(static_cast<double>(values[i]) - log_sum)});
  return best;
}

}  // namespace millrace::engine
