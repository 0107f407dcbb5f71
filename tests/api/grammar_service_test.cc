// Grammars of requests: what a constraint lets through is what the parser of the format understands, and what
// was asked for.
#include "api/grammar_service.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "api/openai.h"
#include "core/random.h"
#include "patient.h"
#include "testing/testing.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;

/// The 256 bytes, and special tokens after them.
class ByteTokenizer : public text::Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> special = {}) : special_(std::move(special)) {
    special_.insert(special_.begin(), "<end>");
    for (int b = 0; b < 256; ++b) raw_.emplace_back(1, static_cast<char>(b));
    for (const std::string& s : special_) raw_.push_back(s);
  }
  std::vector<text::TokenId> encode(std::string_view text,
                                    const text::EncodeOptions& options) const override {
    std::vector<text::TokenId> ids;
    while (!text.empty()) {
      size_t taken = 0;
      for (size_t i = 0; i < special_.size() && options.parse_special && taken == 0; ++i)
        if (text.substr(0, special_[i].size()) == special_[i]) {
          ids.push_back(static_cast<text::TokenId>(256 + i));
          taken = special_[i].size();
        }
      if (taken == 0) {
        ids.push_back(static_cast<uint8_t>(text[0]));
        taken = 1;
      }
      text.remove_prefix(taken);
    }
    return ids;
  }
  std::string decode(const std::vector<text::TokenId>& ids, bool keep) const override {
    std::string text;
    for (const auto id : ids) text += piece(id, keep);
    return text;
  }
  std::string piece(text::TokenId id, bool keep) const override {
    return id < 256 || keep ? raw_[static_cast<size_t>(id)] : "";
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(raw_.size()); }
  text::TokenKind kind(text::TokenId id) const override {
    return id < 256 ? text::TokenKind::kNormal : text::TokenKind::kControl;
  }
  const std::string& raw(text::TokenId id) const override { return raw_[static_cast<size_t>(id)]; }
  std::optional<text::TokenId> find(std::string_view raw) const override {
    for (size_t i = 256; i < raw_.size(); ++i)
      if (raw_[i] == raw) return static_cast<text::TokenId>(i);
    return std::nullopt;
  }
  std::optional<text::TokenId> bos() const override { return std::nullopt; }
  std::optional<text::TokenId> eos() const override { return 256; }
  const std::vector<text::TokenId>& end_of_generation() const override { return ends_; }
  bool adds_bos() const override { return false; }
  bool adds_eos() const override { return false; }
  bool strips_leading_space() const override { return false; }

 private:
  std::vector<std::string> special_, raw_;
  std::vector<text::TokenId> ends_ = {256};
};

constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
       "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 0, "maximum": 99},
                      "unit": {"type": "string", "enum": ["c", "f"]}},
       "required": ["city"], "additionalProperties": false}}},
      {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}])";

GenerationRequest chat(const std::string& more) {
  return parse_chat_request(R"({"messages": [{"role": "user", "content": "q"}], )" + more + "}");
}

/// Tokens at random out of each mask (`wish` first, where it is allowed), until the constraint ends or an end
/// token comes.
std::string walk(engine::TokenConstraint& constraint, const ByteTokenizer& tokenizer, Random& random,
                 std::string_view wish = "", bool* ended = nullptr) {
  std::vector<uint64_t> mask((static_cast<size_t>(tokenizer.vocab_size()) + 63) / 64);
  std::string text;
  for (int step = 0; step < 6000; ++step) {
    constraint.fill_mask(mask);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) allowed.push_back(id);
    EXPECT_FALSE(allowed.empty()) << text;
    if (allowed.empty()) return text;
    int32_t token = allowed[random.below(static_cast<uint32_t>(allowed.size()))];
    // White space takes long to end by chance.
    for (int again = 0; again < 8 && token < 256 && std::isspace(token); ++again)
      token = allowed[random.below(static_cast<uint32_t>(allowed.size()))];
    if (!wish.empty()) {
      const auto wanted = tokenizer.encode(wish, {});
      if (std::find(allowed.begin(), allowed.end(), wanted[0]) != allowed.end()) {
        token = wanted[0];
        wish.remove_prefix(tokenizer.raw(token).size());
      } else {
        wish = "";
      }
    }
    if (token == 256) {
      if (ended != nullptr) *ended = true;
      return text;
    }
    EXPECT_TRUE(constraint.accept(token)) << text;
    text += tokenizer.piece(token, true);
    if (constraint.finished()) {
      if (ended != nullptr) *ended = true;
      return text;
    }
  }
  return text;
}

struct Parsed {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
};
Parsed parse(const OutputFormat& format, const GenerationRequest& r, const std::string& text,
             bool in_reasoning = false) {
  ParserOptions options;
  options.tools = r.tools;
  options.starts_in_reasoning = in_reasoning;
  Parsed out;
  for (const OutputEvent& e : parse_output(format, options, text)) {
    if (e.kind == OutputEvent::Kind::kContent) out.content += e.text;
    if (e.kind == OutputEvent::Kind::kReasoning) out.reasoning += e.text;
    if (e.kind == OutputEvent::Kind::kToolCallBegin) out.calls.emplace_back(e.name, "");
    if (e.kind == OutputEvent::Kind::kToolArguments) out.calls.back().second += e.text;
  }
  return out;
}

std::vector<std::string> markers_of(ToolFormat format) {
  // The markers of some formats are special tokens; those of the others are plain text.
  switch (format) {
    case ToolFormat::kMistralArray:
    case ToolFormat::kMistralNamed:
      return {"[TOOL_CALLS]", "[ARGS]"};
    case ToolFormat::kDeepSeekV3:
    case ToolFormat::kDeepSeekV31:
      return {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
              "<｜tool▁calls▁end｜>"};
    case ToolFormat::kHermes:
      return {"<tool_call>", "</tool_call>"};
    case ToolFormat::kKimiK2:
      return {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
              "<|tool_call_end|>", "<|tool_calls_section_end|>"};
    default:
      return {};
  }
}

void expect_valid_call(const std::pair<std::string, std::string>& call, const std::string& name) {
  const Json arguments = Json::parse(call.second, nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << name << ": " << call.second;
  if (call.first == "now") {
    EXPECT_TRUE(arguments.empty()) << name;
    return;
  }
  EXPECT_EQ(call.first, "weather") << name;
  ASSERT_TRUE(arguments.contains("city")) << name << ": " << call.second;
  EXPECT_TRUE(arguments["city"].is_string()) << name << ": " << call.second;
  for (const auto& [key, value] : arguments.items()) {
    EXPECT_TRUE(key == "city" || key == "days" || key == "unit") << name << ": " << key;
    if (key == "days") {
      EXPECT_TRUE(value.is_number() && value >= 0 && value <= 99) << name << ": " << value;
    }
    if (key == "unit") {
      EXPECT_TRUE(value == "c" || value == "f") << name << ": " << value;
    }
  }
}

TEST(GrammarService, EveryToolFormatsGrammarMakesCallsThatItsParserTakes) {
  Random random(millrace::testing::seed());
  for (const auto& [tools, name] : tool_formats()) {
    OutputFormat format;
    format.tools = tools;
    const ByteTokenizer tokenizer(markers_of(tools));
    GrammarService service(tokenizer, format, patient());
    int checked = 0;
    for (const char* choice : {R"("required")", R"({"type": "function", "function": {"name": "weather"}})"}) {
      for (const bool parallel : {false, true}) {
        const GenerationRequest r =
            chat(std::string(kTools) +
                 fmt::format(R"(, "tool_choice": {}, "parallel_tool_calls": {})", choice, parallel));
        const auto constraint = service.constraint(r, format, "", false);
        ASSERT_NE(constraint, nullptr) << name;
        // More than the scale asks for where none came to an end yet: some texts have no bound.
        for (int64_t i = 0; i < millrace::testing::scaled(4) || (checked == 0 && i < 8); ++i) {
          const auto fork = constraint->fork();
          bool ended = false;
          const std::string text = walk(*fork, tokenizer, random, "", &ended);
          if (!ended) continue;  // a text without bound, cut
          ++checked;
          const Parsed out = parse(format, r, text);
          EXPECT_EQ(out.content, "") << name << "\n" << text;
          ASSERT_FALSE(out.calls.empty()) << name << "\n" << text;
          if (!parallel) {
            EXPECT_EQ(out.calls.size(), 1u) << name << "\n" << text;
          }
          for (const auto& call : out.calls) expect_valid_call(call, name + "\n" + text);
          if (choice[0] == '{') {
            EXPECT_EQ(out.calls[0].first, "weather") << name;
          }
        }
      }
    }
    EXPECT_GE(checked, 1) << name;
  }
}

TEST(GrammarService, WithToolsOnAutoTextIsFreeUntilACallBegins) {
  Random random(millrace::testing::seed() + 1);
  OutputFormat format;
  format.tools = ToolFormat::kHermes;
  const ByteTokenizer tokenizer;
  GrammarService service(tokenizer, format, patient());
  const GenerationRequest r = chat(kTools);
  for (int64_t i = 0; i < millrace::testing::scaled(20); ++i) {
    const auto constraint = service.constraint(r, format, "", false);
    ASSERT_NE(constraint, nullptr);
    const std::string text = walk(*constraint, tokenizer, random,
                                  "Let me see <tool <tool_call>\n{\"name\": \"weather\", \"arguments\": {");
    const Parsed out = parse(format, r, text);
    EXPECT_EQ(out.content, "Let me see <tool") << text;
    ASSERT_EQ(out.calls.size() >= 1, true) << text;
    for (const auto& call : out.calls) expect_valid_call(call, text);
  }
  // A Llama counts a call only where it is the whole answer.
  format.tools = ToolFormat::kLlama3Json;
  GrammarService llama(tokenizer, format, {});
  const auto constraint = llama.constraint(r, format, "", false);
  for (const char c : std::string("a {\"name\": \"other\"")) ASSERT_TRUE(constraint->accept(c));
}

TEST(GrammarService, FunctionarysPartsAreTextOrCallsThatTheirSchemasAllow) {
  Random random(millrace::testing::seed() + 4);
  struct {
    ToolFormat format;
    const char *prompt, *header, *text, *call, *separator;
  } const styles[] = {
      {ToolFormat::kFunctionaryV32, "x>>>", "", "all\n", "weather\n", ">>>"},
      {ToolFormat::kFunctionaryV32, "x", ">>>", "all\n", "weather\n", ">>>"},
      {ToolFormat::kFunctionaryV2, "x<|recipient|>", "", "all\n<|content|>", "weather\n<|content|>",
       "\n<|from|>assistant\n<|recipient|>"},
  };
  for (const auto& style : styles)
    for (const bool parallel : {true, false}) {
      OutputFormat format;
      format.tools = style.format;
      const ByteTokenizer tokenizer(style.format == ToolFormat::kFunctionaryV2
                                        ? std::vector<std::string>{"<|from|>", "<|recipient|>", "<|content|>"}
                                        : std::vector<std::string>{});
      GrammarService service(tokenizer, format, patient());
      const GenerationRequest r =
          chat(std::string(kTools) + (parallel ? "" : R"(, "parallel_tool_calls": false)"));
      const auto constraint = service.constraint(r, format, style.prompt, false);
      ASSERT_NE(constraint, nullptr);
      // Text that comes to an end by itself, with what might be taken for the beginning of a part in it.
      const std::string said = std::string(style.header) + style.text + "a >> b, <x> é>";
      auto fork = constraint->fork();
      for (const int32_t token : tokenizer.encode(said, {})) ASSERT_TRUE(fork->accept(token)) << said;
      std::vector<uint64_t> mask((static_cast<size_t>(tokenizer.vocab_size()) + 63) / 64);
      fork->fill_mask(mask);
      EXPECT_TRUE(mask[256 / 64] >> (256 % 64) & 1) << "a text may end";
      EXPECT_EQ(parse(format, r, said).content, "a >> b, <x> é>");
      for (int64_t i = 0; i < millrace::testing::scaled(10); ++i) {
        const bool first = i % 2 == 0;
        const std::string wish =
            style.header + (first ? std::string() : std::string(style.text) + "Wait." + style.separator) +
            style.call + "{\"city\": \"";
        bool ended = false;
        fork = constraint->fork();
        const std::string text = walk(*fork, tokenizer, random, wish, &ended);
        ASSERT_TRUE(text.starts_with(wish)) << text;
        if (!ended) continue;
        const Parsed out = parse(format, r, text);
        ASSERT_FALSE(out.calls.empty()) << text;
        for (const auto& call : out.calls) expect_valid_call(call, text);
        if (!parallel) {
          EXPECT_EQ(out.calls.size(), 1u) << text;
          EXPECT_EQ(out.content, first ? "" : "Wait.") << text;
        }
      }
      // A recipient that is none of the tools cannot be named.
      fork = constraint->fork();
      const std::string text = walk(*fork, tokenizer, random, std::string(style.header) + "wether\n");
      EXPECT_FALSE(text.starts_with(std::string(style.header) + "wet")) << text;
    }
}

TEST(GrammarService, ACallThatBeginsOnAutoIsValidInEveryFormat) {
  Random random(millrace::testing::seed() + 5);
  for (const auto& [tools, name] : tool_formats()) {
    if (tools == ToolFormat::kFunctionaryV32 || tools == ToolFormat::kFunctionaryV2) continue;  // above
    OutputFormat format;
    format.tools = tools;
    const ByteTokenizer tokenizer(markers_of(tools));
    GrammarService service(tokenizer, format, patient());
    // What a model that was told to call writes, up to its arguments, is how a call begins.
    const GenerationRequest forced = chat(
        std::string(kTools) + R"(, "tool_choice": {"type": "function", "function": {"name": "weather"}})");
    const auto must = service.constraint(forced, format, "", false);
    ASSERT_NE(must, nullptr) << name;
    const GenerationRequest r = chat(std::string(kTools) + R"(, "parallel_tool_calls": false)");
    const auto constraint = service.constraint(r, format, "", false);
    ASSERT_NE(constraint, nullptr) << name;
    int checked = 0;
    for (int i = 0; i < 12 && checked < 2; ++i) {
      // Texts between tags come to no end by chance.
      std::string begin;
      if (tools == ToolFormat::kQwen3Coder)
        begin = "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n";
      if (tools == ToolFormat::kSeed)
        begin = "<seed:tool_call>\n<function=weather>\n<parameter=city>Paris</parameter>\n";
      if (tools == ToolFormat::kGlm)
        begin = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n";
      if (tools == ToolFormat::kMiniMax)
        begin =
            "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Paris</parameter>\n";
      if (begin.empty()) {
        const std::string call = walk(*must->fork(), tokenizer, random);
        begin = call.substr(0, call.find("weather") + 8);
      }
      bool ended = false;
      const auto fork = constraint->fork();
      const std::string text = walk(*fork, tokenizer, random, begin, &ended);
      ASSERT_TRUE(text.starts_with(begin)) << name << "\n" << text;
      if (!ended) continue;
      ++checked;
      const Parsed out = parse(format, r, text);
      ASSERT_FALSE(out.calls.empty()) << name << "\n" << text;
      for (const auto& made : out.calls) expect_valid_call(made, name + "\n" + text);
    }
    EXPECT_GE(checked, 1) << name;
  }
}

TEST(GrammarService, ReasoningIsFreeThenTheGrammarHolds) {
  Random random(millrace::testing::seed() + 2);
  OutputFormat format;
  format.reasoning = {"<think>", "</think>"};
  for (const bool special : {true, false}) {
    const ByteTokenizer tokenizer(special ? std::vector<std::string>{"<think>", "</think>"}
                                          : std::vector<std::string>{});
    GrammarService service(tokenizer, format, patient());
    const GenerationRequest r = chat(R"("guided_regex": "[0-9]{4}", "thinking_budget": 12)");
    for (int i = 0; i < 20; ++i) {
      const auto inside = service.constraint(r, format, "x<think>\n", true);
      const std::string text =
          walk(*inside, tokenizer, random, i % 2 ? "hm </think>\n" : "this goes on and on and on");
      const Parsed out = parse(format, r, text, true);
      EXPECT_EQ(out.content.size(), 4u) << text;
      EXPECT_TRUE(std::all_of(out.content.begin(), out.content.end(), [](char c) {
        return c >= '0' && c <= '9';
      })) << text;
      EXPECT_LE(out.reasoning.size(), 12u) << text;
    }
    // The answer may open a block itself where the marker is a token, and not where the prompt has closed
    // one.
    const auto outside = service.constraint(r, format, "x", false);
    const std::string text = walk(*outside, tokenizer, random, "<think>so</think>");
    EXPECT_EQ(parse(format, r, text).reasoning, special ? "so" : "") << text;
    const auto closed = service.constraint(r, format, "x<think></think>\n\n", false);
    EXPECT_EQ(walk(*closed, tokenizer, random, "<think>").size(), 4u);
  }
  // A budget needs no grammar.
  const ByteTokenizer tokenizer;
  GrammarService service(tokenizer, format, patient());
  const auto bounded = service.constraint(chat(R"("thinking_budget": 3)"), format, "<think>", true);
  ASSERT_NE(bounded, nullptr);
  const std::string text = walk(*bounded, tokenizer, random, "abcdef");
  EXPECT_EQ(text.substr(0, 11), "abc</think>");
  const auto none = service.constraint(chat(R"("thinking_budget": 0)"), format, "<think>", true);
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(walk(*none, tokenizer, random, "abcdef").substr(0, 8), "</think>");
  EXPECT_EQ(service.constraint(chat(R"("temperature": 1)"), format, "<think>", true), nullptr);
}

TEST(GrammarService, TextConstraintsOfEveryKindHold) {
  Random random(millrace::testing::seed() + 3);
  const ByteTokenizer tokenizer;
  GrammarService service(tokenizer, {}, patient());
  const std::pair<const char*, std::function<bool(const std::string&)>> cases[] = {
      {R"("guided_choice": ["yes", "no"])", [](const std::string& t) { return t == "yes" || t == "no"; }},
      {R"("guided_regex": "a{3}b?")", [](const std::string& t) { return t == "aaa" || t == "aaab"; }},
      {R"("grammar": "root ::= \"x\" [0-9] \"y\"")",
       [](const std::string& t) { return t.size() == 3 && t[0] == 'x' && t[2] == 'y'; }},
      {R"("guided_grammar": "start: \"p\" Q\nQ: /[qr]/")",
       [](const std::string& t) { return t == "pq" || t == "pr"; }},
      {R"("response_format": {"type": "json_object"})",
       [](const std::string& t) { return Json::parse(t, nullptr, false).is_object(); }},
      {R"("guided_json": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, "guided_whitespace_pattern": "")",
       [](const std::string& t) {
         const Json j = Json::parse(t, nullptr, false);
         return j.is_array() && j.size() <= 3 && t.find(' ') == std::string::npos;
       }}};
  for (const auto& [more, good] : cases) {
    const auto constraint = service.constraint(chat(more), {}, "", false);
    ASSERT_NE(constraint, nullptr) << more;
    for (int i = 0; i < 10; ++i) {
      const auto fork = constraint->fork();
      bool ended = false;
      const std::string text =
          walk(*fork, tokenizer, random,
               std::string(more).find("json_object") != std::string::npos ? "{\"a\": 1}" : "", &ended);
      EXPECT_TRUE(ended) << more;
      EXPECT_TRUE(good(text)) << more << "\n" << text;
    }
  }
  EXPECT_EQ(service.counters().refused, 0u);
}

TEST(GrammarService, RefusalsNameTheParameter) {
  const ByteTokenizer tokenizer;
  OutputFormat format;
  format.tools = ToolFormat::kHermes;
  GrammarService service(tokenizer, format, patient());
  const auto refused = [&](const std::string& more) -> std::string {
    try {
      service.constraint(chat(more), format, "", false);
    } catch (const ApiError& e) {
      EXPECT_EQ(http_status(e), 400) << e.what();
      return e.param();
    }
    return "taken";
  };
  EXPECT_EQ(refused(R"("guided_regex": "(a")"), "guided_regex");
  EXPECT_EQ(refused(R"("grammar": "root ::= nothing")"), "grammar");
  EXPECT_EQ(refused(R"x("response_format": {"type": "json_schema", "json_schema": {"name": "x",
                       "schema": {"pattern": "(?<=a)b"}}})x"),
            "response_format.json_schema.schema");
  const std::string tool = R"x("tools": [{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=a)b"}}})x";
  EXPECT_EQ(refused(tool + R"x(}}], "tool_choice": "required")x"), "tools[0].function.parameters");
  EXPECT_EQ(refused(tool + R"x(, "strict": true}}])x"), "tools[0].function.parameters");
  // Where the model is free to call or not and nothing was promised, arguments are an object at least.
  EXPECT_EQ(refused(tool + "}}]"), "taken");
  EXPECT_EQ(refused(std::string(kTools) + R"x(, "guided_regex": "a")x"), "guided_regex");
  EXPECT_EQ(refused(std::string(kTools) + R"x(, "response_format": {"type": "json_object"})x"), "taken");
}

}  // namespace
}  // namespace millrace::api
