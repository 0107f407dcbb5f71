// A file mapped read-only into memory. Shared between the tensors that point into it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace millrace {

class MappedFile {
 public:
  /// Error(kNotFound / kIo / kInvalidArgument) with the path and what the system said; a directory or a
  /// device is refused.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Tells the kernel that the range was packed elsewhere and its resident pages can go (whole pages inside
  /// it only).
  void release(const void* begin, size_t bytes) const;
  /// Tells the kernel to read the range ahead.
  void prefetch(const void* begin, size_t bytes) const;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace
