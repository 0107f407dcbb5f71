// The service without a process of its own.
#include "server/app.h"

#include <atomic>

#include "served.h"

namespace millrace::server {
namespace {

/// Takes its time, as a true one does with a very long text.
class SlowTokenizer : public text::Tokenizer {
 public:
  mutable std::atomic<bool> asked{false}, answered{false};

  int32_t vocab_size() const override {
    asked = true;
    std::this_thread::sleep_for(2500ms);  // longer than anybody waits for connections to end
    answered = true;
    return 10;
  }
  std::vector<text::TokenId> encode(std::string_view, const text::EncodeOptions&) const override {
    return {};
  }
  std::string decode(const std::vector<text::TokenId>&, bool) const override { return "text"; }
  std::string piece(text::TokenId, bool) const override { return ""; }
  text::TokenKind kind(text::TokenId) const override { return text::TokenKind::kNormal; }
  const std::string& raw(text::TokenId) const override { return raw_; }
  std::optional<text::TokenId> find(std::string_view) const override { return std::nullopt; }
  std::optional<text::TokenId> bos() const override { return std::nullopt; }
  std::optional<text::TokenId> eos() const override { return std::nullopt; }
  const std::vector<text::TokenId>& end_of_generation() const override { return ends_; }
  bool adds_bos() const override { return false; }
  bool adds_eos() const override { return false; }
  bool strips_leading_space() const override { return false; }

 private:
  std::string raw_;
  std::vector<text::TokenId> ends_;
};

TEST(App, EndsAfterWhoeverReadsARequest) {
  const SlowTokenizer tokenizer;
  AppOptions options;
  options.http.host = "127.0.0.1";
  options.http.port = 0;
  std::optional<App> app(std::in_place, std::move(options));
  app->start();
  ServedModel model;
  model.id = "none";
  model.tokenizer = &tokenizer;
  app->set_model(std::move(model));
  // The second waits for the first.
  Client first(app->port()), second(app->port());
  for (Client* c : {&first, &second})
    ASSERT_TRUE(c->send_all(request_text("POST", "/detokenize", R"({"tokens":[1]})")));
  for (int i = 0; i < 1000 && !tokenizer.asked; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_TRUE(tokenizer.asked);
  app.reset();
  EXPECT_TRUE(tokenizer.answered);
}

}  // namespace
}  // namespace millrace::server
