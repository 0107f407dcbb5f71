#include "compress/train/orthogonal.h"

#include <algorithm>
#include <cmath>

namespace millrace::train {
namespace {

void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
}

/// c[m][n] = a[m][k] * b[k][n]
void multiply(const Kernels& kernels, const float* a, const float* b, int64_t m, int64_t k, int64_t n,
              float* c, std::vector<float>& panels) {
  panels.resize(static_cast<size_t>(k * n));
  auto* packed = reinterpret_cast<Word*>(panels.data());
  kernels.pack_f32(b, k, n, n, packed);
  for (int64_t column = 0; column < n; column += kPanelColumns)
    for (int64_t row = 0; row < m; row += kTileRows)
      kernels.gemm_f32(reinterpret_cast<const Word*>(a + row * k), k, 1, packed + column * k, k,
                       c + row * n + column, n, Into::kStore);
}

}  // namespace

void orthogonalise(const Kernels& kernels, float* matrix, int64_t rows, int64_t columns,
                   OrthogonalScratch& s) {
  const int64_t count = rows * columns, m = std::min(rows, columns), n = std::max(rows, columns);
  const float norm = std::sqrt(kernels.dot(matrix, matrix, count));
  if (!(norm > 0)) return;
  kernels.scale(matrix, 1.0f / norm, count);
  for (auto* buffer : {&s.x, &s.next, &s.transposed}) buffer->resize(static_cast<size_t>(count));
  for (auto* buffer : {&s.square, &s.polynomial}) buffer->resize(static_cast<size_t>(m * m));
  // The wide form has the smaller square.
  if (rows > columns)
    transpose(matrix, rows, columns, s.x.data());
  else
    std::copy_n(matrix, count, s.x.data());
  for (int step = 0; step < 5; ++step) {
    transpose(s.x.data(), m, n, s.transposed.data());
    multiply(kernels, s.x.data(), s.transposed.data(), m, n, m, s.square.data(), s.panels);
    multiply(kernels, s.square.data(), s.square.data(), m, m, m, s.polynomial.data(), s.panels);
    // x := a x + (b S + c S^2) x with S = x x^T
    kernels.scale(s.polynomial.data(), 2.0315f, m * m);
    kernels.add_scaled(s.square.data(), -4.7750f, s.polynomial.data(), m * m);
    for (int64_t i = 0; i < m; ++i) s.polynomial[static_cast<size_t>(i * m + i)] += 3.4445f;
    multiply(kernels, s.polynomial.data(), s.x.data(), m, m, n, s.next.data(), s.panels);
    std::swap(s.x, s.next);
  }
  if (rows > columns)
    transpose(s.x.data(), columns, rows, matrix);
  else
    std::copy_n(s.x.data(), count, matrix);
}

}  // namespace millrace::train
