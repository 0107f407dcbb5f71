#include "layers/mlp.h"

namespace millrace::layers {

void Mlp::forward(const Step& step, int, ops::MatmulInput& x, float* y, const ops::Epilogue& epilogue) const {
  const ScratchScope scratch(step);
  const ops::Context& context = step.context();
  const int64_t rows = x.tokens, width = down.cols();
  float* hidden = step.floats(rows * width);
  if (gated) {
    const bool fused =
        up.single() && (activation == ops::Activation::kSilu || activation == ops::Activation::kGeluTanh);
    if (fused) {
      ops::Epilogue pair;
      pair.kind = activation == ops::Activation::kSilu ? ops::Epilogue::Kind::kSwiGlu
                                                       : ops::Epilogue::Kind::kGeGluTanh;
      up.forward(context, x, hidden, width, pair);
    } else {
      float* both = step.floats(rows * 2 * width);
      up.forward(context, x, both, 2 * width);
      ops::activate_mul(context, activation, both, 2 * width, both + width, 2 * width, hidden, width, rows,
                        width);
    }
  } else {
    up.forward(context, x, hidden, width);
    ops::activate(context, activation, hidden, width, rows, width);
  }
  ops::MatmulInput input = ops::make_input(hidden, rows, width, 0, x.rounded);
  down.forward(context, input, y, down.rows(), epilogue);
}

}  // namespace millrace::layers
