// Activations made ready for matmuls, once per input.
#include <algorithm>

#include "core/error.h"
#include "kernels/matmul.h"
#include "ops/matmul.h"
#include "quant/traits.h"

namespace millrace::ops {

MatmulInput make_input(const float* x, int64_t tokens, int64_t cols, int64_t stride, int64_t rounded) {
  MatmulInput input;
  input.f32 = x;
  input.tokens = tokens;
  input.cols = cols;
  input.stride = stride ? stride : cols;
  input.rounded = rounded;
  return input;
}

int64_t prepared_stride(InputForm form, const MatmulInput& input) {
  // Rows of converted forms are an odd number of cache lines apart: with a power of two, the rows of a tile
  // would fall into the same few sets of the first cache.
  switch (form) {
    case InputForm::kF32:
      return input.stride * static_cast<int64_t>(sizeof(float));
    case InputForm::kBF16:
      return ((input.cols * 2 + 63) / 64 | 1) * 64;
    case InputForm::kInt8:
    case InputForm::kInt8Super:
      return (input.cols / kernels::kBlockCols | 1) * static_cast<int64_t>(sizeof(kernels::ActivationBlock));
    case InputForm::kF16:
      return ((input.cols * 2 + 64) / 64 | 1) * 64;
  }
  return 0;
}

namespace {

bool is_int8(InputForm form) { return form == InputForm::kInt8 || form == InputForm::kInt8Super; }

/// One row to a converted form.
void convert_row(const kernels::MatmulInputKernels& convert, InputForm form, const float* x, int64_t cols,
                 std::byte* out) {
  if (is_int8(form)) {
    auto* const blocks = reinterpret_cast<kernels::ActivationBlock*>(out);
    (form == InputForm::kInt8 ? convert.quantize : convert.quantize_super)(x, cols, blocks);
    return;
  }
  auto* values = reinterpret_cast<uint16_t*>(out);
  if (form == InputForm::kF16) {
    convert.to_f16(x, cols, values);
    return;
  }
  convert.to_bf16(x, cols, values);
  if (cols % 2) values[cols] = 0;  // the last pair's partner
}

/// Below this many values per thread a parallel region costs more than it saves.
constexpr int64_t kSerialValues = 16 * 1024;

std::byte* allocate_form(const Context& context, const MatmulInput& input, InputForm form) {
  const int64_t unit = form == InputForm::kInt8Super ? kernels::kSuperCols : kernels::kBlockCols;
  require(!is_int8(form) || input.cols % unit == 0, ErrorCode::kUnsupported,
          "activations of {} columns cannot be quantised: expected a multiple of {}", input.cols, unit);
  return static_cast<std::byte*>(
      context.arena.allocate_bytes(static_cast<size_t>(input.tokens * prepared_stride(form, input))));
}

/// What a product reads of rounded rows where the others need `form`.
InputForm rounded_form(const Context& context, InputForm form) {
  if (!is_int8(form)) return form;
  const kernels::MatmulInput rounded = kernels::rounded_input(context.kernels.isa);
  return rounded == kernels::MatmulInput::kInt8 ? form : static_cast<InputForm>(rounded);
}

}  // namespace

bool epilogue_makes(const Context& context, InputForm form, int64_t rounded) {
  return is_int8(form) && (rounded == 0 || rounded_form(context, form) == form);
}

MatmulInput make_input_of_form(const Context& context, int64_t tokens, int64_t cols, InputForm form) {
  MatmulInput input = make_input(nullptr, tokens, cols);
  input.prepared[static_cast<size_t>(form)] = {allocate_form(context, input, form), 0, tokens};
  return input;
}

void put_columns(const Context& context, const MatmulInput& input, InputForm form, int64_t token,
                 int64_t first, const float* values, int64_t count) {
  std::byte* const row =
      input.prepared[static_cast<size_t>(form)].rows + token * prepared_stride(form, input);
  convert_row(kernels::matmul_input_kernels(context.kernels.isa), form, values, count,
              row + first / kernels::kBlockCols * static_cast<int64_t>(sizeof(kernels::ActivationBlock)));
}

void prepare_rows(const Context& context, MatmulInput& input, InputForm form, int64_t begin, int64_t end) {
  MatmulInput::Prepared& prepared = input.prepared[static_cast<size_t>(form)];
  if (form == InputForm::kF32 || begin >= end || (prepared.begin <= begin && end <= prepared.end)) return;
  if (!prepared.rows) prepared = {allocate_form(context, input, form), begin, begin};
  const int64_t stride = prepared_stride(form, input);
  const auto& convert = kernels::matmul_input_kernels(context.kernels.isa);
  const int64_t grain = std::max<int64_t>(1, kSerialValues / std::max<int64_t>(input.cols, 1));
  const auto add = [&](int64_t from, int64_t to) {
    context.pool.parallel_for(std::max<int64_t>(0, to - from), grain, [&](int64_t first, int64_t last, int) {
      for (int64_t t = from + first; t < from + last; ++t)
        convert_row(convert, form, input.f32 + t * input.stride, input.cols, prepared.rows + t * stride);
    });
  };
  // What is asked for touches what is there: rows are asked for from the first on or to the last.
  add(begin, std::min(end, prepared.begin));
  add(std::max(begin, prepared.end), end);
  prepared.begin = std::min(begin, prepared.begin);
  prepared.end = std::max(end, prepared.end);
}

void prepare_input(const Context& context, MatmulInput& input, InputForm form) {
  prepare_rows(context, input, rounded_form(context, form), 0, input.rounded);
  prepare_rows(context, input, form, input.rounded, input.tokens);
}

MatmulInput norm_input(const Context& context, const float* source, int64_t tokens, int64_t cols,
                       const NormSpec& norm, std::span<const InputForm> forms, int64_t rounded) {
  const ProfileScope scope(context, "norm", static_cast<double>(tokens * cols) * 8,
                           static_cast<double>(tokens * cols) * 4);
  float* y = context.arena.allocate<float>(tokens * cols);
  MatmulInput input = make_input(y, tokens, cols, cols, rounded);
  const auto want = [&](InputForm form, int64_t begin, int64_t end) {
    if (form == InputForm::kF32 || begin >= end) return;
    MatmulInput::Prepared& prepared = input.prepared[static_cast<size_t>(form)];
    if (!prepared.rows) prepared = {allocate_form(context, input, form), begin, end};
    prepared.begin = std::min(begin, prepared.begin);
    prepared.end = std::max(end, prepared.end);
  };
  for (const InputForm form : forms) {
    want(rounded_form(context, form), 0, rounded);
    want(form, rounded, tokens);
  }
  const auto& convert = kernels::matmul_input_kernels(context.kernels.isa);
  const int64_t grain = std::max<int64_t>(1, kSerialValues / std::max<int64_t>(cols, 1));
  context.pool.parallel_for(tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* x = source + t * cols;
      if (norm.kind == NormSpec::Kind::kRms)
        context.kernels.rms_norm(y + t * cols, x, norm.weight, norm.epsilon, cols);
      else
        context.kernels.layer_norm(y + t * cols, x, norm.weight, norm.bias, norm.epsilon, cols);
      // The row is still in the first cache.
      for (InputForm form : {InputForm::kBF16, InputForm::kInt8, InputForm::kInt8Super, InputForm::kF16}) {
        const MatmulInput::Prepared& out = input.prepared[static_cast<size_t>(form)];
        if (t >= out.begin && t < out.end)
          convert_row(convert, form, y + t * cols, cols, out.rows + t * prepared_stride(form, input));
      }
    }
  });
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
