// Jump-forward through the engine: what a grammar forces comes without a step for each token, in the tokens
// that the tokenizer would have written.
#include <nlohmann/json.hpp>
#include <thread>

#include "api/grammar_service.h"
#include "api/openai.h"
#include "engine/engine.h"
#include "loaders/checkpoint.h"
#include "patient.h"
#include "testing/testing.h"
#include "text/tokenizer.h"
#include "text/vocabulary_data.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema =
    R"({"type": "object", "properties": {
      "shipping_address_country_code": {"enum": ["DE", "FR", "SE"]},
      "is_preferred_customer_account": {"type": "boolean"},
      "number_of_previous_orders": {"type": "integer", "minimum": 0, "maximum": 999},
      "preferred_contact_method": {"const": "electronic mail"},
      "customer_display_name": {"type": "string", "maxLength": 6}},
     "required": ["shipping_address_country_code", "is_preferred_customer_account", "number_of_previous_orders",
                  "preferred_contact_method", "customer_display_name"],
     "additionalProperties": false})";

/// The constraint as it is, but for jumps: none.
class NoJumps : public engine::TokenConstraint {
 public:
  explicit NoJumps(std::unique_ptr<engine::TokenConstraint> inner) : inner_(std::move(inner)) {}
  void fill_mask(std::span<uint64_t> bits) override { inner_->fill_mask(bits); }
  bool accept(engine::TokenId token) override { return inner_->accept(token); }
  bool finished() const override { return inner_->finished(); }
  std::unique_ptr<engine::TokenConstraint> fork() const override {
    return std::make_unique<NoJumps>(inner_->fork());
  }

 private:
  std::unique_ptr<engine::TokenConstraint> inner_;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::string text;
  engine::Usage usage;
  engine::FinishReason finish = engine::FinishReason::kNone;
  uint64_t steps = 0, jumped = 0;
};

/// The program's own small model, with its tokenizer and an engine.
class JumpForward : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const auto checkpoint = loaders::open_checkpoint(std::filesystem::path(__FILE__).parent_path() /
                                                     "../../assets/demo/millrace-demo-target.gguf");
    tokenizer_ = text::make_tokenizer(text::vocabulary_from(text::metadata_reader(checkpoint.metadata)));
    engine::EngineOptions options;
    options.pool = std::make_shared<ThreadPool>(1);
    options.kv_memory_bytes = 16 << 20;
    options.masks_beside_step = GetParam();
    auto model = models::load_model(checkpoint, {}, *options.pool);
    engine_ = std::make_unique<engine::Engine>(std::move(model), options);
    service_ = std::make_unique<GrammarService>(*tokenizer_, OutputFormat{}, patient());
  }

  static GenerationRequest request(const std::string& schema, bool compact) {
    return parse_chat_request(
        fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}}], "guided_json": {}{}}})", schema,
                    compact ? R"(, "guided_whitespace_pattern": "")" : ""));
  }

  Answer run(std::unique_ptr<engine::TokenConstraint> constraint, uint64_t seed, int32_t most = 400) {
    engine::Request r;
    r.prompt = tokenizer_->encode("An order:", {});
    r.sampling.seed = seed;
    r.generation.max_tokens = most;
    r.generation.end_tokens = tokenizer_->end_of_generation();
    r.constraint = std::move(constraint);
    const engine::Stats before = engine_->stats();
    Answer a;
    const engine::Event done = engine::generate(*engine_, std::move(r), [&](const engine::Event& e) {
      if (e.kind == engine::Event::Kind::kToken) a.tokens.push_back(e.token);
      if (e.kind == engine::Event::Kind::kFinish) a.finish = e.finish_reason;
      return true;
    });
    for (const int32_t id : a.tokens) a.text += tokenizer_->piece(id);
    a.usage = done.usage;
    // The engine counts a step after its events are out.
    for (int wait = 0; wait < 500 && a.steps + a.jumped < a.tokens.size(); ++wait) {
      const engine::Stats after = engine_->stats();
      a.steps = after.steps - before.steps;
      a.jumped = after.jumped_tokens - before.jumped_tokens;
      if (a.steps + a.jumped < a.tokens.size()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return a;
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<GrammarService> service_;
};

void expect_valid(const std::string& text) {
  const Json j = Json::parse(text, nullptr, false);
  ASSERT_TRUE(j.is_object()) << text;
  EXPECT_EQ(j.size(), 5u) << text;
  EXPECT_EQ(j.value("preferred_contact_method", ""), "electronic mail") << text;
  EXPECT_TRUE(j.contains("is_preferred_customer_account") && j["is_preferred_customer_account"].is_boolean())
      << text;
}

TEST_P(JumpForward, LongNamesAreNotGeneratedTokenByToken) {
  const auto constraint = service_->constraint(request(kSchema, true), {}, "", false);
  const int64_t rounds = millrace::testing::scaled(6);
  uint64_t tokens = 0, jumped = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    const uint64_t seed = millrace::testing::seed() + static_cast<uint64_t>(i);
    const Answer jump = run(constraint->fork(), seed);
    EXPECT_EQ(jump.finish, engine::FinishReason::kStop);
    expect_valid(jump.text);
    // Every token is sent, counted, and was either jumped or had a step.
    EXPECT_EQ(jump.usage.completion_tokens, static_cast<int32_t>(jump.tokens.size()));
    EXPECT_EQ(jump.steps + jump.jumped, jump.tokens.size());
    // Without jumps the same tokens are a walk that the same constraint takes.
    const auto again = constraint->fork();
    for (const int32_t id : jump.tokens) ASSERT_TRUE(again->accept(id)) << jump.text;
    EXPECT_TRUE(again->finished()) << jump.text;
    const Answer step = run(std::make_unique<NoJumps>(constraint->fork()), seed);
    EXPECT_EQ(step.jumped, 0u);
    EXPECT_EQ(step.steps, step.tokens.size());
    expect_valid(step.text);
    tokens += jump.tokens.size();
    jumped += jump.jumped;
  }
  RecordProperty("tokens", static_cast<int>(tokens));
  RecordProperty("jumped", static_cast<int>(jumped));
  std::printf("%llu of %llu tokens jumped\n", static_cast<unsigned long long>(jumped),
              static_cast<unsigned long long>(tokens));
  EXPECT_GT(2 * jumped, tokens);
}

TEST_P(JumpForward, JumpsAreWhatTheTokenizerWritesBehindTheLastToken) {
  const auto constraint = service_->constraint(request(kSchema, true), {}, "", false);
  const std::string begin = "{\"sh";
  const auto ids = tokenizer_->encode(begin, {false, false});
  for (const int32_t id : ids) ASSERT_TRUE(constraint->accept(id));
  const auto forced = constraint->forced(100);
  ASSERT_GT(forced.size(), 2u);
  std::string text = tokenizer_->piece(ids.back());
  for (const int32_t id : forced) text += tokenizer_->piece(id);
  const std::string name = "{\"shipping_address_country_code\":\"";
  EXPECT_EQ(name.substr(begin.size() - tokenizer_->piece(ids.back()).size(), text.size()), text);
  // With what is held back behind it, the tokenizer's own tokens begin with the jump.
  std::vector<int32_t> whole = {ids.back()};
  whole.insert(whole.end(), forced.begin(), forced.end());
  for (const char* next : {"DE\"", "FR\",", "SE\",\"is"}) {
    const auto own = tokenizer_->encode(
        name.substr(begin.size() - tokenizer_->piece(ids.back()).size()) + next, {false, false});
    ASSERT_GT(own.size(), whole.size());
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), own.begin())) << next;
  }
  // No more than there is room for, and nothing where there is a choice.
  EXPECT_EQ(constraint->forced(2), std::vector<int32_t>(forced.begin(), forced.begin() + 2));
  EXPECT_EQ(constraint->forced(0).size(), 0u);
}

TEST_P(JumpForward, StopsAtTheBoundOfTokens) {
  const auto constraint = service_->constraint(request(kSchema, true), {}, "", false);
  for (const int32_t most : {1, 7, 20}) {
    const Answer a = run(constraint->fork(), millrace::testing::seed(), most);
    EXPECT_EQ(a.tokens.size(), static_cast<size_t>(most));
    EXPECT_EQ(a.usage.completion_tokens, most);
    EXPECT_EQ(a.finish, engine::FinishReason::kLength);
  }
}

TEST_P(JumpForward, AConstantIsJumpedToItsEnd) {
  const auto constraint =
      service_->constraint(request(R"({"const": "a constant that is rather long"})", true), {}, "", false);
  const Answer a = run(constraint->fork(), millrace::testing::seed());
  EXPECT_EQ(Json::parse(a.text, nullptr, false), "a constant that is rather long");
  EXPECT_EQ(a.finish, engine::FinishReason::kStop);
  EXPECT_EQ(a.steps + a.jumped, a.tokens.size());
}

/// A schema of one property, and the request for it.
GenerationRequest forced_key(const std::string& key, const std::string& more = "") {
  const Json schema = {{"type", "object"},
                       {"properties", {{key, {{"type", "boolean"}}}}},
                       {"required", {key}},
                       {"additionalProperties", false}};
  return parse_chat_request(fmt::format(
      R"({{"messages": [{{"role": "user", "content": "q"}}], "guided_json": {}, "guided_whitespace_pattern": ""{}}})",
      schema.dump(), more));
}

/// Walks the constraint along `text` with the tokenizer's own tokens, taking a jump wherever there is one;
/// what is jumped must be what the tokenizer has there. How many tokens were jumped.
size_t walk_with_jumps(engine::TokenConstraint& constraint, const std::vector<int32_t>& tokens,
                       const text::Tokenizer& tokenizer) {
  size_t jumped = 0;
  for (size_t i = 0; i < tokens.size();) {
    const auto forced = constraint.forced(1000);
    if (!forced.empty()) {
      EXPECT_LE(i + forced.size(), tokens.size());
      for (const int32_t id : forced) {
        if (i >= tokens.size()) return jumped;
        EXPECT_EQ(tokenizer.piece(id), tokenizer.piece(tokens[i])) << "token " << i;
        if (!constraint.accept(id)) ADD_FAILURE() << "a jump that the grammar does not take";
        ++i;
        ++jumped;
      }
      continue;
    }
    if (!constraint.accept(tokens[i])) {
      ADD_FAILURE() << "token " << i << ", " << tokenizer.piece(tokens[i]);
      return jumped;
    }
    ++i;
  }
  return jumped;
}

TEST_P(JumpForward, TextBeyondAsciiIsJumpedInTheTokenizersTokens) {
  for (const std::string key :
       {"größe_der_übergröße", "ключевое_слово", "名前と住所の一覧", "emoji 👩‍🚀 in a name"}) {
    const auto constraint = service_->constraint(forced_key(key), {}, "", false);
    const std::string text = Json{{key, true}}.dump();
    const auto tokens = tokenizer_->encode(text, {false, false});
    const size_t jumped = walk_with_jumps(*constraint->fork(), tokens, *tokenizer_);
    EXPECT_GT(jumped, 0u) << key;
    const Answer a = run(constraint->fork(), millrace::testing::seed());
    const Json j = Json::parse(a.text, nullptr, false);
    ASSERT_TRUE(j.is_object() && j.contains(key)) << a.text;
    EXPECT_GT(a.jumped, 0u) << a.text;
    EXPECT_EQ(a.steps + a.jumped, a.tokens.size());
  }
}

TEST_P(JumpForward, GoesOnRightBehindTheEndOfReasoning) {
  OutputFormat format;
  format.reasoning = {"<think>", "</think>"};
  GrammarService service(*tokenizer_, format, patient());
  const auto constraint = service.constraint(forced_key("a_rather_long_name", R"(, "thinking_budget": 3)"),
                                             format, "<think>", true);
  const auto fork = constraint->fork();
  for (const int32_t id : tokenizer_->encode("so so so so", {false, false})) {
    if (!fork->forced(100).empty()) break;
    ASSERT_TRUE(fork->accept(id));
  }
  // The budget's end is jumped, and behind it what the grammar has no choice about.
  std::string end;
  for (const int32_t id : fork->forced(100)) {
    end += tokenizer_->piece(id, true);
    ASSERT_TRUE(fork->accept(id));
  }
  EXPECT_EQ(end, "</think>");
  const auto behind = tokenizer_->encode(R"({"a_rather_long_name":false})", {false, false});
  EXPECT_GT(walk_with_jumps(*fork, behind, *tokenizer_), 0u);
  EXPECT_TRUE(fork->finished());
  const Answer a = run(constraint->fork(), millrace::testing::seed());
  const size_t at = a.text.find("</think>");
  ASSERT_NE(at, std::string::npos) << a.text;
  const Json j = Json::parse(a.text.substr(at + 8), nullptr, false);
  EXPECT_TRUE(j.is_object() && j.contains("a_rather_long_name")) << a.text;
  EXPECT_GT(a.jumped, 0u);
}

/// Vocabularies that write a space before a text's first word. (Those whose normaliser makes spaces of line
/// ends leave no place to begin a text at, and are not jumped in.)
TEST(JumpForwardTokens, AreTheTokenizersOwnInSentencePieceVocabularies) {
  for (const char* name : {"sentence_piece/bpe", "hugging_face/llama2"}) {
    const auto tokenizer =
        text::open_hugging_face_tokenizer((millrace::testing::fixture("text/fixtures") / name).string());
    GrammarService service(*tokenizer, OutputFormat{}, patient());
    for (const std::string key :
         {"shipping_address_country_code", "the name of the country", "größe", "名前"}) {
      const auto constraint = service.constraint(forced_key(key), {}, "", false);
      const std::string text = Json{{key, true}}.dump();
      // As behind a line end: in the middle of a text no space is put before it.
      auto tokens = tokenizer->encode("\n" + text, {false, false});
      const auto line = tokenizer->encode("\n", {false, false});
      ASSERT_TRUE(tokens.size() > line.size() && std::equal(line.begin(), line.end(), tokens.begin()))
          << name;
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(line.size()));
      const auto fork = constraint->fork();
      EXPECT_GT(walk_with_jumps(*fork, tokens, *tokenizer), 0u) << name << ", " << key;
      EXPECT_TRUE(fork->finished()) << name << ", " << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Masks, JumpForward, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "BesideTheStep" : "AfterTheStep"; });

}  // namespace
}  // namespace millrace::api
