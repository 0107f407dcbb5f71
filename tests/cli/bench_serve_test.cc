// `millrace bench serve` against a server whose answers are known, and against `millrace serve`.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "testing/testing.h"

namespace {

using namespace std::chrono_literals;
using nlohmann::json;

/// Answers every request to /v1/completions alike: the pieces with a pause before each. One thread a
/// connection.
class CannedServer {
 public:
  CannedServer(std::vector<std::string> pieces, std::chrono::milliseconds pause, std::string head)
      : pieces_(std::move(pieces)), pause_(pause), head_(std::move(head)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~CannedServer() {
    shutdown(listener_, SHUT_RDWR);
    close(listener_);
    thread_.join();
    for (auto& t : clients_) t.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int requests() const { return requests_; }
  int connections() const { return connections_; }

 private:
  void accept_all() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      // Small pieces must not wait for each other's acknowledgement.
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ++connections_;
      clients_.emplace_back([this, fd] {
        while (answer(fd)) {
        }
        close(fd);
      });
    }
  }
  static void put(int fd, const std::string& text) {
    [[maybe_unused]] const auto n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }
  bool answer(int fd) {
    std::string text;
    size_t end, length = 0;
    char buffer[4096];
    for (;;) {
      end = text.find("\r\n\r\n");
      if (end != std::string::npos) {
        const size_t at = text.find("Content-Length: ");
        length = at < end ? std::stoul(text.substr(at + 16)) : 0;
        if (text.size() >= end + 4 + length) break;
      }
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) return false;
      text.append(buffer, static_cast<size_t>(n));
    }
    ++requests_;
    const json body = json::parse(text.substr(end + 4), nullptr, false);
    if (!body.is_object() || !body["stream"].get<bool>() || body["prompt"].size() != 12) {
      put(fd, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
      return true;
    }
    put(fd, head_);
    for (const std::string& piece : pieces_) {
      std::this_thread::sleep_for(pause_);
      put(fd, fmt(piece));
    }
    if (pieces_.empty()) return false;
    put(fd, "0\r\n\r\n");
    return true;
  }
  static std::string fmt(const std::string& piece) {
    char size[16];
    snprintf(size, sizeof size, "%zx\r\n", piece.size());
    return size + piece + "\r\n";
  }

  std::vector<std::string> pieces_;
  std::chrono::milliseconds pause_;
  std::string head_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> requests_{0}, connections_{0};
  std::thread thread_;
  std::vector<std::thread> clients_;
};

const std::string kStream =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string token_event(const std::string& text) {
  return "data: " + json{{"choices", {{{"text", text}, {"finish_reason", nullptr}}}}}.dump() + "\n\n";
}

json bench(const std::string& url, std::vector<std::string> more, int status = 0) {
  std::vector<std::string> argv = {millrace::testing::millrace_binary().string(), "bench", "serve", url,
                                   "--json"};
  argv.insert(argv.end(), more.begin(), more.end());
  const auto result = millrace::testing::run_process(argv);
  EXPECT_EQ(result.exit_status, status) << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(BenchServe, CountsWhatAServerIsKnownToAnswer) {
  const std::string usage =
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":4,"
      "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\r\n\r\n";
  // An event in two pieces, two in one, other line ends, a comment: all as the format allows.
  const std::string split = token_event("b");
  const CannedServer server({token_event("a"), split.substr(0, 9), split.substr(9) + ": comment\n\n",
                             token_event("c") + token_event("d"), usage + "data: [DONE]\n\n"},
                            10ms, kStream);
  const millrace::testing::TempDir dir;
  const json j =
      bench(server.url(), {"--model", "m", "--clients", "3", "--requests", "12", "--prompt", "8",
                           "--shared-prompt", "4", "--output", "4", "--plot", (dir / "p.svg").string()});
  ASSERT_TRUE(j.is_object());
  EXPECT_EQ(j["answered"], 12);
  EXPECT_EQ(j["failed"], 0);
  EXPECT_EQ(j["output_tokens"], 48);
  EXPECT_EQ(j["prompt_tokens"], 144);
  EXPECT_EQ(j["cached_prompt_tokens"], 96);
  EXPECT_EQ(j["itl"]["count"], 36);
  EXPECT_EQ(j["good"], 12);
  EXPECT_GE(j["ttft"]["p50"], 0.009);
  EXPECT_LT(j["ttft"]["p50"], 0.2);
  // Four pieces of ten milliseconds after the first token's, over three more tokens: "a" to "d" is 30 ms.
  EXPECT_GE(j["tpot"]["p50"], 0.0095);
  EXPECT_GE(j["e2e"]["p50"], 0.048);
  EXPECT_EQ(server.requests(), 12);
  EXPECT_EQ(server.connections(), 3);
  const std::string svg = millrace::testing::read_file(dir / "p.svg");
  EXPECT_NE(svg.find("time to first token"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);

  const json strict =
      bench(server.url(), {"--model", "m", "--requests", "2", "--prompt", "12", "--sla-ttft", "0.001"});
  EXPECT_EQ(strict["answered"], 2);
  EXPECT_EQ(strict["good"], 0);
}

TEST(BenchServe, OpenLoopKeepsItsTimes) {
  const CannedServer server({token_event("a"), "data: [DONE]\n\n"}, 100ms, kStream);
  // Fifty a second: far more than one after the other could be, which would take eight seconds. A machine
  // that is busy otherwise may need a second try.
  json j;
  for (int attempt = 0; attempt < 3 && (j.is_null() || j["seconds"] >= 3.0); ++attempt)
    j = bench(server.url(), {"--model", "m", "--rate", "50", "--requests", "40", "--prompt", "12"});
  EXPECT_EQ(j["answered"], 40);
  EXPECT_LT(j["seconds"], 3.0);
  EXPECT_GT(server.connections(), 3);

  const millrace::testing::TempDir dir;
  millrace::testing::write_file(dir / "t.csv",
                                "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.50,12,3\n"
                                "2023-11-16 18:15:47.50,20,5\r\n2023-11-16 18:16:26.50,12,1\n");
  json t;
  for (int attempt = 0; attempt < 3 && (t.is_null() || t["seconds"] >= 2.0); ++attempt)
    t = bench(server.url(), {"--model", "m", "--trace", (dir / "t.csv").string(), "--speed", "100",
                             "--prompt", "12", "--output", "4"});
  EXPECT_EQ(t["answered"], 3);
  EXPECT_GE(t["seconds"], 0.4);
  EXPECT_LT(t["seconds"], 2.0);
  millrace::testing::write_file(dir / "t.csv",
                                "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.50,twelve,3\n");
  const auto bad =
      millrace::testing::run_process({millrace::testing::millrace_binary().string(), "bench", "serve",
                                      server.url(), "--model", "m", "--trace", (dir / "t.csv").string()});
  EXPECT_EQ(bad.exit_status, 1);
  EXPECT_NE(bad.err.find("line 2"), std::string::npos) << bad.err;
}

TEST(BenchServe, FailuresAreCountedWithTheirReasons) {
  const auto failures = [](const CannedServer& server) {
    return bench(server.url(), {"--model", "m", "--clients", "2", "--requests", "4", "--prompt", "12"}, 1);
  };
  const CannedServer busy({"x"}, 1ms,
                          "HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n");
  json j = failures(busy);
  EXPECT_EQ(j["failed"], 4);
  EXPECT_EQ(j["errors"]["status 503: x"], 4) << j["errors"];
  const CannedServer cut({token_event("a")}, 1ms, kStream);
  EXPECT_EQ(failures(cut)["errors"]["the stream ended before its end was announced"], 4);
  const CannedServer told({"data: {\"error\":{\"message\":\"too late\"}}\n\n"}, 1ms, kStream);
  EXPECT_EQ(failures(told)["errors"]["too late"], 4);
  const CannedServer rubbish({"data: {nonsense\n\n"}, 1ms, kStream);
  EXPECT_EQ(failures(rubbish)["failed"], 4);
  const CannedServer gone({}, 1ms, "");
  EXPECT_EQ(failures(gone)["failed"], 4);
  EXPECT_EQ(failures(gone)["answered"], 0);
}

TEST(BenchServe, WrongUsageIsToldInASentence) {
  const auto status = [](std::vector<std::string> more) {
    std::vector<std::string> argv = {millrace::testing::millrace_binary().string(), "bench", "serve"};
    argv.insert(argv.end(), more.begin(), more.end());
    return millrace::testing::run_process(argv).exit_status;
  };
  EXPECT_EQ(status({"--requests", "1"}), 2);
  EXPECT_EQ(status({"ftp://localhost", "--requests", "1"}), 2);
  EXPECT_EQ(status({"http://127.0.0.1:1"}), 2);
  EXPECT_EQ(status({"http://127.0.0.1:1", "--requests", "1", "--rate", "1", "--clients", "2"}), 2);
  EXPECT_EQ(status({"http://127.0.0.1:1", "--requests", "1"}), 1);
}

TEST(BenchServe, AgainstTheServer) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const millrace::testing::TempDir dir;
  const std::string cache = (dir / "cache").string(), program = millrace::testing::millrace_binary().string();
  for (const bool again : {false, true}) {
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(ends[1], 2);
      execl(program.c_str(), program.c_str(), "serve", "--port", "0", "--threads", "1", "--kv-memory",
            "16MiB", "--quiet", "--cache-dir", cache.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    std::string text;
    char c;
    while (text.find("is served on ") == std::string::npos || c != '\n') {
      ASSERT_EQ(read(ends[0], &c, 1), 1);
      text += c;
    }
    const size_t at = text.find("http://");
    const std::string url = text.substr(at, text.find('\n', at) - at);
    const json j = bench(url, {"--clients", "4", "--requests", "12", "--prompt", "20", "--shared-prompt",
                               "64", "--output", "9", "--intruder", "200@0"});
    EXPECT_EQ(j["answered"], 13) << j["errors"];
    EXPECT_EQ(j["output_tokens"], 12 * 9 + 8);
    EXPECT_EQ(j["prompt_tokens"], 12 * 84 + 264);
    // After a restart even the first finds the shared prompt.
    EXPECT_GE(j["cached_prompt_tokens"], again ? 13 * 64 : 9 * 64);
    EXPECT_GT(j["intruder"]["ttft"], 0.0);
    kill(pid, SIGTERM);
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
