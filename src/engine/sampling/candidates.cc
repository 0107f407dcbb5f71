#include "engine/sampling/candidates.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace millrace::engine {
namespace {

constexpr float kNegligible = 24.0f;
/// How near to the likeliest is looked first where a part of the mass is enough, in nats.
constexpr std::array<float, 2> kNear = {6.0f, 12.0f};
constexpr size_t kDrawBlock = 256;
/// A distribution is flat where all of it weighs this many times as much as the likeliest.
constexpr float kFlat = 8.0f;
/// Weights are binned by their highest bits: 128 bins for a factor of two, down to the negligible.
constexpr int kBinShift = 16;
constexpr uint32_t kOneBits = 0x3f800000;
constexpr size_t kBins = 35 * 128;
/// Below this a temperature is as good as 0, and dividing by it is not safe.
constexpr float kCoolest = 1e-6f;
constexpr float kNothing = 1e-25f;

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// The sum of what is at least `least`. Eight running sums, so that the loop becomes vector instructions.
float sum_of(const float* x, size_t n, float least) {
  float sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (size_t l = 0; l < 8; ++l) sums[l] += x[i + l] >= least ? x[i + l] : 0.0f;
  for (; i < n; ++i) sums[0] += x[i] >= least ? x[i] : 0.0f;
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

/// Puts the likeliest that together hold `wanted` in front, the least likely of them last, and returns how
/// many they are. Halves without sorting as long as there are many.
size_t likeliest_in_front(std::vector<Candidate>& all, double wanted) {
  constexpr size_t kFew = 512;
  size_t begin = 0, end = all.size();
  const auto at = [&](size_t i) { return all.begin() + static_cast<ptrdiff_t>(i); };
  while (end - begin > kFew) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(at(begin), at(middle), at(end), likelier);
    double upper = 0;
    for (size_t i = begin; i < middle; ++i) upper += static_cast<double>(all[i].probability);
    if (upper >= wanted) {
      end = middle;
    } else {
      wanted -= upper;
      begin = middle;
    }
  }
  std::sort(at(begin), at(end), likelier);
  size_t kept = begin;
  while (kept < end && wanted > 0) wanted -= static_cast<double>(all[kept++].probability);
  return kept;
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
  weigh_all(logits, top, temperature);
  const int32_t drawn = draw_weight(logits.size(), kNothing, u);
  return drawn >= 0 ? drawn : likeliest(logits);
}

void Candidates::weigh_all(std::span<const float> logits, float top, float temperature) {
  const auto n = static_cast<int64_t>(logits.size());
  weights_.resize(std::max(weights_.size(), logits.size()));
  if (temperature == 1) {
    kernels_->exp_sum(weights_.data(), logits.data(), -top, n);
  } else {
    values_.resize(std::max(values_.size(), logits.size()));
    for (size_t i = 0; i < logits.size(); ++i) values_[i] = (logits[i] - top) / temperature;
    kernels_->exp_sum(weights_.data(), values_.data(), 0.0f, n);
  }
}

int32_t Candidates::draw_weight(size_t n, float least, double u) {
  blocks_.clear();
  double sum = 0;
  for (size_t i = 0; i < n; i += kDrawBlock) {
    blocks_.push_back(static_cast<double>(sum_of(weights_.data() + i, std::min(kDrawBlock, n - i), least)));
    sum += blocks_.back();
  }
  double left = u * sum;
  size_t block = 0;
  while (block + 1 < blocks_.size() && left >= blocks_[block]) left -= blocks_[block++];
  const size_t end = std::min(n, (block + 1) * kDrawBlock);
  for (size_t i = block * kDrawBlock; i < end; ++i) {
    if (!(weights_[i] >= least)) continue;
    left -= static_cast<double>(weights_[i]);
    if (left < 0) return static_cast<int32_t>(i);
  }
  // Rounding may leave a rest; it belongs to the last that can be drawn at all.
  for (size_t i = end; i-- > 0;)
    if (weights_[i] >= least) return static_cast<int32_t>(i);
  return -1;
}

std::optional<int32_t> Candidates::draw_flat(std::span<const float> logits, float temperature, double mass,
                                             double u) {
  temperature = std::max(temperature, kCoolest);
  const auto n = static_cast<int64_t>(logits.size());
  const float top = kernels_->max(logits.data(), n);
  if (!std::isfinite(top)) return std::nullopt;
  const float all = kernels_->exp_sum_scaled(logits.data(), -top, 1.0f / temperature, n);
  if (!(all >= kFlat)) return std::nullopt;
  weigh_all(logits, top, temperature);
  const float least = keep_weights(logits, mass * static_cast<double>(all));
  const int32_t drawn = draw_weight(logits.size(), least, u);
  return drawn >= 0 ? drawn : likeliest(logits);
}

float Candidates::keep_weights(std::span<const float> logits, double wanted) {
  const auto bin_of = [](float weight) {
    return static_cast<size_t>((kOneBits - std::bit_cast<uint32_t>(weight)) >> kBinShift);
  };
  // Two sums a bin in turn: equal weights one after the other would wait for each other.
  bins_.assign(2 * (kBins + 1), 0.0);
  for (size_t i = 0; i < logits.size(); ++i)
    bins_[2 * std::min(bin_of(weights_[i]), kBins) + i % 2] += static_cast<double>(weights_[i]);
  size_t border = 0;
  for (;; ++border) {
    const double here = bins_[2 * border] + bins_[2 * border + 1];
    if (here >= wanted || border + 1 == kBins) break;
    wanted -= here;
  }
  border_.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    if (bin_of(weights_[i]) == border) border_.push_back({static_cast<int32_t>(i), logits[i], weights_[i]});
  const size_t kept = likeliest_in_front(border_, wanted);
  for (size_t i = kept; i < border_.size(); ++i) weights_[static_cast<size_t>(border_[i].token)] = 0;
  // The smallest weight of the border's bin.
  return std::bit_cast<float>(kOneBits - (static_cast<uint32_t>(border + 1) << kBinShift) + 1);
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
  const size_t kept = likeliest_in_front(border_, wanted);
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
