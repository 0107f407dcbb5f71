#include "engine/sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace millrace::engine {
namespace {

constexpr float kNegligible = 24.0f;
/// How near to the likeliest is looked first where a part of the mass is enough, in nats.
constexpr std::array<float, 2> kNear = {6.0f, 12.0f};
constexpr size_t kDrawBlock = 256;
/// Below this a temperature is as good as 0, and dividing by it is not safe.
constexpr float kCoolest = 1e-6f;
constexpr float kNothing = 1e-25f;

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// Eight running sums, so that the loop becomes vector instructions.
float sum_of(const float* x, size_t n) {
  float sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (size_t l = 0; l < 8; ++l) sums[l] += x[i + l];
  for (; i < n; ++i) sums[0] += x[i];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

size_t Candidates::collect_near(std::span<const float> logits, float top, float temperature, float distance) {
  const auto found =
      static_cast<size_t>(ops::collect_within(*kernels_, logits, distance * temperature, ids_, values_));
  for (size_t i = 0; i < found; ++i) values_[i] = (values_[i] - top) / temperature;
  return found;
}

double Candidates::weigh(size_t count) {
  weights_.resize(std::max(weights_.size(), count));
  return static_cast<double>(
      kernels_->exp_sum(weights_.data(), values_.data(), 0.0f, static_cast<int64_t>(count)));
}

void Candidates::collect(std::span<const float> logits, int32_t top_k, float temperature, Enough enough) {
  list_.clear();
  rest_ = 0;
  temperature = std::max(temperature, kCoolest);
  const auto n = static_cast<int64_t>(logits.size());
  const float top = kernels_->max(logits.data(), n);
  if (!std::isfinite(top)) return;
  size_t found = 0;
  if (top_k > 0 && top_k < n) {
    ids_.resize(std::max(ids_.size(), static_cast<size_t>(top_k)));
    values_.resize(ids_.size());
    found = static_cast<size_t>(ops::top_k(*kernels_, logits, top_k, ids_.data(), values_.data(), scratch_));
    for (size_t i = 0; i < found; ++i) values_[i] = (values_[i] - top) / temperature;
    weigh(found);
  } else {
    // A little more than the share: min-p itself decides at the border.
    const float furthest =
        enough.share > 0 ? std::min(kNegligible, 1e-3f - std::log(enough.share)) : kNegligible;
    double all = 0, mass = 0;
    if (enough.mass < 1) {
      all = static_cast<double>(kernels_->exp_sum_scaled(logits.data(), -top, 1.0f / temperature, n));
      for (const float near : kNear) {
        if (near >= furthest || mass >= enough.mass * all) break;
        found = collect_near(logits, top, temperature, near);
        mass = weigh(found);
      }
    }
    if (found == 0 || mass < enough.mass * all) {
      found = collect_near(logits, top, temperature, furthest);
      mass = weigh(found);
    }
    rest_ = std::max(0.0, all - mass);
  }
  list_.resize(found);
  for (size_t i = 0; i < found; ++i) list_[i] = {ids_[i], values_[i], weights_[i]};
  if (top_k > 0 && top_k < n)
    std::sort(list_.begin(), list_.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
}

int32_t Candidates::likeliest(std::span<const float> logits) const {
  const auto at = static_cast<size_t>(kernels_->argmax(logits.data(), static_cast<int64_t>(logits.size())));
  return std::isfinite(logits[at]) ? static_cast<int32_t>(at) : -1;
}

int32_t Candidates::draw_from(std::span<const float> logits, float temperature, double u) {
  temperature = std::max(temperature, kCoolest);
  const auto n = static_cast<int64_t>(logits.size());
  const float top = kernels_->max(logits.data(), n);
  if (!std::isfinite(top)) return -1;
  // Weights of all: most of a vocabulary is near enough to count, so that choosing first costs more than it
  // saves.
  weights_.resize(std::max(weights_.size(), logits.size()));
  if (temperature == 1) {
    kernels_->exp_sum(weights_.data(), logits.data(), -top, n);
  } else {
    values_.resize(std::max(values_.size(), logits.size()));
    for (size_t i = 0; i < logits.size(); ++i) values_[i] = (logits[i] - top) / temperature;
    kernels_->exp_sum(weights_.data(), values_.data(), 0.0f, n);
  }
  blocks_.clear();
  double sum = 0;
  for (size_t i = 0; i < logits.size(); i += kDrawBlock) {
    blocks_.push_back(
        static_cast<double>(sum_of(weights_.data() + i, std::min(kDrawBlock, logits.size() - i))));
    sum += blocks_.back();
  }
  double left = u * sum;
  size_t block = 0;
  while (block + 1 < blocks_.size() && left >= blocks_[block]) left -= blocks_[block++];
  const size_t end = std::min(logits.size(), (block + 1) * kDrawBlock);
  for (size_t i = block * kDrawBlock; i < end; ++i) {
    // Of what must never be drawn the kernel may make a little more than nothing.
    if (!(weights_[i] > kNothing)) continue;
    left -= static_cast<double>(weights_[i]);
    if (left < 0) return static_cast<int32_t>(i);
  }
  // Rounding may leave a rest; it belongs to the last that can be drawn at all.
  for (size_t i = end; i-- > 0;)
    if (weights_[i] > kNothing) return static_cast<int32_t>(i);
  return likeliest(logits);
}

void Candidates::normalise() {
  double sum = 0;
  for (const Candidate& c : list_) sum += static_cast<double>(c.probability);
  const auto scale = static_cast<float>(1.0 / sum);
  for (Candidate& c : list_) c.probability *= scale;
  rest_ = 0;
}

void Candidates::keep_mass(double mass) {
  double wanted = rest_;
  for (const Candidate& c : list_) wanted += static_cast<double>(c.probability);
  wanted *= mass;
  rest_ = 0;
  // The mass by how far below the likeliest it lies, in narrow steps; only the step at the border is sorted.
  constexpr size_t kSteps = 2048;
  constexpr float kPerNat = static_cast<float>(kSteps) / kNegligible;
  const auto step_of = [](const Candidate& c) {
    return static_cast<size_t>(std::min(-c.logit * kPerNat, static_cast<float>(kSteps - 1)));
  };
  std::array<double, kSteps> steps{};
  for (const Candidate& c : list_) steps[step_of(c)] += static_cast<double>(c.probability);
  size_t border = 0;
  while (border + 1 < kSteps && steps[border] < wanted) wanted -= steps[border++];
  border_.clear();
  for (const Candidate& c : list_)
    if (step_of(c) == border) border_.push_back(c);
  std::sort(border_.begin(), border_.end(), likelier);
  size_t kept = 0;
  while (kept < border_.size() && wanted > 0) wanted -= static_cast<double>(border_[kept++].probability);
  if (kept == 0) return;  // the list holds no more than that
  const Candidate last = border_[kept - 1];
  filter([&](const Candidate& c) {
    const size_t step = step_of(c);
    return step < border || (step == border && !likelier(last, c));
  });
}

void Candidates::sort_until(size_t count) {
  const auto middle = list_.begin() + static_cast<ptrdiff_t>(std::min(count, list_.size()));
  std::partial_sort(list_.begin(), middle, list_.end(), likelier);
}

void Candidates::drop_front(size_t n) {
  list_.erase(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(std::min(n, list_.size())));
}

size_t Candidates::draw(double u) const {
  double sum = 0;
  for (const Candidate& c : list_) sum += static_cast<double>(c.probability);
  double left = u * sum;
  for (size_t i = 0; i < list_.size(); ++i) {
    left -= static_cast<double>(list_[i].probability);
    if (left < 0) return i;
  }
  // Rounding may leave a rest; it belongs to the last that can be drawn at all.
  for (size_t i = list_.size(); i-- > 0;)
    if (list_[i].probability > 0) return i;
  return 0;
}

}  // namespace millrace::engine
