// A progress line on standard error, shown once the work has taken half a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace millrace::cli {

class Progress {
 public:
  /// `enabled` false: draws nothing (standard error is no terminal).
  Progress(std::string label, bool enabled);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `unit` "B" shows sizes, anything else plain counts. Draws at most ten times a second.
  void update(uint64_t done, uint64_t total, const std::string& unit);
  /// Removes the line.
  void finish();

 private:
  std::string label_;
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point begin_, last_;
};

/// All of standard input. Throws IoError where it cannot be read.
std::string read_standard_input();

/// "1.2 GiB"
std::string human_bytes(uint64_t bytes);

}  // namespace millrace::cli
