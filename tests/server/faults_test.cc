// Clients that are slow, gone, malformed or hostile: they get a 4xx with a sentence or are dropped, nobody
// else notices, and blocks, descriptors and threads are back where they were.
#include "core/random.h"
#include "served.h"

namespace millrace::server {
namespace {

/// Waits until the server has nothing to do and as few descriptors as before.
void expect_back(const Served& s, size_t descriptors, size_t threads) {
  // More than one look: what a client that has gone sent may still wait to be read.
  for (int i = 0, quiet = 0; i < 200 && quiet < 10; ++i) {
    // The question itself is a connection for a moment.
    const bool idle = metric(s.port(), "vllm:num_requests_running") == 0 &&
                      metric(s.port(), "vllm:num_requests_waiting") == 0 &&
                      s.descriptors() <= descriptors + 2;
    quiet = idle ? quiet + 1 : 0;
    std::this_thread::sleep_for(quiet > 0 ? 5ms : 50ms);
  }
  EXPECT_EQ(metric(s.port(), "vllm:num_requests_running"), 0);
  EXPECT_EQ(metric(s.port(), "vllm:num_requests_waiting"), 0);
  EXPECT_EQ(metric(s.port(), "vllm:kv_cache_usage_perc"), 0);
  EXPECT_LE(s.descriptors(), descriptors + 2);
  EXPECT_EQ(s.threads(), threads);
  EXPECT_EQ(ask(s.port(), "POST", "/v1/completions", R"({"prompt":"Once","max_tokens":4})").status, 200);
}

TEST(Faults, ClientsKilledAtRandomMomentsLeaveNothing) {
  Served s("", {"--max-waiting", "64", "--header-seconds", "5"});
  ASSERT_GT(s.port(), 0);
  ask(s.port(), "POST", "/v1/completions", R"({"prompt":"Once","max_tokens":4})");
  ask(s.port(), "POST", "/v1/completions", R"({"prompt":"x","guided_regex":"[0-9]{8}"})");
  const size_t descriptors = s.descriptors(), threads = s.threads();
  Random random(millrace::testing::seed());
  const std::string bodies[] = {
      request_text("POST", "/v1/completions",
                   R"({"prompt":"Once upon a time","max_tokens":200,"stream":true,"ignore_eos":true})"),
      request_text("POST", "/v1/completions", R"({"prompt":"Once","max_tokens":60,"n":3,"ignore_eos":true})"),
      request_text("POST", "/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":50,
                       "response_format":{"type":"json_object"}})"),
      request_text(
          "POST", "/v1/messages",
          R"({"model":"default","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"hi"}]})"),
      request_text("POST", "/v1/embeddings", R"({"input":["a","b","c"]})")};
  // 10,000 of them with MILLRACE_TEST_SCALE=40.
  const int64_t count = millrace::testing::scaled(250);
  for (int64_t i = 0; i < count; ++i) {
    const std::string& text = bodies[random.below(5)];
    Client c(s.port());
    const size_t sent = random.below(4) == 0 ? random.below(static_cast<uint32_t>(text.size())) : text.size();
    c.send_all(std::string_view(text).substr(0, sent));
    if (random.below(3) == 0) c.receive("data:", 0.02);
    if (random.below(8) == 0) std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
  }
  expect_back(s, descriptors, threads);
}

TEST(Faults, SlowSendersAreToldAndNeverReadersDropped) {
  // A sanitizer's server must get its own requests within these times, too.
  const double factor = millrace::testing::slowness();
  const std::string times[] = {fmt::format("{}", 0.4 * factor), fmt::format("{}", factor)};
  Served s("", {"--header-seconds", times[0], "--body-seconds", times[0], "--write-seconds", times[1],
                "--stall-seconds", times[1]});
  ASSERT_GT(s.port(), 0);
  ask(s.port(), "POST", "/v1/completions", R"({"prompt":"Once","max_tokens":4})");
  const size_t descriptors = s.descriptors(), threads = s.threads();
  {
    Client slow(s.port()), half(s.port()), body(s.port()), deaf(s.port());
    deaf.receive_little();
    const std::string flood = request_text(
        "POST", "/v1/completions",
        R"({"prompt":"Once","max_tokens":400,"n":64,"logprobs":5,"stream":true,"ignore_eos":true})");
    deaf.send_all(flood);
    half.send_all("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-");
    body.send_all("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{\"prompt\"");
    for (const char c : std::string("GET /health HTTP/1.1\r\nX-Slow: ")) {
      if (!slow.send_all(std::string(1, c))) break;
      std::this_thread::sleep_for(20ms);
    }
    EXPECT_EQ(parse_reply(slow.receive("", 2 * factor)).status, 408);
    EXPECT_EQ(parse_reply(half.receive("", 2 * factor)).status, 408);
    EXPECT_EQ(parse_reply(body.receive("", 2 * factor)).status, 408);
    // Others go on beside the one that never reads, and it is gone in the end though it has not closed.
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(ask(s.port(), "POST", "/v1/completions", R"({"prompt":"Once","max_tokens":8})").status, 200);
    for (int i = 0; i < 200 * factor && metric(s.port(), "vllm:num_requests_running") > 0; ++i)
      std::this_thread::sleep_for(50ms);
    EXPECT_EQ(metric(s.port(), "vllm:num_requests_running"), 0);
  }
  expect_back(s, descriptors, threads);
}

TEST(Faults, WhoNeverReadsDoesNotHoldOthersUp) {
  // All blocks and places belong to clients that take nothing, and are dropped only long after.
  const std::string times = fmt::format("{}", 20 * millrace::testing::slowness());
  Served s("", {"--write-seconds", times, "--stall-seconds", times});
  ASSERT_GT(s.port(), 0);
  Client deaf(s.port()), deaf_too(s.port());
  for (Client* c : {&deaf, &deaf_too}) {
    c->receive_little();
    ASSERT_TRUE(c->send_all(request_text(
        "POST", "/v1/completions",
        R"({"prompt":"Once","max_tokens":400,"n":64,"logprobs":5,"stream":true,"ignore_eos":true})")));
  }
  for (int i = 0; i < 2000 && metric(s.port(), "millrace:requests_paused") < 2; ++i)
    std::this_thread::sleep_for(10ms);
  ASSERT_EQ(metric(s.port(), "millrace:requests_paused"), 2);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(ask(s.port(), "POST", "/v1/completions", R"({"prompt":"The","max_tokens":8})").status, 200);
  EXPECT_EQ(metric(s.port(), "millrace:requests_paused"), 2) << "they were dropped";
}

TEST(Faults, NumbersAtTheirExtremesGetASentence) {
  Served s("");
  ASSERT_GT(s.port(), 0);
  Client c(s.port());
  const char* fields[] = {"temperature",
                          "top_p",
                          "top_k",
                          "min_p",
                          "typical_p",
                          "n",
                          "best_of",
                          "max_tokens",
                          "min_tokens",
                          "seed",
                          "logprobs",
                          "prompt_logprobs",
                          "presence_penalty",
                          "frequency_penalty",
                          "repetition_penalty",
                          "penalty_last_n",
                          "mirostat",
                          "mirostat_tau",
                          "mirostat_eta",
                          "xtc_probability",
                          "xtc_threshold",
                          "dry_multiplier",
                          "dry_base",
                          "dry_allowed_length",
                          "dry_penalty_last_n",
                          "beam_width",
                          "length_penalty",
                          "priority",
                          "deadline_ms"};
  const char* values[] = {"NaN",
                          "Infinity",
                          "-Infinity",
                          "1e308",
                          "-1e308",
                          "1e999",
                          "-1",
                          "9223372036854775808",
                          "-9223372036854775809",
                          "18446744073709551616",
                          "\"1\"",
                          "[]",
                          "{}",
                          "true",
                          "0.5",
                          "0"};
  int refused = 0;
  for (const char* field : fields)
    for (const char* value : values) {
      const std::string more = std::string(field) == "max_tokens" ? "" : R"("max_tokens":2,)";
      const std::string body = fmt::format(R"({{"prompt":"a",{}"{}":{}}})", more, field, value);
      // One connection for all: the server must be there for each.
      c.send_all(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                             body.size(), body));
      const Reply r = c.reply();
      ASSERT_TRUE(r.status == 200 || r.status == 400 || r.status == 504)
          << r.status << " for " << body << "\n"
          << r.body;
      if (r.status != 200) {
        ++refused;
        EXPECT_GT(r.value()["error"]["message"].get<std::string>().size(), 10u) << r.body;
      }
      const std::string v = value;
      if (v == "NaN" || v == "1e308" || v == "1e999" || v == "\"1\"" || v == "18446744073709551616" ||
          v == "{}") {
        EXPECT_EQ(r.status, 400) << body;
      }
    }
  EXPECT_GT(refused, 200);
  EXPECT_EQ(ask(s.port(), "GET", "/health").status, 200);
}

TEST(Faults, GrammarBombsAreRefusedWhileOthersStream) {
  Served s("");
  Client stream(s.port());
  stream.send_all(request_text("POST", "/v1/completions",
                               R"({"prompt":"Once","max_tokens":400,"stream":true,"ignore_eos":true})"));
  std::string groups(60000, '('), chain = "root ::= r0\n";
  groups += "a" + std::string(60000, ')');
  for (int i = 0; i < 5000; ++i) chain += fmt::format("r{} ::= \"a\" r{} | r{}\n", i, i + 1, i + 1);
  chain += "r5000 ::= \"b\"\n";
  const json bodies[] = {
      {{"prompt", "x"}, {"guided_regex", groups}},
      {{"prompt", "x"}, {"grammar", chain}, {"max_tokens", 2}},
      {{"prompt", "x"}, {"grammar", "root ::= (\"a\"*)*"}, {"max_tokens", 2}},
      {{"prompt", "x"}, {"guided_json", {{"$ref", "#"}}}, {"max_tokens", 2}},
      {{"prompt", "x"}, {"guided_regex", "(a+)+b"}, {"max_tokens", 2}},
      {{"prompt", "x"}, {"guided_regex", "([a-z]{1,100000}x){1,100000}"}, {"max_tokens", 2}}};
  for (const json& body : bodies) {
    const auto begin = std::chrono::steady_clock::now();
    const Reply r = ask(s.port(), "POST", "/v1/completions", body.dump());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_TRUE(r.status == 200 || r.status == 400) << r.status << r.body;
    EXPECT_LT(seconds, 5 * millrace::testing::slowness()) << body.dump().substr(0, 100);
  }
  EXPECT_NE(stream.receive("[DONE]", 20).find("[DONE]"), std::string::npos);
}

}  // namespace
}  // namespace millrace::server
