#include "cli/embedded_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

extern "C" const unsigned char millrace_demo_begin[], millrace_demo_end[];

namespace millrace::cli {

loaders::Checkpoint open_embedded_model() {
  // Loaders map files. An anonymous one in memory gives them one, at the price of a copy of two megabytes.
  const int fd = memfd_create("millrace-embedded-model", MFD_CLOEXEC);
  require(fd >= 0, ErrorCode::kIo, "cannot make room for the embedded model: {}", std::strerror(errno));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  const unsigned char* at = millrace_demo_begin;
  while (at < millrace_demo_end) {
    const ssize_t written = ::write(fd, at, static_cast<size_t>(millrace_demo_end - at));
    require(written > 0, ErrorCode::kIo, "cannot make room for the embedded model: {}", std::strerror(errno));
    at += written;
  }
  // The map outlives the descriptor.
  loaders::Checkpoint checkpoint = loaders::open_gguf(fmt::format("/proc/self/fd/{}", fd));
  checkpoint.path = "the embedded model";
  return checkpoint;
}

}  // namespace millrace::cli
