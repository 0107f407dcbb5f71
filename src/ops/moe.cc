#include "ops/moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"

namespace millrace::ops {
namespace {

constexpr float kExcluded = -INFINITY;

/// Index of the largest; the first of equals.
int32_t largest_index(const float* x, int32_t n) {
  return static_cast<int32_t>(std::max_element(x, x + n) - x);
}

/// What a group counts as in the choice of groups.
float group_score(const RouterOptions& o, const float* scores, int32_t n) {
  float best = -INFINITY, second = -INFINITY;
  for (int32_t i = 0; i < n; ++i) {
    if (scores[i] > best) {
      second = best;
      best = scores[i];
    } else {
      second = std::max(second, scores[i]);
    }
  }
  return o.group_score == RouterOptions::GroupScore::kMaximum || n == 1 ? best : best + second;
}

/// Excludes the experts of all but the best top_groups groups. `scratch` [2 * num_groups].
void keep_best_groups(const RouterOptions& o, float* choice, float* scratch) {
  if (o.num_groups <= 1 || o.top_groups >= o.num_groups) return;
  const int32_t size = o.num_experts / o.num_groups;
  float* score = scratch;
  float* kept = scratch + o.num_groups;
  for (int32_t g = 0; g < o.num_groups; ++g) {
    score[g] = group_score(o, choice + g * size, size);
    kept[g] = 0.0f;
  }
  for (int32_t i = 0; i < o.top_groups; ++i) {
    const int32_t g = largest_index(score, o.num_groups);
    score[g] = kExcluded;
    kept[g] = 1.0f;
  }
  for (int32_t g = 0; g < o.num_groups; ++g)
    if (kept[g] == 0.0f) std::fill_n(choice + g * size, size, kExcluded);
}

void route_row(const kernels::Table& kernels, const RouterOptions& o, const float* logits, float* scratch,
               int32_t* experts, float* weights) {
  float* scores = scratch;
  float* choice = scores + o.num_experts;
  std::copy_n(logits, o.num_experts, scores);
  if (o.scoring == RouterOptions::Scoring::kSoftmax) kernels.softmax(scores, o.num_experts);
  if (o.scoring == RouterOptions::Scoring::kSigmoid) kernels.sigmoid(scores, scores, o.num_experts);
  for (int32_t e = 0; e < o.num_experts; ++e)
    choice[e] = o.selection_bias ? scores[e] + o.selection_bias[e] : scores[e];
  keep_best_groups(o, choice, choice + o.num_experts);
  for (int32_t i = 0; i < o.top_k; ++i) {
    const int32_t e = largest_index(choice, o.num_experts);
    choice[e] = kExcluded;
    experts[i] = e;
    weights[i] = scores[e];
  }
  if (o.scoring == RouterOptions::Scoring::kSoftmaxOfChosen) kernels.softmax(weights, o.top_k);
  float factor = o.scale;
  if (o.normalize) {
    float sum = o.normalize_epsilon;
    for (int32_t i = 0; i < o.top_k; ++i) sum += weights[i];
    factor /= sum;
  }
  for (int32_t i = 0; i < o.top_k; ++i) weights[i] *= factor;
}

}  // namespace

void route_tokens(const Context& context, const RouterOptions& options, const float* logits, int64_t stride,
                  int64_t rows, int32_t* experts, float* weights) {
  const RouterOptions& o = options;
  // With too few experts in the kept groups an excluded one would be chosen, twice even.
  check(o.num_experts > 0 && o.num_groups > 0 && o.num_experts % o.num_groups == 0 && o.top_groups > 0 &&
            o.top_k > 0 && o.top_k <= o.num_experts / o.num_groups * std::min(o.top_groups, o.num_groups),
        "routing to {} of {} experts in {} of {} groups", o.top_k, o.num_experts, o.top_groups, o.num_groups);
  const ProfileScope profile(context, "route", 4.0 * static_cast<double>(rows * o.num_experts), 0);
  const Arena::Mark mark = context.arena.mark();
  const int64_t each = 2 * int64_t{o.num_experts} + 2 * o.num_groups;
  auto* scratch = context.arena.allocate<float>(each * context.pool.num_threads());
  context.pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; ++r)
      route_row(context.kernels, o, logits + r * stride, scratch + each * thread, experts + r * o.top_k,
                weights + r * o.top_k);
  });
  context.arena.release(mark);
}

ExpertRows group_by_expert(const Context& context, const int32_t* experts, int64_t rows, int32_t top_k,
                           int32_t num_experts, int64_t rounded) {
  const int64_t total = rows * top_k;
  auto* offsets = context.arena.allocate<int32_t>(num_experts + 1);
  auto* source = context.arena.allocate<int32_t>(total);
  auto* position = context.arena.allocate<int32_t>(total);
  auto* rounded_rows = context.arena.allocate<int32_t>(num_experts);
  std::fill_n(rounded_rows, num_experts, 0);
  std::fill_n(offsets, num_experts + 1, 0);
  for (int64_t i = 0; i < total; ++i) {
    check(experts[i] >= 0 && experts[i] < num_experts, "expert {} of {}", experts[i], num_experts);
    ++offsets[experts[i] + 1];
    rounded_rows[experts[i]] += i < rounded * top_k;
  }
  for (int32_t e = 0; e < num_experts; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] serves as the next free place of e, then moves back by one expert.
  for (int64_t i = 0; i < total; ++i) {
    const int32_t to = offsets[experts[i]]++;
    source[to] = static_cast<int32_t>(i / top_k);
    position[i] = to;
  }
  for (int32_t e = num_experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  const auto count = static_cast<size_t>(total);
  return {{offsets, static_cast<size_t>(num_experts) + 1},
          {source, count},
          {position, count},
          {rounded_rows, static_cast<size_t>(num_experts)}};
}

float* gather_rows(const Context& context, const ExpertRows& order, const float* x, int64_t stride,
                   int64_t n) {
  const auto total = static_cast<int64_t>(order.source.size());
  auto* out = context.arena.allocate<float>(total * n);
  const ProfileScope profile(context, "gather rows", 8.0 * static_cast<double>(total * n), 0);
  context.pool.parallel_for(total, std::max<int64_t>(1, 8192 / n), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(out + i * n, x + order.source[static_cast<size_t>(i)] * stride,
                  static_cast<size_t>(n) * sizeof(float));
  });
  return out;
}

void scatter_add(const Context& context, const ExpertRows& order, const float* weights, int32_t top_k,
                 const float* y, int64_t y_stride, int64_t n, float* out, int64_t out_stride) {
  const auto rows = static_cast<int64_t>(order.position.size()) / top_k;
  const ProfileScope profile(context, "scatter rows", 4.0 * static_cast<double>(rows * n * (top_k + 2)),
                             2.0 * static_cast<double>(rows * n * top_k));
  context.pool.parallel_for(
      rows, std::max<int64_t>(1, 8192 / (n * top_k)), [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r)
          for (int32_t i = 0; i < top_k; ++i)
            context.kernels.scale_add(out + r * out_stride, 1.0f,
                                      y + order.position[static_cast<size_t>(r * top_k + i)] * y_stride,
                                      weights[r * top_k + i], n);
      });
}

}  // namespace millrace::ops
