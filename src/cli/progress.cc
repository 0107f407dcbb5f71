#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "core/error.h"

namespace millrace::cli {

std::string human_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Progress::Progress(std::string label, bool enabled)
    : label_(std::move(label)), enabled_(enabled), begin_(std::chrono::steady_clock::now()), last_(begin_) {}

void Progress::update(uint64_t done, uint64_t total, const std::string& unit) {
  if (!enabled_ || total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - begin_ < std::chrono::milliseconds(500) || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  constexpr int kWidth = 30;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int filled = static_cast<int>(share * kWidth);
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double left = share > 0 ? elapsed * (1 - share) / share : 0;
  const std::string counts = unit == "B" ? fmt::format("{} of {}", human_bytes(done), human_bytes(total))
                                         : fmt::format("{} of {} {}", done, total, unit);
  fmt::print(stderr, "\r{} [{}{}] {:3.0f}%  {}  {:.0f} s left \033[K", label_,
             std::string(static_cast<size_t>(filled), '#'),
             std::string(static_cast<size_t>(kWidth - filled), '.'), share * 100, counts, left);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::finish() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

std::string read_standard_input() {
  std::ostringstream all;
  all << std::cin.rdbuf();
  require(!std::cin.bad(), ErrorCode::kIo, "standard input cannot be read");
  return std::move(all).str();
}

}  // namespace millrace::cli
