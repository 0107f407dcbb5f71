// Requests and answers over the socket. Tests that compare texts need stories260K; without it they are
// skipped.
#include "core/error.h"
#include "served.h"
#include "server/keys.h"

namespace millrace::server {
namespace {

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

}  // namespace
}  // namespace millrace::server
