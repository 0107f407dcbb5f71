#include "layers/moe.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/ssm.h"

namespace millrace::layers {

uint64_t Moe::weight_bytes() const {
  uint64_t bytes = router.bytes() + shared_gate.bytes() + (shared ? shared->weight_bytes() : 0);
  for (const auto& m : up) bytes += m.bytes();
  for (const auto& m : down) bytes += m.bytes();
  return bytes;
}

void Moe::add_forms(std::vector<ops::InputForm>& forms) const {
  // Rows are gathered by expert before they are quantised.
  if (std::find(forms.begin(), forms.end(), ops::InputForm::kF32) == forms.end())
    forms.push_back(ops::InputForm::kF32);
  router.add_forms(forms);
  if (shared) shared->add_forms(forms);
  shared_gate.add_forms(forms);
}

std::vector<uint64_t> Moe::expert_load() const {
  std::vector<uint64_t> counts;
  for (const auto& n : load_) counts.push_back(n.load(std::memory_order_relaxed));
  return counts;
}

void Moe::activate_clamped(const Step& step, const ops::ExpertRows& order, const float* both, float* hidden,
                           int64_t width) const {
  const auto experts = static_cast<int64_t>(up.size());
  step.context().pool.parallel_for(experts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t e = begin; e < end; ++e) {
      const float* bias = up_bias.data() + e * 2 * width;
      for (int64_t r = order.row_offsets[static_cast<size_t>(e)];
           r < order.row_offsets[static_cast<size_t>(e) + 1]; ++r) {
        for (int64_t i = 0; i < width; ++i) {
          const float gate = std::min(both[r * 2 * width + i] + bias[i], clamp);
          const float linear = std::clamp(both[r * 2 * width + width + i] + bias[width + i], -clamp, clamp);
          hidden[r * width + i] = (linear + 1.0f) * gate / (1.0f + std::exp(-alpha * gate));
        }
      }
    }
  });
}

void Moe::add_shared(const Step& step, int layer, ops::MatmulInput& x, float* y,
                     const ops::Epilogue& epilogue) const {
  if (shared_gate.empty()) {
    shared->forward(step, layer, x, y, epilogue);
    return;
  }
  const int64_t rows = x.tokens, hidden = shared->down.rows();
  float* result = step.floats(rows * hidden);
  shared->forward(step, layer, x, result, {});
  float* gate = step.floats(rows);
  shared_gate.forward(step.context(), x, gate, 1);
  for (int64_t r = 0; r < rows; ++r)
    step.context().kernels.scale(result + r * hidden, result + r * hidden, 1.0f / (1.0f + std::exp(-gate[r])),
                                 hidden);
  ops::add_rows(step.context(), y, result, rows * hidden, epilogue.scale);
}

void Moe::forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
                  const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t rows = x.tokens, hidden = x.cols, experts = routing.num_experts, top_k = routing.top_k;
  const int64_t out_width = down[0].rows(), width = down[0].cols(), chosen = rows * top_k;
  float* logits = step.floats(rows * experts);
  router.forward(context, x, logits, experts);
  auto* ids = context.arena.allocate<int32_t>(chosen);
  float* weights = step.floats(chosen);
  ops::route_tokens(context, routing, logits, experts, rows, ids, weights);
  const ops::ExpertRows order = ops::group_by_expert(context, ids, rows, static_cast<int32_t>(top_k),
                                                     static_cast<int32_t>(experts), x.rounded);
  for (int64_t e = 0; e < experts; ++e)
    load_[static_cast<size_t>(e)].fetch_add(
        static_cast<uint64_t>(order.row_offsets[static_cast<size_t>(e) + 1] -
                              order.row_offsets[static_cast<size_t>(e)]),
        std::memory_order_relaxed);

  float* gathered = ops::gather_rows(context, order, x.f32, x.stride, hidden);
  ops::MatmulInput input = ops::make_input(gathered, chosen, hidden);
  float* activated = step.floats(chosen * width);
  // The pairing epilogue works on whole panels of rows; narrower experts exist only in tests.
  const auto pair = up_bias.empty() && width % 32 == 0 ? pair_kind(activation) : std::nullopt;
  if (pair) {
    ops::grouped_matmul(context, up, input, order.row_offsets, order.rounded, activated, width,
                        {.kind = *pair});
  } else {
    float* both = step.floats(chosen * 2 * width);
    ops::grouped_matmul(context, up, input, order.row_offsets, order.rounded, both, 2 * width);
    if (up_bias.empty())
      ops::activate_mul(context, activation, both, 2 * width, both + width, 2 * width, activated, width,
                        chosen, width);
    else
      activate_clamped(step, order, both, activated, width);
  }
  ops::MatmulInput hidden_input = ops::make_input(activated, chosen, width);
  float* results = step.floats(chosen * out_width);
  ops::grouped_matmul(context, down, hidden_input, order.row_offsets, order.rounded, results, out_width);
  if (!down_bias.empty()) {
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t r = order.row_offsets[static_cast<size_t>(e)];
           r < order.row_offsets[static_cast<size_t>(e) + 1]; ++r)
        context.kernels.add(results + r * out_width, down_bias.data() + e * out_width, out_width);
  }
  if (epilogue.kind == ops::Epilogue::Kind::kStore) std::fill_n(y, rows * out_width, 0.0f);
  if (epilogue.scale != 1.0f)
    for (int64_t i = 0; i < chosen; ++i) weights[i] *= epilogue.scale;
  ops::scatter_add(context, order, weights, static_cast<int32_t>(top_k), results, out_width, out_width, y,
                   out_width);
  if (shared) {
    ops::Epilogue add;
    add.kind = ops::Epilogue::Kind::kAdd;
    add.scale = epilogue.scale;
    add_shared(step, layer, x, y, add);
  }
}

}  // namespace millrace::layers
