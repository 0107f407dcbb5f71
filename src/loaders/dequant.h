// Any tensor of a checkpoint as floats: block formats decoded, FP8 multiplied by the scale tensor that lies
// beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "loaders/checkpoint.h"

namespace millrace::loaders {

/// Reads rows of one tensor. FP8 checkpoints keep a scale beside "X": "X_scale_inv" or "X_scale", either one
/// number for the tensor, one for each row, or one for each block of rows and columns (128 x 128 unless
/// quantization_config.weight_block_size says otherwise); values are multiplied by it, whatever its name.
class RowReader {
 public:
  /// The tensor must outlive this. Error(kUnsupported) for integers, kInvalidFile when a scale's shape does
  /// not fit.
  RowReader(const Checkpoint& checkpoint, const TensorEntry& tensor);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  bool scaled() const { return !scales_.empty(); }

  /// Rows [begin, begin + count), each columns() floats. Safe to call from several threads.
  void read(int64_t begin, int64_t count, float* out) const;

 private:
  const TensorEntry& tensor_;
  int64_t rows_, columns_;
  uint64_t row_bytes_;
  std::vector<float> scales_;  ///< [matrices, row blocks, column blocks]; empty: none
  int64_t matrix_rows_ = 0;    ///< rows of one matrix (a 3-D tensor holds several)
  int64_t block_rows_ = 0, block_columns_ = 0, scale_rows_ = 0, scale_columns_ = 0;
};

/// The tensor that scales `tensor`; null when there is none.
const TensorEntry* find_scale(const Checkpoint& checkpoint, const TensorEntry& tensor);
/// Whether `tensor` is itself such a scale of another tensor.
bool is_scale(const Checkpoint& checkpoint, const TensorEntry& tensor);

}  // namespace millrace::loaders
