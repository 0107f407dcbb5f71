#include "ops/topk.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace millrace::ops {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

bool comes_first(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

/// A value that at least k finite logits reach, as high as maxima of groups can tell: the k-th largest of
/// them. Lowest finite value when there are no k such groups.
float lower_bound(const kernels::Table& kernels, std::span<const float> logits, int32_t k,
                  TopKScratch& scratch) {
  const auto n = static_cast<int64_t>(logits.size());
  // Four groups per wanted element leave few candidates besides; 64 elements a group suffice for a small k.
  const int64_t size = std::clamp<int64_t>(n / (4 * int64_t{k}), 1, 64);
  scratch.maxima.resize(static_cast<size_t>(n / size + 64));
  const int64_t groups = kernels.group_maxima(logits.data(), n, size, scratch.maxima.data());
  if (groups < k) return kLowest;
  const auto kth = scratch.maxima.begin() + k - 1;
  std::nth_element(scratch.maxima.begin(), kth, scratch.maxima.begin() + groups, std::greater<>());
  return std::max(*kth, kLowest);
}

/// Collects, growing the vectors when more pass than they hold.
int64_t collect(const kernels::Table& kernels, std::span<const float> logits, float threshold,
                std::vector<int32_t>& indices, std::vector<float>& values) {
  const auto n = static_cast<int64_t>(logits.size());
  for (;;) {
    const auto room = static_cast<int64_t>(std::min(indices.size(), values.size()));
    const int64_t found =
        kernels.collect_above(logits.data(), n, threshold, indices.data(), values.data(), room);
    if (found <= room) return found;
    indices.resize(static_cast<size_t>(found));
    values.resize(static_cast<size_t>(found));
  }
}

}  // namespace

int32_t top_k(const kernels::Table& kernels, std::span<const float> logits, int32_t k, int32_t* indices,
              float* values, TopKScratch& scratch) {
  k = static_cast<int32_t>(std::min<int64_t>(k, static_cast<int64_t>(logits.size())));
  if (k <= 0) return 0;
  if (k == 1) {
    const auto at = static_cast<int32_t>(kernels.argmax(logits.data(), static_cast<int64_t>(logits.size())));
    indices[0] = at;
    values[0] = logits[static_cast<size_t>(at)];
    return values[0] >= kLowest ? 1 : 0;
  }
  const float threshold = lower_bound(kernels, logits, k, scratch);
  const int64_t found = collect(kernels, logits, threshold, scratch.indices, scratch.values);
  auto& order = scratch.order;
  order.resize(static_cast<size_t>(found));
  for (size_t i = 0; i < order.size(); ++i) order[i] = {scratch.values[i], scratch.indices[i]};
  const auto count = static_cast<int32_t>(std::min<int64_t>(k, found));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), comes_first);
  for (int32_t i = 0; i < count; ++i) {
    values[i] = order[static_cast<size_t>(i)].first;
    indices[i] = order[static_cast<size_t>(i)].second;
  }
  return count;
}

int64_t collect_within(const kernels::Table& kernels, std::span<const float> logits, float distance,
                       std::vector<int32_t>& indices, std::vector<float>& values) {
  const float largest = kernels.max(logits.data(), static_cast<int64_t>(logits.size()));
  return collect(kernels, logits, std::max(largest - distance, kLowest), indices, values);
}

float log_sum_exp(const kernels::Table& kernels, std::span<const float> logits) {
  const auto n = static_cast<int64_t>(logits.size());
  const float largest = kernels.max(logits.data(), n);
  if (!(largest >= kLowest)) return -std::numeric_limits<float>::infinity();
  return largest + std::log(kernels.exp_sum_scaled(logits.data(), -largest, 1.0f, n));
}

}  // namespace millrace::ops
