// A file that lives in memory, for fuzzing readers that take paths; and seeds for an empty corpus.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace millrace::fuzz {

/// A file of the given bytes that has a path while this object lives.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (file_ < 0) std::abort();
    size_t at = 0;
    while (at < size) {
      const ssize_t n = ::write(file_, data + at, size - at);
      if (n <= 0) std::abort();
      at += static_cast<size_t>(n);
    }
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

/// The corpus folder of the command line (its first argument that is a folder), or "".
inline std::filesystem::path corpus_folder(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::filesystem::is_directory(argv[i])) return argv[i];
  return {};
}

}  // namespace millrace::fuzz
