// The server as clients meet it: `millrace serve` as a process, and raw sockets, so that what is malformed,
// slow or gone can be sent exactly.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "testing/testing.h"

namespace millrace::server {

using namespace std::chrono_literals;
using nlohmann::json;

/// A `millrace serve` of the test's own, on a port of the system's choice.
class Served {
 public:
  /// Without a model: the one that is embedded.
  explicit Served(const std::filesystem::path& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {millrace::testing::millrace_binary().string(),
                                     "serve",
                                     "--port",
                                     "0",
                                     "--threads",
                                     "1",
                                     "--kv-memory",
                                     "16MiB",
                                     "--drain-seconds",
                                     "2"};
    if (std::find(more.begin(), more.end(), "--header-seconds") == more.end())
      args.insert(args.end(), {"--header-seconds", "1"});
    if (!model.empty()) args.insert(args.end(), {"-m", model.string()});
    args.insert(args.end(), more.begin(), more.end());
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(pipe_ends[1], 2);
      close(pipe_ends[0]);
      std::vector<char*> argv;
      for (std::string& a : args) argv.push_back(a.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(pipe_ends[1]);
    // "... is served on http://127.0.0.1:PORT" comes when the model is ready; what follows is read and
    // dropped.
    std::string text;
    char c;
    while (read(pipe_ends[0], &c, 1) == 1) {
      text += c;
      const size_t at = text.find("is served on ");
      if (at == std::string::npos || c != '\n') continue;
      const size_t colon = text.rfind(':');
      if (colon > at) port_ = std::stoi(text.substr(colon + 1));
      break;
    }
    log_ = std::thread([this, fd = pipe_ends[0]] {
      char buffer[4096];
      for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) {
        const std::lock_guard lock(mutex_);
        if (text_.size() < (size_t{1} << 22)) text_.append(buffer, static_cast<size_t>(n));
      }
      close(fd);
    });
  }
  /// What it has logged since it was ready.
  std::string logged() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  ~Served() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      waitpid(pid_, &status_, 0);
    }
    if (log_.joinable()) log_.join();
    // A sanitizer that found something while the server ran says so with its status, too.
    if (pid_ > 0) {
      EXPECT_TRUE(WIFEXITED(status_) && WEXITSTATUS(status_) == 0) << "status " << status_ << "\n" << text_;
    }
  }
  int port() const { return port_; }
  pid_t pid() const { return pid_; }
  size_t descriptors() const {
    size_t n = 0;
    for (const auto& e : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid_)))
      n += !e.path().empty();
    return n;
  }
  size_t threads() const {
    size_t n = 0;
    for (const auto& e : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid_)))
      n += !e.path().empty();
    return n;
  }

 private:
  pid_t pid_ = -1;
  int port_ = 0, status_ = 0;
  mutable std::mutex mutex_;
  std::string text_;
  std::thread log_;
};

struct Reply {
  int status = 0;
  std::string head, body;
  json value() const { return json::parse(body, nullptr, false); }
};

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) fd_ = -1;
  }
  ~Client() { drop(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void drop() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  bool send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  /// As small a buffer as the system allows, so that what is not read soon blocks the sender.
  void receive_little() {
    const int size = 1;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  }
  /// The next reply of a connection that stays open.
  Reply reply() {
    Reply r;
    std::string text;
    char buffer[16384];
    for (;;) {
      const size_t end = text.find("\r\n\r\n");
      const size_t at = text.find("Content-Length: ");
      if (end != std::string::npos && at < end) {
        const size_t length = std::stoul(text.substr(at + 16));
        if (text.size() >= end + 4 + length) {
          r.status = std::stoi(text.substr(9, 3));
          r.head = text.substr(0, end);
          r.body = text.substr(end + 4, length);
          return r;
        }
      }
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return r;
      text.append(buffer, static_cast<size_t>(n));
    }
  }
  /// What comes until the connection ends, `until` is seen, or `seconds` are over.
  std::string receive(std::string_view until = "", double seconds = 10) {
    std::string text;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    char buffer[16384];
    while (std::chrono::steady_clock::now() < end) {
      pollfd p{fd_, POLLIN, 0};
      if (poll(&p, 1, 50) <= 0) continue;
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
      if (!until.empty() && text.find(until) != std::string::npos) break;
    }
    return text;
  }

 private:
  int fd_;
};

inline std::string request_text(const std::string& method, const std::string& path, const std::string& body,
                                const std::string& headers = "") {
  return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                     method, path, headers, body.size(), body);
}

inline Reply parse_reply(const std::string& text) {
  Reply r;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos || text.size() < 12) return r;
  r.status = std::stoi(text.substr(9, 3));
  r.head = text.substr(0, end);
  r.body = text.substr(end + 4);
  return r;
}

inline Reply ask(int port, const std::string& method, const std::string& path, const std::string& body = "",
                 const std::string& headers = "") {
  Client c(port);
  c.send_all(request_text(method, path, body, headers));
  return parse_reply(c.receive("", 10 * millrace::testing::slowness()));
}

inline double metric(int port, const std::string& name) {
  const std::string text = ask(port, "GET", "/metrics").body;
  const size_t at = text.find("\n" + name);
  return at == std::string::npos ? -1 : std::stod(text.substr(text.find("} ", at) + 2));
}

}  // namespace millrace::server
