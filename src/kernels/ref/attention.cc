// Plain attention kernels over float tiles, and the expansion of stored elements to them.
#include <algorithm>
#include <cmath>

#include "core/half.h"
#include "kernels/tables.h"

namespace millrace::kernels {
namespace {

/// Scores of one row over the chunk, with scale, cap, slope and mask applied; returns the largest visible
/// one.
float row_scores(const AttentionPanel& p, int32_t row, float* scores) {
  const float* q = static_cast<const float*>(p.q) + row * p.q_stride;
  float largest = kNoMaximum;
  for (int32_t tile = 0; tile < p.num_tiles; ++tile) {
    const auto* k = static_cast<const float*>(p.k[tile]);
    float sums[kTokenTile] = {};
    for (int32_t d = 0; d < p.key_dim; ++d)
      for (int32_t t = 0; t < kTokenTile; ++t) sums[t] += q[d] * k[d * kTokenTile + t];
    for (int32_t t = 0; t < kTokenTile; ++t) {
      const int32_t token = tile * kTokenTile + t;
      float score = sums[t];
      if (p.k_scale[tile]) score *= p.k_scale[tile][t];
      if (p.softcap != 0.0f) score = p.softcap * std::tanh(score / p.softcap);
      if (p.alibi_slope) score -= p.alibi_slope[row] * (p.alibi_distance[row] - static_cast<float>(token));
      if (token < p.begin[row] || token >= p.end[row]) score = -INFINITY;
      scores[token] = score;
      largest = std::max(largest, score);
    }
  }
  return largest;
}

void attend_panel(const AttentionPanel& p) {
  float scores[kChunkTokens];
  for (int32_t row = 0; row < p.rows; ++row) {
    if (p.begin[row] >= p.end[row]) continue;
    const float largest = std::max(p.maximum[row], row_scores(p, row, scores));
    const float correction = std::exp2(p.maximum[row] - largest);
    float sum = 0;
    const int32_t tokens = p.num_tiles * kTokenTile;
    for (int32_t t = 0; t < tokens; ++t) sum += scores[t] = std::exp2(scores[t] - largest);
    p.maximum[row] = largest;
    p.sum[row] = p.sum[row] * correction + sum;
    float* out = p.accumulator + static_cast<int64_t>(row) * p.value_dim;
    for (int32_t d = 0; d < p.value_dim; ++d) out[d] *= correction;
    for (int32_t t = 0; t < tokens; ++t) {
      if (scores[t] == 0.0f) continue;
      const int32_t tile = t / kTokenTile;
      const float weight = p.v_scale[tile] ? scores[t] * p.v_scale[tile][t % kTokenTile] : scores[t];
      const float* v =
          static_cast<const float*>(p.v[tile]) + static_cast<int64_t>(t % kTokenTile) * p.value_dim;
      for (int32_t d = 0; d < p.value_dim; ++d) out[d] += weight * v[d];
    }
  }
}

void attend(const AttentionPanel* panels, int32_t count) {
  for (int32_t i = 0; i < count; ++i) attend_panel(panels[i]);
}

void prepare_query(void* out, const float* q, float scale, int64_t n) {
  auto* to = static_cast<float*>(out);
  for (int64_t i = 0; i < n; ++i) to[i] = q[i] * scale;
}

void expand_bf16(void* out, const void* in, int64_t pairs, int64_t width) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const bf16_t*>(in);
  for (int64_t pair = 0; pair < pairs; ++pair)
    for (int64_t i = 0; i < width; ++i)
      for (int64_t half = 0; half < 2; ++half)
        to[(2 * pair + half) * width + i] = bf16_to_float(from[(pair * width + i) * 2 + half]);
}

void expand_int8(void* out, const void* in, int64_t pairs, int64_t width) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const int8_t*>(in);
  for (int64_t pair = 0; pair < pairs; ++pair)
    for (int64_t i = 0; i < width; ++i)
      for (int64_t half = 0; half < 2; ++half)
        to[(2 * pair + half) * width + i] = static_cast<float>(from[(pair * width + i) * 2 + half]);
}

float int4_value(uint8_t byte, int64_t half, const bf16_t* scale_offset) {
  const int nibble = half ? byte >> 4 : byte & 15;
  return static_cast<float>(nibble) * bf16_to_float(scale_offset[0]) + bf16_to_float(scale_offset[1]);
}

void expand_int4_k(void* out, const void* in, const void* groups, int64_t key_dim) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const uint8_t*>(in);
  const auto* group = static_cast<const bf16_t*>(groups);
  for (int64_t d = 0; d < key_dim; ++d)
    for (int64_t t = 0; t < kTokenTile; ++t)
      to[d * kTokenTile + t] =
          int4_value(from[d / 2 * kTokenTile + t], d % 2, group + (d / 32 * kTokenTile + t) * 2);
}

void expand_int4_v(void* out, const void* in, const void* groups, int64_t value_dim) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const uint8_t*>(in);
  const auto* group = static_cast<const bf16_t*>(groups);
  const int64_t groups_per_token = (value_dim + 31) / 32;
  for (int64_t t = 0; t < kTokenTile; ++t)
    for (int64_t d = 0; d < value_dim; ++d)
      to[t * value_dim + d] =
          int4_value(from[t / 2 * value_dim + d], t % 2, group + (t * groups_per_token + d / 32) * 2);
}

void transpose_values(void* out, const void* in, int64_t value_dim) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const float*>(in);
  for (int64_t d = 0; d < value_dim; ++d)
    for (int64_t t = 0; t < kTokenTile; ++t) to[d * kTokenTile + t] = from[t * value_dim + d];
}

}  // namespace

AttentionKernels scalar_attention() {
  AttentionKernels kernels{};
  kernels.bf16 = false;
  kernels.attend = attend;
  kernels.prepare_query = prepare_query;
  kernels.expand_bf16 = expand_bf16;
  kernels.expand_int8 = expand_int8;
  kernels.expand_int4_k = expand_int4_k;
  kernels.expand_int4_v = expand_int4_v;
  kernels.transpose_values = transpose_values;
  return kernels;
}

}  // namespace millrace::kernels
