#include "engine/sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::engine {

double log_sum_exp(std::span<const float> logits) {
  float top = -std::numeric_limits<float>::infinity();
  for (const float x : logits) top = x > top ? x : top;
  if (!std::isfinite(top)) return top;
  // Partial sums in floats over short runs, then in double: exact enough and as fast as floats.
  double sum = 0;
  constexpr size_t kRun = 1024;
  for (size_t begin = 0; begin < logits.size(); begin += kRun) {
    const size_t end = std::min(logits.size(), begin + kRun);
    float part = 0;
    for (size_t i = begin; i < end; ++i) part += std::exp(logits[i] - top);
    sum += part;
  }
  return top + std::log(sum);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t count, double log_sum) {
  std::vector<TokenLogprob> best;
  if (count <= 0) return best;
  const auto likelier = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
  };
  const auto wanted = static_cast<size_t>(count);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (best.size() == wanted && !(logits[i] > best.front().logprob)) continue;
    if (best.size() == wanted) {
      std::pop_heap(best.begin(), best.end(), likelier);
      best.pop_back();
    }
    best.push_back({static_cast<TokenId>(i), logits[i]});
    std::push_heap(best.begin(), best.end(), likelier);
  }
  std::sort_heap(best.begin(), best.end(), likelier);
  for (TokenLogprob& b : best) b.logprob = static_cast<float>(b.logprob - log_sum);
  return best;
}

}  // namespace millrace::engine
