#include "layers/linear.h"

#include <algorithm>

#include "core/error.h"

namespace millrace::layers {

Linear::Linear(std::vector<ops::PackedMatrix> parts, std::vector<float> bias)
    : parts_(std::move(parts)), bias_(std::move(bias)) {
  for (const auto& part : parts_) rows_ += part.rows();
  check(bias_.empty() || static_cast<int64_t>(bias_.size()) == rows_, "a bias of {} values for {} rows",
        bias_.size(), rows_);
}

uint64_t Linear::bytes() const {
  uint64_t bytes = bias_.size() * sizeof(float);
  for (const auto& part : parts_) bytes += part.bytes();
  return bytes;
}

void Linear::forward(const ops::Context& context, ops::MatmulInput& x, float* y, int64_t y_stride,
                     ops::Epilogue epilogue) const {
  // What is made of the input outlives this call's memory: others may read it.
  for (const auto& part : parts_) ops::prepare_input(context, x, part.input_form());
  int64_t row = 0;
  const float* bias = bias_.empty() ? nullptr : bias_.data();
  const Arena::Mark mark = context.arena.mark();
  if (bias != nullptr && epilogue.scale != 1.0f) {
    // The scale is one of the whole result (Granite's residual), the epilogue's one of the product alone.
    auto* scaled = context.arena.allocate<float>(rows_);
    for (int64_t i = 0; i < rows_; ++i) scaled[i] = epilogue.scale * bias[i];
    bias = scaled;
  }
  for (const auto& part : parts_) {
    epilogue.bias = bias != nullptr ? bias + row : nullptr;
    ops::matmul(context, part, x, y + row, y_stride, epilogue);
    row += part.rows();
  }
  context.arena.release(mark);
}

std::optional<ops::InputForm> Linear::only_form() const {
  for (const auto& part : parts_)
    if (part.input_form() != parts_[0].input_form()) return std::nullopt;
  return parts_.empty() ? std::nullopt : std::optional(parts_[0].input_form());
}

void Linear::add_forms(std::vector<ops::InputForm>& forms) const {
  for (const auto& part : parts_) {
    const ops::InputForm form = part.input_form();
    if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
  }
}

}  // namespace millrace::layers
