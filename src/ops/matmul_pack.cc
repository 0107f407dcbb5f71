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
  const auto total = checked_mul(row_bytes, static_cast<uint64_t>(packed.rows_));
  require(total.has_value(), ErrorCode::kInvalidArgument, "a matrix of {} rows of {} bytes is too large",
          packed.rows_, row_bytes);
  packed.data_ = AlignedBuffer(*total);

  std::mutex release_mutex;
  std::byte* destination = packed.data_.data();
  for (const MatrixSource& part : parts) {
    const auto* source = static_cast<const std::byte*>(part.view.data);
    const int64_t rows = part.view.shape.rows();
    const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>((uint64_t{4} << 20) / row_bytes));
    pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
      const size_t offset = static_cast<size_t>(begin) * row_bytes;
      const size_t bytes = static_cast<size_t>(end - begin) * row_bytes;
      std::memcpy(destination + offset, source + offset, bytes);
      if (part.release) {
        std::lock_guard lock(release_mutex);
        part.release(source + offset, bytes);
      }
    });
    destination += static_cast<size_t>(rows) * row_bytes;
  }
  return packed;
}

}  // namespace millrace::ops
