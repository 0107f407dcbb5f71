// y = x W^T + b. A Linear may be several matrices stacked by rows that could not be packed as one because
// their storage types differ (Q4_K files keep V in Q6_K); to its user it is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "layers/step.h"
#include "ops/matmul.h"

namespace millrace::layers {

class Linear {
 public:
  Linear() = default;
  /// `bias` is empty or has one value per row of all parts together.
  Linear(std::vector<ops::PackedMatrix> parts, std::vector<float> bias = {});

  bool empty() const { return parts_.empty(); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return parts_.empty() ? 0 : parts_[0].cols(); }
  /// One packed matrix: epilogues that pair rows (SwiGLU) are possible.
  bool single() const { return parts_.size() == 1; }
  uint64_t bytes() const;

  /// y [x.tokens, rows()], row stride y_stride.
  void forward(const ops::Context& context, ops::MatmulInput& x, float* y, int64_t y_stride,
               ops::Epilogue epilogue = {}) const;

  /// The one form that all parts read of tokens that are not rounded, if it is one.
  std::optional<ops::InputForm> only_form() const;
  /// Forms of the input that its parts read of tokens that are not rounded, for norm_input.
  void add_forms(std::vector<ops::InputForm>& forms) const;

 private:
  std::vector<ops::PackedMatrix> parts_;
  std::vector<float> bias_;
  int64_t rows_ = 0;
};

}  // namespace millrace::layers
