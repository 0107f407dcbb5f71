#include "engine/sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::engine {
namespace {

constexpr float kNegligible = 24.0f;

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

float largest(std::span<const float> x) {
  // Sixteen running maxima, so that the loop becomes vector instructions.
  constexpr size_t kLanes = 16;
  float best[kLanes];
  std::fill_n(best, kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) best[l] = x[i + l] > best[l] ? x[i + l] : best[l];
  for (; i < x.size(); ++i) best[0] = std::max(best[0], x[i]);
  return *std::max_element(best, best + kLanes);
}

}  // namespace

void Candidates::collect(std::span<const float> logits, int32_t top_k, float temperature) {
  list_.clear();
  sorted_ = 0;
  has_probabilities_ = false;
  const float top = largest(logits);
  if (!std::isfinite(top)) return;
  const float inverse = 1.0f / temperature;
  float threshold = top - kNegligible * temperature;
  const auto k = top_k > 0 ? static_cast<size_t>(top_k) : logits.size();
  // With a small k the list is cut whenever it holds four times as many, and the threshold rises to what was
  // cut.
  const size_t room = k < logits.size() ? std::max<size_t>(4 * k, 64) : std::numeric_limits<size_t>::max();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] >= threshold)) continue;
    list_.push_back({static_cast<int32_t>(i), logits[i], 0.0f});
    if (list_.size() < room) continue;
    std::nth_element(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(k) - 1, list_.end(), likelier);
    list_.resize(k);
    threshold = list_[k - 1].logit;
  }
  if (list_.size() > k) {
    std::nth_element(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(k) - 1, list_.end(), likelier);
    list_.resize(k);
  }
  // Partial selection leaves an order that depends on the library; ids give one that does not.
  if (k < logits.size())
    std::sort(list_.begin(), list_.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  for (Candidate& c : list_) c.logit = (c.logit - top) * inverse;
}

void Candidates::normalise() {
  double sum = 0;
  if (has_probabilities_) {
    for (const Candidate& c : list_) sum += c.probability;
  } else {
    // collect() has put the likeliest at logit 0, and no sampler before the first call here removes it.
    for (Candidate& c : list_) {
      c.probability = std::exp(c.logit);
      sum += c.probability;
    }
    has_probabilities_ = true;
  }
  const auto scale = static_cast<float>(1.0 / sum);
  for (Candidate& c : list_) c.probability *= scale;
}

size_t Candidates::sort_until(double mass, size_t count) {
  double sum = 0;
  size_t counted = 0;
  size_t step = 64;
  for (;;) {
    for (; counted < sorted_; ++counted) {
      if (sum >= mass && counted >= count) return counted;
      sum += list_[counted].probability;
    }
    if (sorted_ == list_.size() || (sum >= mass && counted >= count)) return counted;
    const size_t end = std::min(list_.size(), sorted_ + step);
    std::partial_sort(list_.begin() + static_cast<ptrdiff_t>(sorted_),
                      list_.begin() + static_cast<ptrdiff_t>(end), list_.end(), likelier);
    sorted_ = end;
    step *= 8;
  }
}

void Candidates::drop_front(size_t n) {
  list_.erase(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(std::min(n, list_.size())));
  sorted_ = sorted_ > n ? sorted_ - n : 0;
}

size_t Candidates::draw(double u) const {
  double sum = 0;
  for (const Candidate& c : list_) sum += c.probability;
  double left = u * sum;
  for (size_t i = 0; i < list_.size(); ++i) {
    left -= list_[i].probability;
    if (left < 0) return i;
  }
  // Rounding may leave a rest; it belongs to the last that can be drawn at all.
  for (size_t i = list_.size(); i-- > 0;)
    if (list_[i].probability > 0) return i;
  return 0;
}

}  // namespace millrace::engine
