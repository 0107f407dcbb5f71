#include "core/config.h"

#include <unistd.h>

#include <cstdlib>

namespace millrace::config {

std::string environment(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value ? value : fallback;
}

std::filesystem::path cache_dir() {
  const std::string xdg = environment("XDG_CACHE_HOME");
  if (!xdg.empty()) return std::filesystem::path(xdg) / "millrace";
  return std::filesystem::path(environment("HOME", "/tmp")) / ".cache" / "millrace";
}

bool interactive_stderr() { return isatty(STDERR_FILENO) == 1; }

}  // namespace millrace::config
