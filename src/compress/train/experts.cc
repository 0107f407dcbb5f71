// Mixture of experts of train::Model: a router picks the best experts of every row, rows are grouped by
// expert so that each expert is two ordinary products, and results are mixed with the softmax of the picked
// scores.

#include <algorithm>
#include <array>
#include <cmath>

#include "compress/train/model_state.h"

namespace millrace::train {

void Model::route(const Layer& layer, LayerState& state, int rows, int live_rows) {
  const int dim = shape_.dim, experts = shape_.num_experts, used = shape_.experts_per_token;
  ExpertState& moe = *state.moe;
  const Kernels& k = compute_.kernel();
  const float* router = parameters_.data() + layer.router;
  compute_.pool().parallel_for(rows, 32, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      // The router sees the input in float, not rounded: a near tie must not flip between passes.
      float* x = state.mlp_input_float->data() + r * dim;
      k.rms_norm(state.middle.data() + r * dim, parameters_.data() + layer.mlp_norm, x, dim,
                 shape_.norm_epsilon);
      float* score = moe.probability.data() + r * experts;
      for (int e = 0; e < experts; ++e) score[e] = k.dot(x, router + int64_t{e} * dim, dim);
      const float top = *std::max_element(score, score + experts);
      const float total = k.exp_sum(score, 1.0f, top, experts);
      k.scale(score, 1.0f / total, experts);
      int* chosen = moe.chosen.data() + r * used;
      float sum = 0;
      for (int i = 0; i < used; ++i) {
        int best = -1;
        for (int e = 0; e < experts; ++e)
          if (std::find(chosen, chosen + i, e) == chosen + i && (best < 0 || score[e] > score[best]))
            best = e;
        chosen[i] = best;
        sum += score[best];
      }
      for (int i = 0; i < used; ++i) moe.share[r * used + i] = score[chosen[i]] / sum;
    }
  });
  int at = 0;
  for (int e = 0; e < experts; ++e) {
    moe.begin[static_cast<size_t>(e)] = at;
    for (int r = 0; r < live_rows; ++r) {
      for (int i = 0; i < used; ++i) {
        if (moe.chosen[int64_t{r} * used + i] != e) continue;
        moe.place[int64_t{r} * used + i] = at;
        moe.source[at++] = r;
      }
    }
    while (at % 16) moe.source[at++] = -1;
  }
  moe.begin[static_cast<size_t>(experts)] = at;
}

void Model::experts(const Layer& layer, LayerState& state, float* out, int live_rows) {
  const int dim = shape_.dim, used = shape_.experts_per_token, width = shape_.feed_forward;
  ExpertState& moe = *state.moe;
  const int64_t row_words = compute_.words(dim);
  const int grouped = moe.begin.back();
  for (int i = 0; i < grouped; ++i) {
    Word* to = moe.input.data() + i * row_words;
    const size_t bytes = static_cast<size_t>(row_words) * sizeof(Word);
    if (moe.source[i] < 0)
      std::memset(to, 0, bytes);
    else
      std::memcpy(to, state.mlp_input.data() + moe.source[i] * row_words, bytes);
  }
  for (size_t e = 0; e + 1 < moe.begin.size(); ++e) {
    const int64_t first = moe.begin[e], count = moe.begin[e + 1] - first;
    const Linear& gate_up = layer.expert_gate_up[e];
    const Linear& down = layer.expert_down[e];
    float* gates = moe.gate_up.data() + first * 2 * width;
    Word* activation = moe.activation.data() + first * compute_.words(width);
    compute_.forward(moe.input.data() + first * row_words, gate_up, packed(gate_up), count, gates,
                     Into::kStore);
    swiglu_rows(gates, activation, count, width);
    compute_.forward(activation, down, packed(down), count, moe.result.data() + first * dim, Into::kStore);
  }
  compute_.pool().parallel_for(live_rows, 32, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int i = 0; i < used; ++i)
        compute_.kernel().add_scaled(moe.result.data() + int64_t{moe.place[r * used + i]} * dim,
                                     moe.share[r * used + i], out + r * dim, dim);
  });
}

/// Gradient of the router's scores into dscore [rows][experts]: of the mix through the picked experts'
/// softmax, and of balance * experts * sum over e of (share of picks of e) * (mean probability of e).
void Model::router_backward(LayerState& state, int live_rows, float balance) {
  const int dim = shape_.dim, experts = shape_.num_experts, used = shape_.experts_per_token;
  ExpertState& moe = *state.moe;
  Scratch& w = *scratch_;
  std::vector<float> pull(static_cast<size_t>(experts), 0.0f);
  for (int64_t i = 0; i < int64_t{live_rows} * used; ++i) pull[static_cast<size_t>(moe.chosen[i])] += 1.0f;
  for (float& p : pull)
    p *= balance * static_cast<float>(experts) /
         (static_cast<float>(live_rows) * static_cast<float>(used) * static_cast<float>(live_rows));
  compute_.pool().parallel_for(live_rows, 32, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* probability = moe.probability.data() + r * experts;
      const float* dout = w.dstream.data() + r * dim;
      float* dscore = w.dscore.data() + r * experts;
      float mean = 0;
      for (int e = 0; e < experts; ++e) mean += probability[e] * pull[static_cast<size_t>(e)];
      for (int e = 0; e < experts; ++e) dscore[e] = probability[e] * (pull[static_cast<size_t>(e)] - mean);
      float mixed = 0;
      std::array<float, 256> dshare;
      for (int i = 0; i < used; ++i) {
        const float share = moe.share[r * used + i];
        const int64_t place = moe.place[r * used + i];
        dshare[static_cast<size_t>(i)] = compute_.kernel().dot(moe.result.data() + place * dim, dout, dim);
        mixed += share * dshare[static_cast<size_t>(i)];
        float* dresult = w.dgrouped.data() + place * dim;
        std::memset(dresult, 0, static_cast<size_t>(dim) * sizeof(float));
        compute_.kernel().add_scaled(dout, share, dresult, dim);
      }
      for (int i = 0; i < used; ++i)
        dscore[moe.chosen[r * used + i]] +=
            moe.share[r * used + i] * (dshare[static_cast<size_t>(i)] - mixed);
    }
  });
}

void Model::experts_backward(const Layer& layer, LayerState& state, int rows, int live_rows, float balance) {
  const int dim = shape_.dim, experts = shape_.num_experts, used = shape_.experts_per_token;
  const int width = shape_.feed_forward;
  ExpertState& moe = *state.moe;
  Scratch& w = *scratch_;
  const Kernels& k = compute_.kernel();
  const int64_t row_words = compute_.words(dim);
  const int grouped = moe.begin.back();
  for (int i = 0; i < grouped; ++i)
    if (moe.source[i] < 0)
      std::memset(w.dgrouped.data() + int64_t{i} * dim, 0, static_cast<size_t>(dim) * sizeof(float));
  router_backward(state, live_rows, balance);
  compute_.to_operand_rows(w.dgrouped.data(), w.grouped_operand.data(), grouped, dim);
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
    const int64_t first = moe.begin[e], count = moe.begin[e + 1] - first;
    if (count == 0) continue;
    const Linear& gate_up = layer.expert_gate_up[e];
    const Linear& down = layer.expert_down[e];
    const Word* dresult = w.grouped_operand.data() + first * row_words;
    compute_.backward_input(dresult, down, packed(down), count, w.wide.data(), Into::kStore);
    compute_.backward_weight(dresult, moe.activation.data() + first * compute_.words(width), down, count,
                             gradient(down));
    swiglu_backward_rows(moe.gate_up.data() + first * 2 * width, w.wide.data(), w.wide_operand.data(), count,
                         width);
    compute_.backward_input(w.wide_operand.data(), gate_up, packed(gate_up), count,
                            w.dgrouped.data() + first * dim, Into::kStore);
    compute_.backward_weight(w.wide_operand.data(), moe.input.data() + first * row_words, gate_up, count,
                             gradient(gate_up));
  }
  const float* router = parameters_.data() + layer.router;
  float* drouter = gradients_.data() + layer.router;
  compute_.pool().parallel_for(rows, 32, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* dx = w.narrow.data() + r * dim;
      std::memset(dx, 0, static_cast<size_t>(dim) * sizeof(float));
      if (r >= live_rows) continue;
      for (int i = 0; i < used; ++i)
        k.add(w.dgrouped.data() + int64_t{moe.place[r * used + i]} * dim, dx, dim);
      for (int e = 0; e < experts; ++e)
        k.add_scaled(router + int64_t{e} * dim, w.dscore[r * experts + e], dx, dim);
    }
  });
  compute_.pool().parallel_for(experts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t e = begin; e < end; ++e)
      for (int64_t r = 0; r < live_rows; ++r)
        k.add_scaled(state.mlp_input_float->data() + r * dim, w.dscore[r * experts + e], drouter + e * dim,
                     dim);
  });
}

}  // namespace millrace::train
