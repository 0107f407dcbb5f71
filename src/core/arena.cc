#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/checked.h"
#include "core/error.h"

namespace millrace {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const bool huge = bytes >= 2 * kHugePage;
  const size_t alignment = huge ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  require(rounded >= bytes, ErrorCode::kOutOfMemory, "cannot allocate {} bytes", bytes);
  data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  require(data_ != nullptr, ErrorCode::kOutOfMemory, "cannot allocate {} bytes", bytes);
  if (huge) madvise(data_, rounded, MADV_HUGEPAGE);
}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& o) noexcept {
  if (this != &o) {
    std::free(data_);
    data_ = std::exchange(o.data_, nullptr);
    size_ = std::exchange(o.size_, 0);
  }
  return *this;
}

void* Arena::allocate_bytes(size_t bytes) {
  bytes = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  if (used_ + bytes <= buffer_.size()) {
    void* p = buffer_.data() + used_;
    used_ += bytes;
    peak_ = std::max(peak_, used_ + overflow_bytes_);
    return p;
  }
  overflow_.emplace_back(bytes);
  overflow_bytes_ += bytes;
  peak_ = std::max(peak_, used_ + overflow_bytes_);
  return overflow_.back().data();
}

void Arena::reset() {
  if (!overflow_.empty()) {
    overflow_.clear();
    buffer_ = AlignedBuffer();  // free first: both at once could be the largest allocation of the process
    buffer_ = AlignedBuffer(peak_ + peak_ / 8);
    overflow_bytes_ = 0;
  }
  used_ = 0;
}

}  // namespace millrace
