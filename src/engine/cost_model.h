// What a step costs on this machine, learned as it runs: seconds = fixed + per_row * rows, fitted to the
// recent steps.
#pragma once

#include <algorithm>
#include <cstdint>

namespace millrace::engine {

class CostModel {
 public:
  void record(int64_t rows, double seconds) {
    // Least squares with forgetting: a step counts half as much after some seventy others.
    constexpr double kKeep = 0.99;
    const auto x = static_cast<double>(rows);
    weight_ = kKeep * weight_ + 1;
    x_ = kKeep * x_ + x;
    xx_ = kKeep * xx_ + x * x;
    y_ = kKeep * y_ + seconds;
    xy_ = kKeep * xy_ + x * seconds;
    const double determinant = weight_ * xx_ - x_ * x_;
    // While all steps are of one size the slope cannot be told; the last one known is kept and the level
    // follows.
    if (determinant > 0.05 * weight_ * xx_) {
      per_row_ = std::max((weight_ * xy_ - x_ * y_) / determinant, 1e-9);
    } else if (per_row_ == 0 && x_ > 0) {
      per_row_ = y_ / x_;
    }
    fixed_ = std::max((y_ - per_row_ * x_) / weight_, 0.0);
  }
  bool known() const { return per_row_ > 0; }
  double per_row() const { return per_row_; }
  double fixed() const { return fixed_; }
  double step(int64_t rows) const { return fixed_ + per_row_ * static_cast<double>(rows); }

 private:
  double weight_ = 0, x_ = 0, xx_ = 0, y_ = 0, xy_ = 0;
  double fixed_ = 0, per_row_ = 0;
};

}  // namespace millrace::engine
