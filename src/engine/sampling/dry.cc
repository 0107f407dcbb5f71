// DRY ("don't repeat yourself"): a token that would make the end of the text repeat an earlier passage beyond
// the allowed length is made less likely by multiplier * base^(length - allowed).

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "engine/sampling/sampler.h"

namespace millrace::engine {
namespace {

class Dry : public LogitProcessor {
 public:
  explicit Dry(const SamplingParams& p)
      : multiplier_(p.dry_multiplier),
        base_(p.dry_base),
        allowed_(static_cast<size_t>(p.dry_allowed_length)),
        window_(p.dry_penalty_last_n < 0 ? std::numeric_limits<size_t>::max()
                                         : static_cast<size_t>(p.dry_penalty_last_n)),
        breakers_(p.dry_sequence_breakers) {}

  void apply(std::span<float> logits, std::span<const TokenId> tokens) override {
    const size_t n = std::min(tokens.size(), window_);
    if (n < 2) return;
    // The text backwards: a repeat of its end is then a common prefix, and the Z function gives all of them
    // in one pass.
    reversed_.assign(tokens.rbegin(), tokens.rbegin() + static_cast<ptrdiff_t>(n));
    const size_t reach = tokens_since_breaker();
    match_.assign(n, 0);
    longest_.clear();
    size_t left = 0, right = 0;
    for (size_t i = 1; i < n; ++i) {
      size_t length = i < right ? std::min(right - i, match_[i - left]) : 0;
      while (i + length < n && reversed_[length] == reversed_[i + length]) ++length;
      match_[i] = length;
      if (i + length > right) {
        left = i;
        right = i + length;
      }
      const size_t repeat = std::min(length, reach);
      // reversed_[i - 1] is the token that followed the earlier passage.
      if (repeat >= allowed_ && repeat > 0) {
        size_t& longest = longest_[reversed_[i - 1]];
        longest = std::max(longest, repeat);
      }
    }
    for (const auto& [token, length] : longest_) {
      if (static_cast<size_t>(token) >= logits.size()) continue;
      const double exponent = std::min(static_cast<double>(length - allowed_), 1000.0);
      const double penalty = std::min(multiplier_ * std::pow(static_cast<double>(base_), exponent), 1e9);
      logits[static_cast<size_t>(token)] -= static_cast<float>(penalty);
    }
  }

  std::unique_ptr<LogitProcessor> fork() const override { return std::make_unique<Dry>(*this); }

 private:
  /// Length of the text's end that holds no whole breaker.
  size_t tokens_since_breaker() const {
    size_t reach = reversed_.size();
    for (const auto& breaker : breakers_) {
      const size_t length = breaker.size();
      // A breaker ends at i (counted from the end of the text); nothing at or before its end may be part of a
      // repeat.
      for (size_t i = 0; i + length <= reversed_.size() && i < reach; ++i)
        if (std::equal(breaker.rbegin(), breaker.rend(), reversed_.begin() + static_cast<ptrdiff_t>(i)))
          reach = i;
    }
    return reach;
  }

  float multiplier_, base_;
  size_t allowed_, window_;
  std::vector<std::vector<TokenId>> breakers_;
  std::vector<TokenId> reversed_;
  std::vector<size_t> match_;
  std::unordered_map<TokenId, size_t> longest_;
};

}  // namespace

std::unique_ptr<LogitProcessor> make_dry(const SamplingParams& params) {
  return std::make_unique<Dry>(params);
}

}  // namespace millrace::engine
