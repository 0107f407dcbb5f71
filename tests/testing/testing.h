// Helpers shared by all tests: where data lies, seeds that are printed, temporary folders.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace::testing {

/// Path of a fixture kept in the project: tests/<relative>.
std::filesystem::path fixture(const std::string& relative);

/// Path of optional data beside the checkout (shared/data/<relative>); empty when it is missing.
/// Use MILLRACE_NEED_SHARED, which skips the test and says so.
std::filesystem::path shared_data(const std::string& relative);

/// The built `millrace` program, or the one that the environment's MILLRACE_BINARY names.
std::filesystem::path millrace_binary();

/// Seed of this run's random tests: MILLRACE_TEST_SEED if set, else a fixed default. Printed at the start of
/// the run.
uint64_t seed();

/// Scale of random tests: MILLRACE_TEST_SCALE (default 1.0) multiplies iteration counts.
int64_t scaled(int64_t iterations);

/// How many times as long things may take in this build: 1, or more under a sanitizer.
double slowness();

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& bytes);

/// A fresh empty folder, removed with its contents when this object dies.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Result of a program run to its end.
struct ProcessResult {
  int exit_status = -1;  ///< exit status, or 128 + signal
  std::string out;
  std::string err;
};

/// Runs `argv[0]` (searched in PATH) with the given standard input; kills it after `timeout_seconds`.
ProcessResult run_process(const std::vector<std::string>& argv, const std::string& input = "",
                          double timeout_seconds = 120);

}  // namespace millrace::testing

/// Binds `var` to the path of optional data, or skips the test with a sentence.
#define MILLRACE_NEED_SHARED(var, relative)                                     \
  const std::filesystem::path var = ::millrace::testing::shared_data(relative); \
  if (var.empty()) GTEST_SKIP() << "skipped: optional data shared/data/" << (relative) << " is not there"
