// Repetition, presence and frequency penalties. Counts are kept as tokens come and go, so that a step costs
// as much as there are different tokens in the window, however long the text.

#include <unordered_map>

#include "engine/sampling/sampler.h"

namespace millrace::engine {
namespace {

class Penalties : public LogitProcessor {
 public:
  Penalties(const SamplingParams& p, std::span<const TokenId> prompt)
      : repetition_(p.repetition_penalty),
        presence_(p.presence_penalty),
        frequency_(p.frequency_penalty),
        window_(p.penalty_last_n < 0 ? std::numeric_limits<size_t>::max()
                                     : static_cast<size_t>(p.penalty_last_n)),
        prompt_size_(prompt.size()) {
    const size_t first = prompt.size() > window_ ? prompt.size() - window_ : 0;
    for (size_t i = first; i < prompt.size(); ++i) ++counts_[prompt[i]].seen;
  }

  void apply(std::span<float> logits, std::span<const TokenId>) override {
    for (const auto& [token, count] : counts_) {
      if (static_cast<size_t>(token) >= logits.size()) continue;
      float& x = logits[static_cast<size_t>(token)];
      if (repetition_ != 1.0f) x = x > 0 ? x / repetition_ : x * repetition_;
      if (count.generated > 0) x -= presence_ + frequency_ * static_cast<float>(count.generated);
    }
  }

  void accept(std::span<const TokenId> tokens) override {
    if (window_ == 0) return;
    Count& added = counts_[tokens.back()];
    ++added.seen;
    ++added.generated;
    if (tokens.size() <= window_) return;
    const size_t gone = tokens.size() - window_ - 1;
    const auto it = counts_.find(tokens[gone]);
    if (it == counts_.end()) return;
    if (gone >= prompt_size_) --it->second.generated;
    if (--it->second.seen == 0) counts_.erase(it);
  }

  std::unique_ptr<LogitProcessor> fork() const override { return std::make_unique<Penalties>(*this); }

 private:
  struct Count {
    int32_t seen = 0, generated = 0;
  };
  float repetition_, presence_, frequency_;
  size_t window_, prompt_size_;
  std::unordered_map<TokenId, Count> counts_;
};

}  // namespace

std::unique_ptr<LogitProcessor> make_penalties(const SamplingParams& params,
                                               std::span<const TokenId> prompt) {
  return std::make_unique<Penalties>(params, prompt);
}

}  // namespace millrace::engine
