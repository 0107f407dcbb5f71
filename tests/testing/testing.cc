#include "testing/testing.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace millrace::testing {

std::filesystem::path fixture(const std::string& relative) {
  return std::filesystem::path(MILLRACE_TEST_DIR) / relative;
}

std::filesystem::path shared_data(const std::string& relative) {
  const char* env = std::getenv("MILLRACE_SHARED_DATA");
  const std::filesystem::path path = std::filesystem::path(env ? env : MILLRACE_SHARED_DATA) / relative;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

std::filesystem::path millrace_binary() {
  const char* env = std::getenv("MILLRACE_BINARY");
  return env ? env : MILLRACE_BINARY;
}

uint64_t seed() {
  static const uint64_t value = [] {
    const char* env = std::getenv("MILLRACE_TEST_SEED");
    return env ? std::strtoull(env, nullptr, 10) : uint64_t{20260726};
  }();
  return value;
}

int64_t scaled(int64_t iterations) {
  const char* env = std::getenv("MILLRACE_TEST_SCALE");
  const double scale = env ? std::atof(env) : 1.0;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(iterations) * scale));
}

double slowness() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return 10;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
  return 10;
#else
  return 1;
#endif
#else
  return 1;
#endif
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "millrace-test-XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ProcessResult run_process(const std::vector<std::string>& argv, const std::string& input,
                          double timeout_seconds) {
  int in_pipe[2], out_pipe[2], err_pipe[2];
  if (pipe2(in_pipe, O_CLOEXEC) || pipe2(out_pipe, O_CLOEXEC) || pipe2(err_pipe, O_CLOEXEC))
    throw std::runtime_error("pipe failed");
  std::vector<char*> args;
  for (const auto& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) {
    dup2(in_pipe[0], 0);
    dup2(out_pipe[1], 1);
    dup2(err_pipe[1], 2);
    execvp(args[0], args.data());
    _exit(127);
  }
  close(in_pipe[0]);
  close(out_pipe[1]);
  close(err_pipe[1]);
  signal(SIGPIPE, SIG_IGN);
  fcntl(in_pipe[1], F_SETFL, O_NONBLOCK);
  ProcessResult result;
  size_t written = 0;
  bool in_open = true, out_open = true, err_open = true, killed = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (out_open || err_open) {
    if (in_open && written == input.size()) {
      close(in_pipe[1]);
      in_open = false;
    }
    pollfd fds[3] = {{out_open ? out_pipe[0] : -1, POLLIN, 0},
                     {err_open ? err_pipe[0] : -1, POLLIN, 0},
                     {in_open ? in_pipe[1] : -1, POLLOUT, 0}};
    poll(fds, 3, 100);
    char buffer[65536];
    if (out_open && fds[0].revents) {
      const ssize_t n = read(out_pipe[0], buffer, sizeof buffer);
      if (n > 0)
        result.out.append(buffer, static_cast<size_t>(n));
      else
        out_open = false;
    }
    if (err_open && fds[1].revents) {
      const ssize_t n = read(err_pipe[0], buffer, sizeof buffer);
      if (n > 0)
        result.err.append(buffer, static_cast<size_t>(n));
      else
        err_open = false;
    }
    if (in_open && fds[2].revents) {
      const ssize_t n = write(in_pipe[1], input.data() + written, input.size() - written);
      if (n > 0)
        written += static_cast<size_t>(n);
      else {
        close(in_pipe[1]);
        in_open = false;
      }
    }
    if (!killed && std::chrono::steady_clock::now() > deadline) {
      kill(pid, SIGKILL);
      killed = true;
    }
  }
  if (in_open) close(in_pipe[1]);
  close(out_pipe[0]);
  close(err_pipe[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace millrace::testing
