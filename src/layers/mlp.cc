#include "layers/mlp.h"

namespace millrace::layers {

std::optional<ops::Epilogue::Kind> pair_kind(ops::Activation activation) {
  if (activation == ops::Activation::kSilu) return ops::Epilogue::Kind::kSwiGlu;
  if (activation == ops::Activation::kGeluTanh) return ops::Epilogue::Kind::kGeGluTanh;
  return std::nullopt;
}

ops::MatmulInput Mlp::activate(const Step& step, ops::MatmulInput& x) const {
  const ops::Context& context = step.context();
  const int64_t rows = x.tokens, width = down.cols();
  const auto pair = gated && up.single() ? pair_kind(activation) : std::nullopt;
  const auto form = down.only_form();
  if (pair && form && ops::epilogue_makes(context, *form, x.rounded)) {
    ops::MatmulInput input = ops::make_input_of_form(context, rows, width, *form);
    up.forward(context, x, nullptr, 0, {.kind = *pair, .input = &input, .form = *form});
    input.rounded = x.rounded;
    return input;
  }
  float* hidden = step.floats(rows * width);
  if (pair) {
    up.forward(context, x, hidden, width, {.kind = *pair});
  } else if (gated) {
    float* both = step.floats(rows * 2 * width);
    up.forward(context, x, both, 2 * width);
    ops::activate_mul(context, activation, both, 2 * width, both + width, 2 * width, hidden, width, rows,
                      width);
  } else {
    up.forward(context, x, hidden, width);
    ops::activate(context, activation, hidden, width, rows, width);
  }
  return ops::make_input(hidden, rows, width, 0, x.rounded);
}

void Mlp::forward(const Step& step, int, ops::MatmulInput& x, float* y, const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  ops::MatmulInput input = activate(step, x);
  down.forward(step.context(), input, y, down.rows(), epilogue);
}

}  // namespace millrace::layers
