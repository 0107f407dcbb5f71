// What no client should send: every member of every endpoint as anything, HTTP that is not quite HTTP, and
// more of everything than there should be. Each gets a 4xx with a sentence, soon, and the server goes on.
#include <sys/resource.h>

#include <map>

#include "served.h"

namespace millrace::server {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> list;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    list.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

std::string post(const std::string& path, const std::string& body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body);
}

void expect_sentence(const Reply& r, const std::string& of) {
  const json body = r.value();
  ASSERT_TRUE(body.is_object() && body.contains("error")) << of << "\n" << r.body;
  EXPECT_GE(body["error"]["message"].get<std::string>().size(), 10u) << of << "\n" << r.body;
  EXPECT_TRUE(body["error"]["type"].is_string()) << of << "\n" << r.body;
}

TEST(Abuse, AnyMemberOfAnyEndpointMayBeAnything) {
  Served s("");
  ASSERT_GT(s.port(), 0);
  const std::string sampling =
      "temperature top_k top_p min_p typical_p mirostat mirostat_tau mirostat_eta xtc_probability "
      "xtc_threshold dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers "
      "repetition_penalty presence_penalty frequency_penalty penalty_last_n logit_bias seed ";
  const std::string generation =
      "min_tokens stop stop_token_ids include_stop_str_in_output ignore_eos n best_of beam_width "
      "use_beam_search length_penalty early_stopping stream_options logprobs top_logprobs prompt_logprobs "
      "echo "
      "return_token_ids suffix user model priority deadline_ms cache_salt cache_pin response_format "
      "guided_json json_schema structured_outputs guided_regex guided_choice guided_grammar grammar "
      "guided_whitespace_pattern metadata prediction ";
  struct Endpoint {
    const char* path;
    std::vector<std::pair<std::string, std::string>> base;
    std::string members;
  };
  const std::string messages = R"([{"role":"user","content":"hi"}])";
  const Endpoint endpoints[] = {
      {"/v1/completions",
       {{"prompt", "\"a\""}, {"max_tokens", "2"}},
       sampling + generation + "prompt add_special_tokens"},
      {"/v1/chat/completions",
       {{"messages", messages}, {"max_tokens", "2"}},
       sampling + generation +
           "messages max_completion_tokens tools tool_choice parallel_tool_calls chat_template_kwargs "
           "documents "
           "add_generation_prompt continue_final_message reasoning_effort thinking_budget include_reasoning "
           "modalities functions"},
      {"/v1/responses",
       {{"input", "\"hi\""}, {"max_output_tokens", "2"}},
       "input instructions previous_response_id text reasoning truncation include store background metadata "
       "tools tool_choice parallel_tool_calls top_logprobs temperature top_p user priority deadline_ms"},
      {"/v1/messages",
       {{"model", "\"default\""}, {"messages", messages}, {"max_tokens", "2"}},
       "messages system metadata stop_sequences temperature thinking tool_choice tools top_k top_p "
       "output_format service_tier model"},
      {"/v1/embeddings", {{"input", "\"a\""}}, "input encoding_format dimensions pooling user model"},
      {"/tokenize", {{"prompt", "\"a\""}}, "prompt content add_special_tokens return_token_strs model"},
      {"/detokenize", {{"tokens", "[1]"}}, "tokens model"},
  };
  const char* values[] = {"-1",
                          "0",
                          "1e308",
                          "9223372036854775808",
                          "18446744073709551616",
                          "2147483648",
                          "1e-320",
                          "NaN",
                          "null",
                          "[]",
                          "{}",
                          "[[1]]",
                          "[null]",
                          "{\"a\":1}",
                          "\"x\"",
                          "\"\"",
                          "true",
                          "0.5",
                          "1",
                          "\"\\ud800\""};
  Client c(s.port());
  std::map<int, int> seen;
  for (const Endpoint& e : endpoints)
    for (const std::string& member : words(e.members))
      for (const char* value : values) {
        std::string body;
        for (const auto& [name, usual] : e.base)
          if (name != member) body += fmt::format(R"("{}":{},)", name, usual);
        body = fmt::format(R"({{{}"{}":{}}})", body, member, value);
        c.send_all(post(e.path, body));
        const Reply r = c.reply();
        ++seen[r.status];
        // 404: another model; 504: a deadline of a millisecond.
        ASSERT_TRUE(r.status == 200 || r.status == 400 || (member == "model" && r.status == 404) ||
                    (member == "deadline_ms" && r.status == 504))
            << r.status << " for " << e.path << " " << body << "\n"
            << r.body;
        if (r.status != 200) expect_sentence(r, body);
      }
  EXPECT_GT(seen[200], 500);
  EXPECT_GT(seen[400], 2000);
  EXPECT_EQ(ask(s.port(), "GET", "/health").status, 200);
}

TEST(Abuse, HttpThatIsNotQuiteHttp) {
  Served s("", {"--body-seconds", "0.5"});
  ASSERT_GT(s.port(), 0);
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
  const std::string chunks = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body);
  const auto length = [](const std::string& n) { return "Content-Length: " + n + "\r\n"; };
  const std::string right = length(std::to_string(body.size()));
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  const std::string get = "GET /health HTTP/1.1\r\n";
  std::string tiny;
  for (const char c : body) tiny += fmt::format("1\r\n{}\r\n", c);
  struct Case {
    std::string text;
    int status;
  };
  const Case cases[] = {
      {head + right + "\r\n" + body, 200},
      {head + chunked + "\r\n" + chunks, 200},
      {head + chunked + "\r\n" + tiny + "0\r\n\r\n", 200},
      {head + right + "Expect: 100-continue\r\n\r\n" + body, 200},
      {get + "Host: x\r\nConnection: close\r\n\r\n", 200},
      {"GET http://x/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200},
      {"GET /health HTTP/1.0\r\n\r\n", 200},
      // Where a body ends must be beyond doubt.
      {head + right + length("30") + "\r\n" + body, 400},
      {head + right + chunked + "\r\n" + chunks, 400},
      {head + chunked + right + "\r\n" + chunks, 400},
      {head + "Transfer-Encoding: xchunked\r\n\r\n" + chunks, 400},
      {head + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks, 400},
      {head + "Transfer-Encoding: chunked, chunked\r\n\r\n" + chunks, 400},
      {head + chunked + "Transfer-Encoding: identity\r\n\r\n" + chunks, 400},
      {head + length("-1") + "\r\n", 400},
      {head + length("+29") + "\r\n" + body, 400},
      {head + length("0x1d") + "\r\n" + body, 400},
      {head + length("9223372036854775808") + "\r\n", 413},
      {head + length("99999999999999999999") + "\r\n", 400},
      {head + length("100") + "\r\n" + body, 408},
      {head + length("10") + "\r\n" + body, 400},
      {head + chunked + "\r\nzz\r\n", 400},
      {head + chunked + "\r\n-1\r\n", 400},
      {head + chunked + "\r\nffffffffffffffff\r\n", 413},
      {head + chunked + "\r\n" + chunks.substr(0, 20), 408},
      {head + chunked + "\r\n1d;" + std::string(100000, 'a') + "\r\n", 431},
      {head + chunked + "\r\n" + chunks.substr(0, chunks.size() - 2) + "X: " + std::string(100000, 'y'), 431},
      {head + "Content-Encoding: gzip\r\n" + right + "\r\n" + body, 415},
      {get + "Connection: close\r\n\r\n", 400},
      {get + "Host: a\r\nHost: b\r\n\r\n", 400},
      {get + "Host : a\r\n\r\n", 400},
      {get + "Host: a\r\nno colon\r\n\r\n", 400},
      {get + std::string("Host: a\r\nA: b\0c\r\n\r\n", 19), 400},
      {get + "A: " + std::string(100000, 'b'), 431},
      {std::string(100000, 'A') + " / HTTP/1.1\r\n\r\n", 431},
      {std::string(1000, '\0'), 400},
      {"GET /health HTTP/2.0\r\n\r\n", 400},
      {"GET /\x7f HTTP/1.1\r\n\r\n", 400},
      {"PUT /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405},
      {"GET /v1/../v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404},
  };
  for (const Case& c : cases) {
    Client client(s.port());
    client.send_all(c.text);
    const Reply r = parse_reply(client.receive("", 10));
    EXPECT_EQ(r.status, c.status) << c.text.substr(0, 200) << "\n" << r.body.substr(0, 300);
    if (r.status >= 400) expect_sentence(r, c.text.substr(0, 200));
  }
  // Many requests at once on one connection, one of them none.
  Client pipelined(s.port());
  std::string many;
  for (int i = 0; i < 200; ++i) many += post("/v1/completions", body);
  pipelined.send_all(many + "\x01\x02 rubbish\r\n\r\n");
  const std::string got = pipelined.receive("", 20);
  size_t answered = 0;
  for (size_t at = got.find("HTTP/1.1 200"); at != std::string::npos; at = got.find("HTTP/1.1 200", at + 1))
    ++answered;
  EXPECT_EQ(answered, 200u);
  EXPECT_NE(got.find("HTTP/1.1 400"), std::string::npos);
  EXPECT_EQ(ask(s.port(), "GET", "/health").status, 200);
}

TEST(Abuse, WhatWouldTakeLongToReadHoldsNobodyUp) {
  Served s("");
  ASSERT_GT(s.port(), 0);
  std::string members = R"({"prompt":"a","logit_bias":{"0":1)";
  for (int i = 1; i < 200000; ++i) members += fmt::format(R"(,"{}":1)", i);
  const std::string bodies[] = {members + "}}", R"({"prompt":")" + std::string(8 << 20, 'a') + "\"}",
                                std::string(1 << 20, '['), std::string(1 << 20, '{'),
                                R"({"prompt":[)" + std::string(1 << 20, '[')};
  for (const std::string& body : bodies) {
    Client slow(s.port());
    slow.send_all(request_text("POST", "/v1/completions", body));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(ask(s.port(), "POST", "/v1/completions", R"({"prompt":"Once","max_tokens":2})").status, 200);
    const Reply r = parse_reply(slow.receive("", 60));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_EQ(r.status, 400) << body.substr(0, 40);
    expect_sentence(r, body.substr(0, 40));
    EXPECT_LT(seconds, 5 * millrace::testing::slowness()) << body.substr(0, 40);
  }
}

TEST(Abuse, BodiesOfAllTogetherAreBounded) {
  Served s("", {"--max-body", "4MiB", "--max-bodies", "16MiB", "--body-seconds", "30"});
  ASSERT_GT(s.port(), 0);
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n";
  {
    // Each sends nearly all of its body and then nothing more.
    std::vector<std::unique_ptr<Client>> hogs;
    int refused = 0;
    for (int i = 0; i < 8; ++i) {
      hogs.push_back(std::make_unique<Client>(s.port()));
      hogs.back()->send_all(head + std::string(3900000, ' '));
    }
    for (const auto& hog : hogs) refused += parse_reply(hog->receive("}", 1)).status == 503;
    EXPECT_GE(refused, 3);
    EXPECT_LE(refused, 5);
    EXPECT_EQ(ask(s.port(), "GET", "/health").status, 200);
  }
  // With them their share is gone.
  for (int i = 0;
       i < 100 && ask(s.port(), "POST", "/v1/completions", std::string(3000000, ' ')).status == 503; ++i)
    std::this_thread::sleep_for(50ms);
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(ask(s.port(), "POST", "/v1/completions", std::string(3000000, ' ')).status, 400);
}

TEST(Abuse, TwoThousandConnectionsOnTwoThreads) {
  constexpr size_t kIdle = 1000, kStreaming = 1000;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < 2 * (kIdle + kStreaming))
    GTEST_SKIP() << "skipped: a process may have only " << files.rlim_max << " descriptors here";
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  Served s("", {"--http-threads", "2", "--header-seconds", "120", "--idle-seconds", "120"});
  ASSERT_GT(s.port(), 0);
  ask(s.port(), "POST", "/v1/completions", R"({"prompt":"Once","max_tokens":4})");
  const size_t descriptors = s.descriptors(), threads = s.threads();
  {
    std::vector<std::unique_ptr<Client>> idle, streaming;
    for (size_t i = 0; i < kIdle; ++i) {
      idle.push_back(std::make_unique<Client>(s.port()));
      ASSERT_TRUE(idle.back()->send_all("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
      ASSERT_EQ(idle.back()->reply().status, 200);
    }
    const std::string request =
        request_text("POST", "/v1/completions",
                     R"({"prompt":"Once upon","max_tokens":6,"stream":true,"ignore_eos":true})");
    for (size_t i = 0; i < kStreaming; ++i) {
      streaming.push_back(std::make_unique<Client>(s.port()));
      ASSERT_TRUE(streaming.back()->send_all(request));
    }
    EXPECT_GE(metric(s.port(), "millrace:http_connections"), static_cast<double>(kIdle));
    EXPECT_EQ(s.threads(), threads);
    for (const auto& c : streaming) {
      const std::string text = c->receive("[DONE]", 60 * millrace::testing::slowness());
      ASSERT_NE(text.find("[DONE]"), std::string::npos) << text;
      ASSERT_EQ(text.find("\"error\""), std::string::npos) << text;
    }
    // Those that were idle meanwhile are still there.
    for (const auto& c : idle) {
      ASSERT_TRUE(c->send_all("GET /ready HTTP/1.1\r\nHost: x\r\n\r\n"));
      ASSERT_EQ(c->reply().status, 200);
    }
  }
  for (int i = 0; i < 200 && s.descriptors() > descriptors + 2; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_LE(s.descriptors(), descriptors + 2);
  EXPECT_EQ(s.threads(), threads);
}

}  // namespace
}  // namespace millrace::server
