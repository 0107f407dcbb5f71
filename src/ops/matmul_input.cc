// Activations made ready for matmuls, once per input.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/half.h"
#include "ops/matmul.h"
#include "quant/traits.h"

namespace millrace::ops {

MatmulInput make_input(const float* x, int64_t tokens, int64_t cols, int64_t stride) {
  MatmulInput input;
  input.f32 = x;
  input.tokens = tokens;
  input.cols = cols;
  input.stride = stride ? stride : cols;
  return input;
}

void prepare_input(const Context& context, MatmulInput& input, InputForm form) {
  const void*& prepared = input.prepared[static_cast<size_t>(form)];
  if (prepared) return;
  check(form == InputForm::kF32, "no layout reads that form of activations");
  prepared = input.f32;
}

MatmulInput norm_input(const Context& context, const float* source, int64_t tokens, int64_t cols,
                       const NormSpec& norm, std::span<const InputForm> forms) {
  float* y = context.arena.allocate<float>(tokens * cols);
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1));
  context.pool.parallel_for(tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* x = source + t * cols;
      if (norm.kind == NormSpec::Kind::kRms)
        context.kernels.rms_norm(y + t * cols, x, norm.weight, norm.epsilon, cols);
      else
        context.kernels.layer_norm(y + t * cols, x, norm.weight, norm.bias, norm.epsilon, cols);
    }
  });
  MatmulInput input = make_input(y, tokens, cols);
  for (InputForm form : forms) prepare_input(context, input, form);
  return input;
}

void embedding_lookup(const Context& context, const TensorView& table, std::span<const int32_t> ids,
                      float* out) {
  const quant::Traits& traits = quant::traits(table.dtype);
  const int64_t cols = table.shape.back();
  const int64_t rows = table.shape.rows();
  const auto row_bytes = quant::row_bytes(table.dtype, static_cast<uint64_t>(cols));
  require(traits.decode != nullptr && row_bytes.has_value(), ErrorCode::kUnsupported,
          "an embedding table of type {} with {} columns cannot be read", dtype_name(table.dtype), cols);
  for (int32_t id : ids)
    require(id >= 0 && id < rows, ErrorCode::kInvalidArgument,
            "token id {} is out of range: the table has {} rows", id, rows);
  const auto* data = static_cast<const std::byte*>(table.data);
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(cols, 1));
  context.pool.parallel_for(static_cast<int64_t>(ids.size()), grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      traits.decode(data + static_cast<size_t>(ids[static_cast<size_t>(i)]) * *row_bytes, out + i * cols,
                    cols);
  });
}

}  // namespace millrace::ops
