// A view of a tensor: pointer, type, shape. It owns nothing. Rows are contiguous: dimension `ndim-1` is the
// innermost, as in PyTorch (a GGUF shape is reversed by its loader).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/dtype.h"

namespace millrace {

inline constexpr int kMaxDims = 4;

struct Shape {
  std::array<int64_t, kMaxDims> dims{};  ///< outermost first
  int ndim = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) {
    for (int64_t d : list)
      if (ndim < kMaxDims) dims[ndim++] = d;
  }
  int64_t operator[](int i) const { return dims[i]; }
  int64_t back() const { return ndim ? dims[ndim - 1] : 1; }
  /// Number of elements; callers that read shapes from files check for overflow first.
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= dims[i];
    return n;
  }
  /// Product of all but the innermost dimension.
  int64_t rows() const { return back() ? elements() / back() : 0; }
  bool operator==(const Shape& o) const {
    if (ndim != o.ndim) return false;
    for (int i = 0; i < ndim; ++i)
      if (dims[i] != o.dims[i]) return false;
    return true;
  }
  /// "[4096, 128]"
  std::string to_string() const;
};

struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  const float* f32() const { return static_cast<const float*>(data); }
};

}  // namespace millrace
