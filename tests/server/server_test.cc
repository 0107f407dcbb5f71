// The server as clients meet it: raw sockets against `millrace serve`, so that what is malformed, slow or
// gone can be sent exactly. The model is stories260K; without it the tests that need one are skipped.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "server/keys.h"
#include "testing/testing.h"

namespace millrace::server {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

/// A `millrace serve` of the test's own, on a port of the system's choice.
class Served {
 public:
  Served(const std::filesystem::path& model, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {millrace::testing::millrace_binary().string(),
                                     "serve",
                                     "-m",
                                     model.string(),
                                     "--port",
                                     "0",
                                     "--threads",
                                     "1",
                                     "--kv-memory",
                                     "16MiB",
                                     "--header-seconds",
                                     "1",
                                     "--drain-seconds",
                                     "2"};
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
    log_ = std::thread([fd = pipe_ends[0]] {
      char buffer[4096];
      while (read(fd, buffer, sizeof buffer) > 0) {
      }
      close(fd);
    });
  }
  ~Served() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      waitpid(pid_, &status_, 0);
    }
    if (log_.joinable()) log_.join();
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
  std::thread log_;
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

struct Reply {
  int status = 0;
  std::string head, body;
  json value() const { return json::parse(body, nullptr, false); }
};

std::string request_text(const std::string& method, const std::string& path, const std::string& body,
                         const std::string& headers = "") {
  return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                     method, path, headers, body.size(), body);
}

Reply parse_reply(const std::string& text) {
  Reply r;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos || text.size() < 12) return r;
  r.status = std::stoi(text.substr(9, 3));
  r.head = text.substr(0, end);
  r.body = text.substr(end + 4);
  return r;
}

Reply ask(int port, const std::string& method, const std::string& path, const std::string& body = "",
          const std::string& headers = "") {
  Client c(port);
  c.send_all(request_text(method, path, body, headers));
  return parse_reply(c.receive());
}

double metric(int port, const std::string& name) {
  const std::string text = ask(port, "GET", "/metrics").body;
  const size_t at = text.find("\n" + name);
  return at == std::string::npos ? -1 : std::stod(text.substr(text.find("} ", at) + 2));
}

TEST(Keys, OnlyTheRightKeyOpens) {
  const millrace::testing::TempDir folder;
  millrace::testing::write_file(folder / "keys", "# mine\nalpha\n  beta \n\n");
  const ApiKeys keys((folder / "keys").string());
  EXPECT_EQ(keys.tenant_of("Bearer alpha"), "key0");
  EXPECT_EQ(keys.tenant_of("Bearer beta"), "key1");
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa", "Bearer # mine", "ALPHA"})
    EXPECT_FALSE(keys.tenant_of(wrong).has_value()) << wrong;
  millrace::testing::write_file(folder / "none", "# nothing\n");
  EXPECT_THROW(ApiKeys((folder / "none").string()), Error);
  EXPECT_THROW(ApiKeys((folder / "missing").string()), Error);
}

TEST(Server, AnswersWholeAndStreamedAlike) {
  MILLRACE_NEED_SHARED(model, "models/stories260K.gguf");
  const std::string story =
      millrace::testing::read_file(millrace::testing::shared_data("models/stories260K.greedy.txt"));
  Served s(model);
  ASSERT_GT(s.port(), 0);
  const Reply whole = ask(s.port(), "POST", "/v1/completions",
                          R"({"prompt":"Once upon a time","max_tokens":60,"temperature":0})");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const std::string text = whole.value()["choices"][0]["text"];
  EXPECT_EQ(("Once upon a time" + text).substr(0, 100), story.substr(0, 100));

  Client c(s.port());
  c.send_all(request_text("POST", "/v1/completions",
                          R"({"prompt":"Once upon a time","max_tokens":60,"temperature":0,"stream":true})"));
  const std::string stream = c.receive();
  std::string joined;
  for (size_t at = stream.find("data: {"); at != std::string::npos; at = stream.find("data: {", at + 1)) {
    const json chunk = json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6), nullptr, false);
    ASSERT_FALSE(chunk.is_discarded());
    joined += chunk["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(joined, text);
  EXPECT_NE(stream.find("data: [DONE]"), std::string::npos);

  const Reply stopped =
      ask(s.port(), "POST", "/v1/completions",
          R"({"prompt":"Once upon a time","max_tokens":60,"temperature":0,"stop":["Lily"]})");
  EXPECT_EQ(stopped.value()["choices"][0]["text"], text.substr(0, text.find("Lily")));
  EXPECT_EQ(stopped.value()["choices"][0]["finish_reason"], "stop");

  const json many = ask(s.port(), "POST", "/v1/completions",
                        R"({"prompt":["Once","The"],"n":2,"max_tokens":5,"seed":1,"echo":true,"logprobs":2})")
                        .value();
  ASSERT_EQ(many["choices"].size(), 4u);
  EXPECT_EQ(many["choices"][3]["text"].get<std::string>().substr(0, 3), "The");
  EXPECT_EQ(many["choices"][0]["logprobs"]["tokens"].size(),
            many["choices"][0]["logprobs"]["token_logprobs"].size());
  const json e = ask(s.port(), "POST", "/v1/embeddings", R"({"input":["a","b"]})").value();
  EXPECT_EQ(e["data"].size(), 2u);
  const json t = ask(s.port(), "POST", "/tokenize", R"({"prompt":"Once upon"})").value();
  const json d = ask(s.port(), "POST", "/detokenize", json{{"tokens", t["tokens"]}}.dump()).value();
  EXPECT_EQ(d["prompt"], "Once upon");
}

TEST(Server, WhatIsWrongGetsA4xxAndASentence) {
  MILLRACE_NEED_SHARED(model, "models/stories260K.gguf");
  Served s(model, {"--max-body", "64KiB"});
  const auto status = [&](const std::string& body, const std::string& path = "/v1/completions") {
    const Reply r = ask(s.port(), "POST", path, body);
    EXPECT_FALSE(r.value().is_discarded()) << r.body;
    if (r.status >= 400) {
      EXPECT_TRUE(r.value()["error"]["message"].is_string()) << r.body;
    }
    return r.status;
  };
  for (const char* bad : {"",
                          "{",
                          "[]",
                          "nonsense",
                          R"({"prompt":1})",
                          R"({})",
                          R"({"prompt":[]})",
                          R"({"prompt":[[]]})",
                          R"({"prompt":[1,"a"]})",
                          R"({"prompt":[999999]})",
                          R"({"prompt":[-1]})",
                          R"({"prompt":"a","max_tokens":-5})",
                          R"({"prompt":"a","max_tokens":1e300})",
                          R"({"prompt":"a","max_tokens":99999999999999999999})",
                          R"({"prompt":"a","temperature":-1})",
                          R"({"prompt":"a","temperature":1e300})",
                          R"({"prompt":"a","top_p":0})",
                          R"({"prompt":"a","top_p":"x"})",
                          R"({"prompt":"a","n":0})",
                          R"({"prompt":"a","n":100000})",
                          R"({"prompt":"a","best_of":1,"n":2})",
                          R"({"prompt":"a","logprobs":100000})",
                          R"({"prompt":"a","stop":[1]})",
                          R"({"prompt":"a","stop":""})",
                          R"({"prompt":"a","logit_bias":{"x":1}})",
                          R"({"prompt":"a","logit_bias":{"1":1e9}})",
                          R"({"prompt":"a","frequency_penalty":9})",
                          R"({"prompt":"a","deadline_ms":-1})",
                          R"({"prompt":"a","stream":"yes"})",
                          R"({"prompt":"a","stream_options":{}})",
                          R"({"prompt":"a","unheard_of":1})",
                          R"({"prompt":"a","max_tokens":4000})",
                          R"({"prompt":"a","min_p":2})",
                          R"({"prompt":"a","seed":1.5})",
                          R"({"prompt":"a","priority":9999999999})"})
    EXPECT_EQ(status(bad), 400) << bad;
  EXPECT_EQ(status(R"({"prompt":"a","model":"gpt-9"})"), 404);
  EXPECT_EQ(status(R"({"messages":[{"role":"user","content":"hi"}]})", "/v1/chat/completions"), 400);
  EXPECT_EQ(status("{\"prompt\":\"\xff\"}"), 400);
  EXPECT_EQ(status("{\"prompt\":" + std::string(20000, '[')), 400);
  EXPECT_EQ(status("{\"prompt\":\"" + std::string(70000, 'a') + "\"}"), 413);
  EXPECT_EQ(ask(s.port(), "GET", "/nowhere").status, 404);
  EXPECT_EQ(ask(s.port(), "GET", "/v1/completions").status, 405);
  EXPECT_EQ(ask(s.port(), "DELETE", "/v1/requests/none").status, 404);
  for (const char* raw : {"\r\n\r\n\r\n garbage", "GET\r\n\r\n", "POST / HTTP/9.9\r\n\r\n",
                          "\x16\x03\x01\x02", "POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                          "POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
                          "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    Client c(s.port());
    c.send_all(raw);
    const int got = parse_reply(c.receive("", 3)).status;
    EXPECT_TRUE(got >= 400 && got < 500) << got << " for " << raw;
  }
  Client many(s.port());
  many.send_all("GET /health HTTP/1.1\r\n");
  for (int i = 0; i < 400 && many.send_all(fmt::format("X-{}: {}\r\n", i, std::string(60, 'x'))); ++i) {
  }
  EXPECT_EQ(parse_reply(many.receive("", 3)).status, 431);
  EXPECT_EQ(ask(s.port(), "GET", "/health").status, 200);
}

TEST(Server, KeysGuardTheApi) {
  MILLRACE_NEED_SHARED(model, "models/stories260K.gguf");
  const millrace::testing::TempDir folder;
  millrace::testing::write_file(folder / "keys", "secret\n");
  Served s(model, {"--api-key-file", (folder / "keys").string()});
  EXPECT_EQ(ask(s.port(), "GET", "/v1/models").status, 401);
  EXPECT_EQ(ask(s.port(), "GET", "/v1/models", "", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(ask(s.port(), "GET", "/v1/models", "", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(ask(s.port(), "GET", "/ready").status, 200);
}

TEST(Server, ClientsThatMisbehaveHurtNobody) {
  MILLRACE_NEED_SHARED(model, "models/stories260K.gguf");
  Served s(model, {"--write-seconds", "1", "--stall-seconds", "1"});
  ASSERT_EQ(ask(s.port(), "GET", "/ready").status, 200);
  std::this_thread::sleep_for(200ms);
  const size_t descriptors = s.descriptors(), threads = s.threads();
  const std::string stream =
      request_text("POST", "/v1/completions",
                   R"({"prompt":"Once upon a time","max_tokens":100,"stream":true,"ignore_eos":true})");

  // One sends its headers a byte at a time, one only half a body: both are told that they took too long.
  Client slow(s.port()), half(s.port());
  half.send_all("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-");
  std::string slow_reply;
  for (const char c : std::string("GET /health HTTP/1.1\r\nX-Slow: ")) {
    if (!slow.send_all(std::string(1, c))) break;
    std::this_thread::sleep_for(60ms);
  }
  EXPECT_EQ(parse_reply(slow.receive("", 3)).status, 408);
  EXPECT_EQ(parse_reply(half.receive("", 3)).status, 408);

  // Many go away at random moments.
  const int64_t count = millrace::testing::scaled(150);
  for (int64_t i = 0; i < count; ++i) {
    Client c(s.port());
    const size_t sent = i % 3 == 0 ? static_cast<size_t>(i * 7) % stream.size() : stream.size();
    c.send_all(std::string_view(stream).substr(0, sent));
    if (i % 4 == 1) c.receive("data:", 1);
  }
  const Reply r =
      ask(s.port(), "POST", "/v1/completions", R"({"prompt":"Once","max_tokens":20,"temperature":0})");
  EXPECT_EQ(r.status, 200);
  for (int i = 0;
       i < 100 && (metric(s.port(), "vllm:num_requests_running") > 0 || s.descriptors() > descriptors + 1);
       ++i)
    std::this_thread::sleep_for(50ms);
  EXPECT_EQ(metric(s.port(), "vllm:num_requests_running"), 0);
  EXPECT_EQ(metric(s.port(), "vllm:kv_cache_usage_perc"), 0);
  EXPECT_LE(s.descriptors(), descriptors + 1);
  EXPECT_EQ(s.threads(), threads);
}

TEST(Server, DeleteCancels) {
  MILLRACE_NEED_SHARED(model, "models/stories260K.gguf");
  Served s(model);
  Client c(s.port());
  c.send_all(request_text("POST", "/v1/completions",
                          R"({"prompt":"Once","max_tokens":100,"n":100,"stream":true,"ignore_eos":true})"));
  const std::string head = c.receive("\"id\":\"", 5) + c.receive("\"model\"", 1);
  const size_t at = head.find("\"id\":\"") + 6;
  const std::string id = head.substr(at, head.find('"', at) - at);
  const Reply r = ask(s.port(), "DELETE", "/v1/completions/" + id);
  // It may have been done by then; a live one is cancelled and says so.
  if (r.status == 200) {
    EXPECT_EQ(r.value()["deleted"], true);
    EXPECT_NE(c.receive("[DONE]", 5).find("cancelled"), std::string::npos);
  } else {
    EXPECT_EQ(r.status, 404);
  }
}

TEST(Server, OfficialClients) {
  MILLRACE_NEED_SHARED(model, "models/stories260K.gguf");
  const auto python = millrace::testing::run_process({"python3", "-c", "import openai"});
  if (python.exit_status != 0) GTEST_SKIP() << "skipped: the Python package openai is not installed";
  const millrace::testing::TempDir folder;
  millrace::testing::write_file(folder / "chat.jinja",
                                "{% for m in messages %}{{ m['content'] }} {% endfor %}");
  Served s(model, {"--chat-template", (folder / "chat.jinja").string()});
  const auto run = millrace::testing::run_process(
      {"python3", millrace::testing::fixture("server/clients/openai_client.py").string(),
       fmt::format("http://127.0.0.1:{}/v1", s.port())});
  EXPECT_EQ(run.exit_status, 0) << run.out << run.err;
}

}  // namespace
}  // namespace millrace::server
