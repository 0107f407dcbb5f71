#include "compress/train/linear.h"

#include <algorithm>
#include <vector>

namespace millrace::train {
namespace {

// Rows of the left operand that one task takes: with a panel of the right one they stay in the first-level
// cache.
constexpr int64_t kBlockRows = 64;

}  // namespace

Compute::Compute(Arithmetic arithmetic, ThreadPool& pool, const Kernels& table)
    : arithmetic_(arithmetic),
      pool_(pool),
      kernels_(table),
      gemm_(arithmetic == Arithmetic::kBfloat16 ? table.gemm_bf16 : table.gemm_f32) {}

void Compute::to_operand(const float* from, Word* to, int64_t count) const {
  if (arithmetic_ == Arithmetic::kBfloat16)
    kernels_.to_bf16(from, reinterpret_cast<uint16_t*>(to), count);
  else
    std::memcpy(to, from, static_cast<size_t>(count) * 4);
}

void Compute::to_operand_rows(const float* from, Word* to, int64_t rows, int64_t columns) const {
  pool_.parallel_for(rows, 64, [&](int64_t begin, int64_t end, int) {
    to_operand(from + begin * columns, to + begin * words(columns), (end - begin) * columns);
  });
}

void Compute::pack_operand(const Word* from, int64_t rows, int64_t columns, Word* to) const {
  const int64_t row_words = words(rows);
  pool_.parallel_for(columns / kPanelColumns, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) {
      Word* destination = to + panel * row_words * kPanelColumns;
      if (arithmetic_ == Arithmetic::kBfloat16)
        kernels_.pack_bf16(reinterpret_cast<const uint16_t*>(from) + panel * kPanelColumns, rows,
                           kPanelColumns, columns, destination);
      else
        kernels_.pack_f32(reinterpret_cast<const float*>(from) + panel * kPanelColumns, rows, kPanelColumns,
                          columns, destination);
    }
  });
}

void Compute::pack_weight(const float* weight, int64_t outputs, int64_t inputs, Word* packed) const {
  const int64_t row_words = words(inputs);
  std::vector<Word> rows(static_cast<size_t>(outputs * row_words));
  to_operand(weight, rows.data(), outputs * inputs);
  Word* to = packed;
  for (int64_t panel = 0; panel < outputs; panel += kPanelColumns)
    for (int64_t k = 0; k < row_words; ++k, to += kPanelColumns)
      for (int64_t column = 0; column < kPanelColumns; ++column)
        to[column] = rows[static_cast<size_t>((panel + column) * row_words + k)];
  if (arithmetic_ == Arithmetic::kBfloat16)
    kernels_.pack_bf16(reinterpret_cast<const uint16_t*>(rows.data()), outputs, inputs, inputs, to);
  else
    kernels_.pack_f32(weight, outputs, inputs, inputs, to);
}

void Compute::multiply(const Word* a, int64_t a_row_stride, int64_t k_words, const Word* panels, int64_t rows,
                       int64_t columns, float* c, Into into) const {
  count_operations(2.0 * static_cast<double>(rows * columns * k_words) *
                   (arithmetic_ == Arithmetic::kBfloat16 ? 2 : 1));
  pool_.parallel_for(rows, kBlockRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t column = 0; column < columns; column += kPanelColumns) {
      const Word* panel = panels + column * k_words;
      for (int64_t row = begin; row < end; row += kTileRows)
        gemm_(a + row * a_row_stride, a_row_stride, 1, panel, k_words, c + row * columns + column, columns,
              into);
    }
  });
}

void Compute::forward(const Word* x, const Linear& linear, const Word* packed, int64_t rows, float* y,
                      Into into) const {
  multiply(x, words(linear.inputs), words(linear.inputs), packed, rows, linear.outputs, y, into);
}

void Compute::backward_input(const Word* dy, const Linear& linear, const Word* packed, int64_t rows,
                             float* dx, Into into) const {
  multiply(dy, words(linear.outputs), words(linear.outputs), packed + words(linear.size()), rows,
           linear.inputs, dx, into);
}

void Compute::backward_weight(const Word* dy, const Word* x, const Linear& linear, int64_t rows,
                              float* gradient) {
  const int64_t k_words = words(rows);
  if (left_.size() < k_words * linear.outputs) left_.allocate(k_words * linear.outputs);
  if (right_.size() < k_words * linear.inputs) right_.allocate(k_words * linear.inputs);
  pack_operand(dy, rows, linear.outputs, left_.data());
  pack_operand(x, rows, linear.inputs, right_.data());
  count_operations(2.0 * static_cast<double>(rows * linear.outputs * linear.inputs));
  pool_.parallel_for(linear.outputs, kBlockRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t column = 0; column < linear.inputs; column += kPanelColumns) {
      const Word* panel = right_.data() + column * k_words;
      for (int64_t row = begin; row < end; row += kTileRows) {
        const int64_t within = row % kPanelColumns;
        const Word* a = left_.data() + (row - within) * k_words + within;
        gemm_(a, 1, kPanelColumns, panel, k_words, gradient + row * linear.inputs + column, linear.inputs,
              Into::kAdd);
      }
    }
  });
}

}  // namespace millrace::train
