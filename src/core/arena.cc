#include "core/arena.h"

#include <sys/mman.h>
#include <unistd.h>

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

bool AlignedBuffer::populate(size_t begin, size_t end) {
#ifdef MADV_POPULATE_WRITE
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = reinterpret_cast<uintptr_t>(data_) + std::min(begin, size_),
             to = reinterpret_cast<uintptr_t>(data_) + std::min(end, size_);
  const uintptr_t first = from / page * page;
  return from >= to || madvise(reinterpret_cast<void*>(first), to - first, MADV_POPULATE_WRITE) == 0;
#else
  static_cast<void>(begin);
  static_cast<void>(end);
  return false;
#endif
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
