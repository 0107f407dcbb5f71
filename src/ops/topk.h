// Selection from a vocabulary's logits without sorting it. One thread; reads the logits two or three times.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/table.h"

namespace millrace::ops {

/// Memory that calls reuse: nothing is allocated once it has seen its largest vocabulary.
struct TopKScratch {
  std::vector<float> maxima;
  std::vector<int32_t> indices;
  std::vector<float> values;
  std::vector<std::pair<float, int32_t>> order;
};

/// The k largest logits by falling value, of equal ones the lower index first; appends nothing for -infinity
/// and NaN, so that masked tokens never come up. Returns how many were written, k unless fewer are finite.
/// indices and values have room for k.
int32_t top_k(const kernels::Table& kernels, std::span<const float> logits, int32_t k, int32_t* indices,
              float* values, TopKScratch& scratch);

/// Every finite logit within `distance` of the largest, by rising index: what can matter to top-p or min-p.
/// Grows the vectors as needed; returns how many.
int64_t collect_within(const kernels::Table& kernels, std::span<const float> logits, float distance,
                       std::vector<int32_t>& indices, std::vector<float>& values);

/// log of the sum of exp(logits): a log-probability is logit minus this. -infinity for no finite logit.
float log_sum_exp(const kernels::Table& kernels, std::span<const float> logits);

}  // namespace millrace::ops
