// Packing: weights in their file's form become rows in the layout that the kernels read.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/checked.h"
#include "core/error.h"
#include "ops/matmul.h"
#include "quant/traits.h"

namespace millrace::ops {
namespace {

using kernels::kMatmulRows;

uint64_t source_row_bytes(const TensorView& view) {
  const auto bytes = quant::row_bytes(view.dtype, static_cast<uint64_t>(view.shape.back()));
  require(bytes.has_value(), ErrorCode::kInvalidArgument,
          "a {} matrix cannot have rows of {} elements: expected a multiple of {}", dtype_name(view.dtype),
          view.shape.back(), quant::traits(view.dtype).block_elements);
  return *bytes;
}

void check_parts(std::span<const MatrixSource> parts) {
  require(!parts.empty(), ErrorCode::kInvalidArgument, "a packed matrix needs at least one part");
  const TensorView& first = parts[0].view;
  require(quant::traits(first.dtype).decode != nullptr, ErrorCode::kUnsupported,
          "matrices of type {} cannot be multiplied: there is no decoder for it", dtype_name(first.dtype));
  for (const MatrixSource& part : parts) {
    require(part.view.shape.ndim >= 1 && part.view.shape.rows() > 0 && part.view.shape.back() > 0,
            ErrorCode::kInvalidArgument, "a matrix of shape {} cannot be packed: expected rows and columns",
            part.view.shape.to_string());
    require(part.view.dtype == first.dtype && part.view.shape.back() == first.shape.back(),
            ErrorCode::kInvalidArgument, "stacked matrices differ: {} {} beside {} {}",
            dtype_name(first.dtype), first.shape.to_string(), dtype_name(part.view.dtype),
            part.view.shape.to_string());
  }
}

/// The rows of all parts, one after the other.
class StackedRows {
 public:
  StackedRows(std::span<const MatrixSource> parts, uint64_t row_bytes)
      : parts_(parts), row_bytes_(row_bytes), zeros_(row_bytes) {}

  /// Zeros beyond the last.
  const std::byte* row(int64_t index) const {
    for (const MatrixSource& part : parts_) {
      const int64_t rows = part.view.shape.rows();
      if (index < rows) return bytes(part) + static_cast<size_t>(index) * row_bytes_;
      index -= rows;
    }
    return zeros_.data();
  }

  /// Tells each part's owner that rows [begin, end) are not needed any more.
  void release(int64_t begin, int64_t end) const {
    for (const MatrixSource& part : parts_) {
      const int64_t rows = part.view.shape.rows();
      const int64_t first = std::clamp<int64_t>(begin, 0, rows), last = std::clamp<int64_t>(end, 0, rows);
      if (part.release && first < last)
        part.release(bytes(part) + static_cast<size_t>(first) * row_bytes_,
                     static_cast<size_t>(last - first) * row_bytes_);
      begin -= rows;
      end -= rows;
    }
  }

 private:
  static const std::byte* bytes(const MatrixSource& part) {
    return static_cast<const std::byte*>(part.view.data);
  }

  std::span<const MatrixSource> parts_;
  size_t row_bytes_;
  std::vector<std::byte> zeros_;
};

}  // namespace

bool can_stack(std::span<const MatrixSource> parts) {
  for (const MatrixSource& part : parts)
    if (part.view.dtype != parts[0].view.dtype || part.view.shape.back() != parts[0].view.shape.back())
      return false;
  return !parts.empty();
}

PackedMatrix pack_matrix(std::span<const MatrixSource> parts, IsaLevel isa, ThreadPool& pool) {
  check_parts(parts);
  PackedMatrix packed;
  packed.source_type_ = parts[0].view.dtype;
  packed.cols_ = parts[0].view.shape.back();
  for (const MatrixSource& part : parts) packed.rows_ += part.view.shape.rows();
  const uint64_t row_bytes = source_row_bytes(parts[0].view);
  packed.layout_ = kernels::matmul_layout(packed.source_type_, isa);
  require(packed.layout_ != nullptr, ErrorCode::kUnsupported, "matrices of type {} cannot be multiplied",
          dtype_name(packed.source_type_));
  packed.panel_bytes_ = packed.layout_->panel_bytes(packed.cols_);
  const int64_t panels = (packed.rows_ + kMatmulRows - 1) / kMatmulRows;
  const auto total = checked_mul(static_cast<uint64_t>(packed.panel_bytes_), static_cast<uint64_t>(panels));
  require(total.has_value(), ErrorCode::kInvalidArgument, "a matrix of {} rows of {} bytes is too large",
          packed.rows_, row_bytes);
  packed.data_ = AlignedBuffer(*total);

  const StackedRows rows(parts, row_bytes);
  // About four MiB of the source at a time, then its pages may go.
  const int64_t grain =
      std::max<int64_t>(1, static_cast<int64_t>((uint64_t{4} << 20) / (row_bytes * kMatmulRows)));
  std::mutex release_mutex;
  pool.parallel_for(panels, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const std::byte* sources[kMatmulRows];
      for (int64_t i = 0; i < kMatmulRows; ++i) sources[i] = rows.row(panel * kMatmulRows + i);
      packed.layout_->pack(sources, packed.cols_, packed.data_.data() + panel * packed.panel_bytes_);
    }
    std::lock_guard lock(release_mutex);
    rows.release(begin * kMatmulRows, std::min(packed.rows_, end * kMatmulRows));
  });
  return packed;
}

}  // namespace millrace::ops
