#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace millrace {

std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}",
         path.string(), std::strerror(errno));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat info {};
  require(::fstat(fd, &info) == 0, ErrorCode::kIo, "cannot stat {}: {}", path.string(), std::strerror(errno));
  require(!S_ISDIR(info.st_mode), ErrorCode::kInvalidArgument, "{} is a directory: expected a file",
          path.string());
  require(S_ISREG(info.st_mode), ErrorCode::kInvalidArgument, "{} is not a regular file", path.string());
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  file->size_ = static_cast<size_t>(info.st_size);
  if (file->size_) {
    void* data = ::mmap(nullptr, file->size_, PROT_READ, MAP_PRIVATE, fd, 0);
    require(data != MAP_FAILED, ErrorCode::kIo, "cannot map {}: {}", path.string(), std::strerror(errno));
    file->data_ = static_cast<const std::byte*>(data);
  }
  return file;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

namespace {
/// Calls madvise on the whole pages inside (inner) or touching (outer) the range.
void advise(const void* begin, size_t bytes, int advice, bool inner) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto first = reinterpret_cast<uintptr_t>(begin), last = first + bytes;
  first = inner ? (first + page - 1) / page * page : first / page * page;
  last = inner ? last / page * page : (last + page - 1) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}
}  // namespace

void MappedFile::release(const void* begin, size_t bytes) const { advise(begin, bytes, MADV_DONTNEED, true); }
void MappedFile::prefetch(const void* begin, size_t bytes) const {
  advise(begin, bytes, MADV_WILLNEED, false);
}

}  // namespace millrace
