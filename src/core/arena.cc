#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/checked.h"
#include "core/error.h"

namespace millrace {

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const bool huge = bytes >= kHugePage;
  void* data = nullptr;
  require(posix_memalign(&data, huge ? kHugePage : 64, (bytes + 63) / 64 * 64) == 0 && data != nullptr,
          ErrorCode::kOutOfMemory, "cannot allocate {} bytes", bytes);
  data_ = static_cast<std::byte*>(data);
  // Whole huge pages only: the rest of the last one would be memory that nobody asked for.
  if (huge) madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
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
