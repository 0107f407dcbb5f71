// What a request may ask for, field by field over the socket, and how the server shows itself: TLS, log,
// metrics.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "served.h"

namespace millrace::server {
namespace {

TEST(Features, EveryFieldOfOpenAisAndTheServersOwnIsTaken) {
  Served s("");
  ASSERT_GT(s.port(), 0);
  struct Case {
    const char* more;
    std::function<bool(const json&)> good;
  };
  const auto choices = [](size_t n) { return [n](const json& r) { return r["choices"].size() == n; }; };
  const auto any = [](const json& r) { return r["usage"]["completion_tokens"] <= 6; };
  const Case cases[] = {
      {R"("prompt":"Once","n":3)", choices(3)},
      {R"("prompt":"Once","n":2,"best_of":4)", [](const json& r) { return r["choices"].size() == 2; }},
      {R"("prompt":["a","b"])", choices(2)},
      {R"("prompt":[5,6,7])", [](const json& r) { return r["usage"]["prompt_tokens"] == 3; }},
      {R"("prompt":[[5,6],[7]])", [](const json& r) { return r["usage"]["prompt_tokens"] == 3; }},
      {R"("prompt":"Once","echo":true)",
       [](const json& r) { return r["choices"][0]["text"].get<std::string>().substr(0, 4) == "Once"; }},
      {R"("prompt":"Once","echo":true,"max_tokens":0,"logprobs":1)",
       [](const json& r) { return r["choices"][0]["logprobs"]["token_logprobs"][0].is_null(); }},
      {R"("prompt":"Once","logprobs":3)",
       [](const json& r) { return r["choices"][0]["logprobs"]["top_logprobs"][0].size() == 3; }},
      {R"("prompt":"Once","logit_bias":{"5":-100,"6":100},"return_token_ids":true)",
       [](const json& r) { return r["choices"][0]["token_ids"][0] == 6; }},
      {R"("prompt":"Once","ignore_eos":true,"min_tokens":6)",
       [](const json& r) { return r["usage"]["completion_tokens"] == 6; }},
      {R"("prompt":"Once","stop_token_ids":[6],"logit_bias":{"6":100})",
       [](const json& r) { return r["choices"][0]["stop_reason"] == 6; }},
      {R"("prompt":"Once","prompt_logprobs":1)",
       [](const json& r) { return r["choices"][0]["prompt_logprobs"].is_array(); }},
      {R"("prompt":"Once","temperature":0.5,"top_p":0.9,"top_k":5,"min_p":0.1,"typical_p":0.9,"seed":7)",
       any},
      {R"("prompt":"Once","presence_penalty":1,"frequency_penalty":1,"repetition_penalty":1.1,"penalty_last_n":8)",
       any},
      {R"("prompt":"Once","mirostat":2,"mirostat_tau":3,"mirostat_eta":0.2)", any},
      {R"("prompt":"Once","dry_multiplier":1,"dry_base":2,"dry_sequence_breakers":["."],"xtc_probability":0.5)",
       any},
      {R"("prompt":"Once","beam_width":2)", choices(1)},
      {R"("prompt":"Once","priority":-3,"deadline_ms":60000,"cache_salt":"a","cache_pin":true,"user":"u")",
       any},
      {R"("prompt":"Once","guided_choice":["yes","no"])",
       [](const json& r) { return r["choices"][0]["text"] == "yes" || r["choices"][0]["text"] == "no"; }},
      {R"("prompt":"Once","guided_regex":"[0-9]{2}")",
       [](const json& r) { return r["choices"][0]["text"].get<std::string>().size() == 2; }},
  };
  for (const Case& c : cases) {
    const std::string more = c.more;
    const std::string tokens = more.find("max_tokens") == std::string::npos ? R"("max_tokens":6,)" : "";
    const Reply r = ask(s.port(), "POST", "/v1/completions", "{" + tokens + more + "}");
    ASSERT_EQ(r.status, 200) << more << "\n" << r.body;
    EXPECT_TRUE(c.good(r.value())) << more << "\n" << r.body;
  }
  const Reply late =
      ask(s.port(), "POST", "/v1/completions", R"({"prompt":"Once","max_tokens":400,"deadline_ms":1})");
  EXPECT_TRUE(late.status == 504 || late.value()["choices"][0]["finish_reason"] == "deadline") << late.body;
  const Reply usage = ask(s.port(), "POST", "/v1/chat/completions",
                          R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true,
                              "stream_options":{"include_usage":true}})");
  EXPECT_NE(usage.body.find("\"usage\":null"), std::string::npos);
  EXPECT_NE(usage.body.find("\"total_tokens\""), std::string::npos);
  const std::string metrics = ask(s.port(), "GET", "/metrics").body;
  for (const char* name :
       {"vllm:time_to_first_token_seconds_bucket", "vllm:e2e_request_latency_seconds_count",
        "vllm:request_queue_time_seconds_sum", "millrace:grammars_total", "millrace:grammar_masks_total",
        "millrace:goodput_requests_total", "vllm:cache_config_info", "vllm:iteration_tokens_total_bucket",
        "vllm:request_prefill_time_seconds_count", "vllm:request_decode_time_seconds_count",
        "vllm:request_inference_time_seconds_count", "vllm:request_params_n_bucket",
        "vllm:request_params_max_tokens_bucket", "millrace:prefix_cache_hit_ratio",
        "millrace:forward_seconds_total"})
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  // One line a request, at the default level.
  const std::string log = s.logged();
  EXPECT_NE(log.find("path=/v1/completions status=200"), std::string::npos) << log.substr(0, 500);
  EXPECT_NE(log.find("completion_tokens="), std::string::npos);
}

TEST(Features, TokenizesAChatAsItIsAnswered) {
  Served s("");
  ASSERT_GT(s.port(), 0);
  const std::string chat = R"("messages":[{"role":"user","content":"Tell me a story."}])";
  const Reply answer =
      ask(s.port(), "POST", "/v1/chat/completions", "{" + chat + R"(,"max_tokens":1,"temperature":0})");
  const Reply tokens =
      ask(s.port(), "POST", "/tokenize", "{" + chat + R"(,"return_token_strs":true,"model":"default"})");
  ASSERT_EQ(tokens.status, 200) << tokens.body;
  const json t = tokens.value();
  EXPECT_EQ(t["count"], answer.value()["usage"]["prompt_tokens"]);
  EXPECT_EQ(t["tokens"].size(), t["token_strs"].size());
  const Reply open = ask(s.port(), "POST", "/tokenize", "{" + chat + R"(,"add_generation_prompt":false})");
  EXPECT_LT(open.value()["count"], t["count"]) << open.body;
  EXPECT_EQ(ask(s.port(), "POST", "/tokenize", "{" + chat + R"(,"add_special_tokens":1})").status, 400);
  EXPECT_EQ(ask(s.port(), "POST", "/tokenize", R"({"messages":[]})").status, 400);
}

/// A key and a certificate that it has signed itself.
void write_certificate(const std::filesystem::path& key_file, const std::filesystem::path& certificate_file) {
  EVP_PKEY* key = EVP_RSA_gen(2048);
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"),
                             -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_sign(certificate, key, EVP_sha256());
  std::FILE* f = std::fopen(key_file.c_str(), "w");
  PEM_write_PrivateKey(f, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(f);
  f = std::fopen(certificate_file.c_str(), "w");
  PEM_write_X509(f, certificate);
  std::fclose(f);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TEST(Features, SpeaksTls) {
  const millrace::testing::TempDir folder;
  write_certificate(folder / "key.pem", folder / "certificate.pem");
  Served s("",
           {"--tls-cert", (folder / "certificate.pem").string(), "--tls-key", (folder / "key.pem").string()});
  ASSERT_GT(s.port(), 0);
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  ASSERT_EQ(SSL_CTX_load_verify_locations(context, (folder / "certificate.pem").c_str(), nullptr), 1);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  BIO* bio = BIO_new_ssl_connect(context);
  BIO_set_conn_hostname(bio, fmt::format("127.0.0.1:{}", s.port()).c_str());
  ASSERT_EQ(BIO_do_connect(bio), 1);
  const std::string request = request_text("POST", "/v1/completions", R"({"prompt":"Once","max_tokens":4})");
  ASSERT_EQ(BIO_write(bio, request.data(), static_cast<int>(request.size())),
            static_cast<int>(request.size()));
  std::string text;
  char buffer[4096];
  for (int n; (n = BIO_read(bio, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  EXPECT_EQ(parse_reply(text).status, 200) << text;
  BIO_free_all(bio);
  SSL_CTX_free(context);
  // Plain HTTP to it is no request, and hurts nobody.
  Client plain(s.port());
  plain.send_all("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(parse_reply(plain.receive("", 3)).status, 0);
}

}  // namespace
}  // namespace millrace::server
