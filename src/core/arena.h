// Memory for a step. An Arena is a bump allocator over one aligned buffer: it grows only between steps
// (reserve), so that nothing is allocated inside one once it has seen its largest step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace millrace {

inline constexpr size_t kHugePage = size_t{2} << 20;  ///< bytes of a transparent huge page

/// Uninitialised bytes at 64-byte alignment (2 MiB alignment and transparent huge pages from 2 MiB up).
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// Error(kOutOfMemory) with the size when the system refuses.
  explicit AlignedBuffer(size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& o) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& o) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// Has the system bring [begin, end), which is clipped to the buffer, into memory now instead of on first
  /// use; what was written stays. False where it does not know how to (before Linux 5.14) or has none left.
  bool populate(size_t begin, size_t end);

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

class Arena {
 public:
  /// `count` uninitialised elements at 64-byte alignment, valid until reset(). What does not fit the buffer
  /// comes from overflow buffers, and the next reset() grows the main buffer to hold all of it.
  template <typename T>
  T* allocate(int64_t count) {
    return reinterpret_cast<T*>(allocate_bytes(static_cast<size_t>(count) * sizeof(T)));
  }
  void* allocate_bytes(size_t bytes);

  /// Forgets everything handed out; keeps the memory.
  void reset();

  /// A point to come back to: release(mark()) frees what was allocated since, within one step.
  struct Mark {
    size_t used;
  };
  Mark mark() const { return {used_}; }
  void release(Mark m) { used_ = m.used; }

  size_t capacity() const { return buffer_.size(); }
  size_t peak() const { return peak_; }

 private:
  AlignedBuffer buffer_;
  std::vector<AlignedBuffer> overflow_;
  size_t overflow_bytes_ = 0;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace millrace
