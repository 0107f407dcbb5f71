// Work split and epilogues of the matrix multiplications.
#include "ops/matmul.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "quant/traits.h"

namespace millrace::ops {
namespace {

constexpr int64_t kTileRows = 16;

/// Sixteen running sums, so that the order of additions is fixed and the compiler may keep them in registers.
float dot(const float* a, const float* b, int64_t n) {
  float sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) sums[j] += a[i + j] * b[i + j];
  for (int j = 0; i < n; ++i, ++j) sums[j] += a[i] * b[i];
  for (int width = 8; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
  return sums[0];
}

float silu(float x) { return x / (1.0f + std::exp(-x)); }
float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

bool is_gated(const Epilogue& epilogue) {
  return epilogue.kind == Epilogue::Kind::kSwiGlu || epilogue.kind == Epilogue::Kind::kGeGluTanh;
}

/// The rows [begin, end) of w times the tokens [first, last) of x, into out [token - first, row - begin].
struct RowTile {
  std::vector<float> decoded;
  std::vector<float> results[2];
};

void multiply_rows(const PackedMatrix& w, const MatmulInput& x, int64_t begin, int64_t end, int64_t first,
                   int64_t last, std::vector<float>& decoded, std::vector<float>& out) {
  const quant::Traits& traits = quant::traits(w.source_type_);
  const auto row_bytes =
      static_cast<size_t>(w.cols_ / traits.block_elements) * static_cast<size_t>(traits.block_bytes);
  decoded.resize(static_cast<size_t>(w.cols_));
  out.resize(static_cast<size_t>((last - first) * kTileRows));
  for (int64_t row = begin; row < end; ++row) {
    traits.decode(w.data_.data() + static_cast<size_t>(row) * row_bytes, decoded.data(), w.cols_);
    for (int64_t t = first; t < last; ++t)
      out[static_cast<size_t>((t - first) * kTileRows + row - begin)] =
          dot(decoded.data(), x.f32 + t * x.stride, w.cols_);
  }
}

void store_rows(const PackedMatrix& w, int64_t begin, int64_t end, int64_t first, int64_t last,
                const float* results, const float* up, float* y, int64_t y_stride, const Epilogue& e) {
  const int64_t half = w.rows_ / 2;
  for (int64_t t = first; t < last; ++t) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = (t - first) * kTileRows + row - begin;
      float value = results[at] * e.scale + (e.bias ? e.bias[row] : 0.0f);
      float& target = y[t * y_stride + row];
      switch (e.kind) {
        case Epilogue::Kind::kStore:
          target = value;
          break;
        case Epilogue::Kind::kAdd:
          target += value;
          break;
        case Epilogue::Kind::kSwiGlu:
        case Epilogue::Kind::kGeGluTanh: {
          const float other = up[at] * e.scale + (e.bias ? e.bias[row + half] : 0.0f);
          target = (e.kind == Epilogue::Kind::kSwiGlu ? silu(value) : gelu_tanh(value)) * other;
          break;
        }
      }
    }
  }
}

void check_shapes(const PackedMatrix& w, const MatmulInput& x, const Epilogue& epilogue) {
  check(w.cols_ == x.cols, "a matrix of {} columns meets activations of {}", w.cols_, x.cols);
  check(!is_gated(epilogue) || w.rows_ % 2 == 0, "a gated matrix has {} rows, expected an even number",
        w.rows_);
}

/// One tile of rows (of outputs, when gated) for the tokens [first, last).
void run_tile(const PackedMatrix& w, const MatmulInput& x, int64_t begin, int64_t end, int64_t first,
              int64_t last, float* y, int64_t y_stride, const Epilogue& epilogue) {
  thread_local RowTile tile;
  multiply_rows(w, x, begin, end, first, last, tile.decoded, tile.results[0]);
  if (is_gated(epilogue))
    multiply_rows(w, x, begin + w.rows_ / 2, end + w.rows_ / 2, first, last, tile.decoded, tile.results[1]);
  store_rows(w, begin, end, first, last, tile.results[0].data(), tile.results[1].data(), y, y_stride,
             epilogue);
}

}  // namespace

void matmul(const Context& context, const PackedMatrix& w, MatmulInput& x, float* y, int64_t y_stride,
            const Epilogue& epilogue) {
  check_shapes(w, x, epilogue);
  prepare_input(context, x, w.input_form_);
  const int64_t rows = is_gated(epilogue) ? w.rows_ / 2 : w.rows_;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  context.pool.parallel_for(tiles, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      run_tile(w, x, i * kTileRows, std::min(rows, (i + 1) * kTileRows), 0, x.tokens, y, y_stride, epilogue);
  });
}

void grouped_matmul(const Context& context, std::span<const PackedMatrix> experts, MatmulInput& x,
                    std::span<const int32_t> row_offsets, float* y, int64_t y_stride,
                    const Epilogue& epilogue) {
  check(row_offsets.size() == experts.size() + 1, "{} experts with {} offsets", experts.size(),
        row_offsets.size());
  if (experts.empty()) return;
  const int64_t all_rows = experts[0].rows_;
  const int64_t rows = is_gated(epilogue) ? all_rows / 2 : all_rows;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (const PackedMatrix& w : experts) {
    check_shapes(w, x, epilogue);
    check(w.rows_ == all_rows, "experts of {} and {} rows in one group", all_rows, w.rows_);
    prepare_input(context, x, w.input_form_);
  }
  context.pool.parallel_for(tiles * static_cast<int64_t>(experts.size()), 1,
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t i = begin; i < end; ++i) {
                                const auto e = static_cast<size_t>(i / tiles);
                                const int64_t row = i % tiles * kTileRows;
                                if (row_offsets[e] < row_offsets[e + 1])
                                  run_tile(experts[e], x, row, std::min(rows, row + kTileRows),
                                           row_offsets[e], row_offsets[e + 1], y, y_stride, epilogue);
                              }
                            });
}

}  // namespace millrace::ops
