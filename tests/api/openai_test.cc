// Bodies of the APIs: what is taken, what is refused and how, and what is answered.
#include "api/openai.h"

#include <nlohmann/json.hpp>

#include "api/anthropic.h"
#include "api/chat.h"
#include "api/tool_grammar.h"
#include "testing/testing.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHello = R"("messages": [{"role": "user", "content": "Hi"}])";
constexpr const char* kClockTools =
    R"("tools": [{"type": "function", "function": {"name": "now", "parameters": {"type": "object",
  "properties": {"zone": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]}}}])";

GenerationRequest chat_request(const std::string& more) {
  return parse_chat_request("{" + std::string(kHello) + (more.empty() ? "" : ", " + more) + "}");
}

/// The parameter that the error names, and its code.
template <typename Parse>
std::string refusal(Parse parse) {
  try {
    parse();
  } catch (const ApiError& e) {
    EXPECT_EQ(http_status(e.code()), 400) << e.what();
    EXPECT_TRUE(Json::accept(openai_error_body(e)));
    EXPECT_TRUE(Json::accept(anthropic_error_body(e)));
    return e.param() + " " + e.reason();
  }
  return "taken";
}
std::string refused(const std::string& more) {
  return refusal([&] { chat_request(more); });
}

TEST(OpenAiRequest, TakesEveryField) {
  const GenerationRequest r = chat_request(
      R"("model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "n": 2, "best_of": 3, "seed": 7,
         "max_completion_tokens": 12, "stop": ["a", "b"], "logit_bias": {"5": -100}, "presence_penalty": 1, "frequency_penalty": -1,
         "logprobs": true, "top_logprobs": 3, "stream": true, "stream_options": {"include_usage": true}, "ignore_eos": true,
         "priority": -2, "deadline_ms": 500, "cache_salt": "s", "user": "u", "response_format": {"type": "json_object"},
         "chat_template_kwargs": {"x": 1}, "reasoning_effort": "low", "metadata": {"a": "b"}, "store": false)");
  EXPECT_EQ(r.model, "m");
  EXPECT_FLOAT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(r.sampling.top_p, 0.9f);
  EXPECT_EQ(r.sampling.top_k, 40);
  EXPECT_EQ(r.generation.n, 2);
  EXPECT_EQ(r.generation.best_of, 3);
  EXPECT_EQ(r.sampling.seed, 7u);
  EXPECT_EQ(r.generation.max_tokens, 12);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(r.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(r.sampling.logit_bias[0].first, 5);
  EXPECT_TRUE(r.logprobs && r.stream && r.include_usage && r.generation.ignore_eos);
  EXPECT_EQ(r.sampling.logprobs, 3);
  EXPECT_EQ(r.deadline_ms, 500);
  EXPECT_EQ(r.priority, -2);
  EXPECT_EQ(r.constraint.kind, TextConstraint::Kind::kJsonObject);
  EXPECT_TRUE(r.has("temperature"));
  EXPECT_FALSE(r.has("typical_p"));
  EXPECT_EQ(chat_request(R"("temperature": null)").has("temperature"), false);
}

TEST(OpenAiRequest, RefusesWrongTypesRangesAndUnknownMembers) {
  EXPECT_EQ(refused(R"("temperatur": 1)"), "temperatur unknown_parameter");
  for (const char* field :
       {"temperature", "top_p", "n", "max_tokens", "seed", "presence_penalty", "min_p", "top_k", "priority",
        "deadline_ms", "best_of", "min_tokens", "repetition_penalty", "top_logprobs"}) {
    for (const char* value :
         {"\"1\"", "[]", "{}", "true", "1e308", "-1e308", "9223372036854775808", "-9223372036854775809"}) {
      const std::string got = refused(fmt::format("\"{}\": {}", field, value));
      EXPECT_NE(got, "taken") << field << " " << value;
    }
  }
  EXPECT_EQ(refused(R"("temperature": 2.1)"), "temperature invalid_value");
  EXPECT_EQ(refused(R"("n": 0)"), "n invalid_value");
  EXPECT_EQ(refused(R"("n": 1.5)"), "n invalid_value");
  EXPECT_EQ(refused(R"("n": 3, "best_of": 2)"), "best_of invalid_value");
  EXPECT_EQ(refused(R"("stop": [""])"), "stop invalid_value");
  EXPECT_EQ(refused(R"("stop": 5)"), "stop invalid_value");
  EXPECT_EQ(refused(R"("logit_bias": {"x": 1})"), "logit_bias invalid_value");
  EXPECT_EQ(refused(R"("logit_bias": {"1": 101})"), "logit_bias invalid_value");
  EXPECT_EQ(refused(R"("logit_bias": {"99999999999": 1})"), "logit_bias invalid_value");
  EXPECT_EQ(refused(R"("stream_options": {"include_usage": true})"), "stream_options invalid_value");
  EXPECT_EQ(refused(R"("top_logprobs": 2)"), "top_logprobs invalid_value");
  EXPECT_EQ(refused(R"("response_format": {"type": "xml"})"), "response_format.type invalid_value");
  EXPECT_EQ(refused(R"("guided_regex": "a", "guided_choice": ["b"])"), "guided_choice invalid_value");
  EXPECT_EQ(refused(R"("tool_choice": "required")"), "tool_choice invalid_value");
  for (const char* body :
       {"", "[]", "1", "{", "{\"messages\": []}", "{\"messages\": {}}", "{\"messages\": [1]}",
        "{\"messages\": [{\"role\": \"alien\", \"content\": \"x\"}]}",
        "{\"messages\": [{\"role\": \"user\"}]}", "{\"messages\": [{\"role\": \"user\", \"content\": 5}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {}}]}]}",
        "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}"})
    EXPECT_NE(refusal([&] { parse_chat_request(body); }), "taken") << body;
  EXPECT_NE(refusal([&] { parse_chat_request(std::string(1000000, '[')); }), "taken");
  EXPECT_NE(refusal([&] { parse_completion_request(R"({"prompt": []})"); }), "taken");
  EXPECT_NE(refusal([&] { parse_completion_request(R"({"prompt": [1, -1]})"); }), "taken");
}

TEST(OpenAiRequest, BadBodiesGetOneSentence) {
  const auto refused = [](const std::string& body) {
    return refusal([&] { parse_completion_request(body); }) != "taken";
  };
  const std::string head = R"({"prompt": "a", "user": )";
  EXPECT_FALSE(refused(head + R"("x"})"));
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("[]"));
  EXPECT_TRUE(refused(head + "\"\xff\"}"));
  EXPECT_TRUE(refused(R"({"prompt": "a", "temperature": 1e999})"));
  EXPECT_TRUE(refused(std::string(100000, '[')));
  EXPECT_TRUE(refused(R"({"prompt": "a", "metadata": )" + std::string(65, '[') + std::string(65, ']') + "}"));
  EXPECT_FALSE(refused(head + "\"" + std::string(1000, '[') + "\"}"));
  // Objects whose reading would take minutes: many members, or long names of them.
  const auto members = [](int count, const std::string& name) {
    std::string body = R"({"prompt": "a", "metadata": {"first": ":,:,")";
    for (int i = 0; i < count; ++i) body += fmt::format(",\"{}{}\":1", name, i);
    return body + "}}";
  };
  EXPECT_FALSE(refused(members(5000, "")));
  EXPECT_EQ(refusal([&] { parse_completion_request(members(200000, "")); }),
            refusal([&] { parse_completion_request(members(5000, std::string(1000, 'n'))); }));
  EXPECT_TRUE(refused(members(200000, "").substr(0, 1000000)));
}

TEST(OpenAiRequest, ConstraintsComeFromEveryNameTheyHave) {
  using Kind = TextConstraint::Kind;
  const std::pair<const char*, Kind> cases[] = {
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": true}})",
       Kind::kJsonSchema},
      {R"("guided_json": {"type": "object"})", Kind::kJsonSchema},
      {R"("guided_json": "{\"type\": \"object\"}")", Kind::kJsonSchema},
      {R"("guided_regex": "a+")", Kind::kRegex},
      {R"("guided_choice": ["a", "b"])", Kind::kChoice},
      {R"("guided_grammar": "root ::= \"a\"")", Kind::kGbnf},
      {R"("guided_grammar": "start: \"a\"")", Kind::kLark},
      {R"("grammar": "root ::= \"a\"")", Kind::kGbnf},
      {R"("structured_outputs": {"regex": "a"})", Kind::kRegex},
      {R"("response_format": {"type": "text"})", Kind::kNone}};
  for (const auto& [more, kind] : cases) EXPECT_EQ(chat_request(more).constraint.kind, kind) << more;
}

TEST(OpenAiRequest, ToolsAndChoices) {
  EXPECT_EQ(chat_request(kClockTools).tool_choice.choice, ToolChoice::kAuto);
  EXPECT_EQ(chat_request("").tool_choice.choice, ToolChoice::kNone);
  const std::string tools = kClockTools;
  EXPECT_EQ(chat_request(tools + R"(, "tool_choice": "required")").tool_choice.choice, ToolChoice::kRequired);
  const GenerationRequest named = chat_request(
      tools +
      R"(, "tool_choice": {"type": "function", "function": {"name": "now"}}, "parallel_tool_calls": false)");
  EXPECT_EQ(named.tool_choice.choice, ToolChoice::kNamed);
  EXPECT_FALSE(named.tool_choice.parallel);
  EXPECT_EQ(refused(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "no"}})"),
            "tool_choice.function.name invalid_value");
  EXPECT_EQ(refused(R"("tools": [{"type": "function", "function": {"name": "a b"}}])"),
            "tools[0].function.name invalid_value");
}

TEST(OpenAiRequest, Completions) {
  EXPECT_EQ(parse_completion_request(R"({"prompt": "x"})").generation.max_tokens, 16);
  EXPECT_EQ(parse_completion_request(R"({"prompt": ["x", "y"]})").prompts.size(), 2u);
  const GenerationRequest ids =
      parse_completion_request(R"({"prompt": [1, 2, 3], "echo": true, "max_tokens": 0, "logprobs": 2})");
  EXPECT_TRUE(ids.prompts[0].is_ids && ids.echo && ids.logprobs);
  EXPECT_EQ(ids.prompts[0].ids, (std::vector<engine::TokenId>{1, 2, 3}));
  EXPECT_EQ(parse_completion_request(R"({"prompt": [[1], [2, 3]]})").prompts[1].ids.size(), 2u);
}

TEST(OtherApis, MapOntoTheSameRequest) {
  const GenerationRequest r = parse_responses_request(
      R"({"model": "m", "instructions": "be brief", "max_output_tokens": 5, "input": [{"role": "user", "content": [{"type": "input_text",
          "text": "hi"}]}, {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{\"a\": 1}"},
          {"type": "function_call_output", "call_id": "c1", "output": "12:00"}], "tools": [{"type": "function", "name": "now"}]})");
  const Json messages = Json::parse(r.messages);
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_EQ(messages[3]["tool_call_id"], "c1");
  EXPECT_EQ(r.generation.max_tokens, 5);
  EXPECT_NE(refusal([] { parse_responses_request(R"({"input": "x", "previous_response_id": "r"})"); }),
            "taken");

  const GenerationRequest a = parse_anthropic_request(
      R"({"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "sys"}], "messages": [{"role": "user", "content": "q"},
          {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "x", "name": "now", "input": {"n": 1}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "r"}]}]}],
          "tools": [{"name": "now", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}, "stop_sequences": ["E"]})");
  const Json m = Json::parse(a.messages);
  ASSERT_EQ(m.size(), 4u);
  EXPECT_EQ(m[2]["reasoning_content"], "t");
  EXPECT_EQ(m[2]["tool_calls"][0]["function"]["name"], "now");
  EXPECT_EQ(m[3]["role"], "tool");
  EXPECT_EQ(a.tool_choice.choice, ToolChoice::kRequired);
  EXPECT_EQ(a.stop[0], "E");
  EXPECT_NE(refusal([] { parse_anthropic_request(R"({"messages": [{"role": "user", "content": "x"}]})"); }),
            "taken");
}

TEST(OpenAiResponse, BodiesHaveOpenAisShape) {
  ChoiceResult choice;
  choice.text = "hi \xff";
  choice.reasoning = "why";
  choice.finish_reason = "tool_calls";
  choice.tool_calls = {{"id1", "now", "{}"}};
  choice.has_logprobs = true;
  choice.logprobs = {{"h", -0.5f, {{"h", -0.5f}, {"\xff", -2.0f}}}};
  engine::Usage usage{10, 4, 3};
  const Json body = Json::parse(chat_response({"chatcmpl-1", 5, "m"}, {choice}, usage));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "hi \xef\xbf\xbd");
  EXPECT_EQ(body["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "now");
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1]["bytes"][0], 255);
  EXPECT_EQ(body["usage"]["total_tokens"], 13);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  const Json completion = Json::parse(completion_response({"cmpl-1", 5, "m"}, {choice}, usage));
  EXPECT_EQ(completion["choices"][0]["logprobs"]["tokens"][0], "h");
  const Json response = Json::parse(responses_response({"resp_1", 5, "m"}, choice, usage, "completed"));
  EXPECT_EQ(response["output"].size(), 3u);
  const Json message = Json::parse(anthropic_response({"msg_1", 5, "m"}, choice, usage, ""));
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["content"][2]["name"], "now");
}

TEST(OpenAiResponse, StreamsTellTheWholeAnswer) {
  std::vector<OutputEvent> events = {{OutputEvent::Kind::kReasoning, "r", 0, "", ""},
                                     {OutputEvent::Kind::kContent, "te", 0, "", ""},
                                     {OutputEvent::Kind::kContent, "xt", 0, "", ""},
                                     {OutputEvent::Kind::kToolCallBegin, "", 0, "c0", "now"},
                                     {OutputEvent::Kind::kToolArguments, "{\"a\":", 0, "", ""},
                                     {OutputEvent::Kind::kToolArguments, "1}", 0, "", ""},
                                     {OutputEvent::Kind::kToolCallEnd, "", 0, "", ""}};
  const ResponseInfo info{"id", 1, "m"};
  std::string content, arguments;
  for (const OutputEvent& e : events) {
    const std::string chunk = chat_chunk(info, 0, e);
    if (chunk.empty()) continue;
    const Json delta = Json::parse(chunk)["choices"][0]["delta"];
    content += delta.value("content", "");
    if (delta.contains("tool_calls")) arguments += delta["tool_calls"][0]["function"].value("arguments", "");
  }
  EXPECT_EQ(content, "text");
  EXPECT_EQ(arguments, "{\"a\":1}");

  ResponsesStream stream(info);
  ResponsesStream::Events out;
  stream.begin(out);
  for (const OutputEvent& e : events) stream.add(e, out);
  stream.finish("tool_calls", {}, out);
  EXPECT_EQ(out.front().first, "response.created");
  EXPECT_EQ(out.back().first, "response.completed");
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(Json::parse(out[i].second)["sequence_number"], i);
  EXPECT_EQ(Json::parse(out.back().second)["response"]["output"][2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(Json::parse(out.back().second)["response"]["output"][1]["content"][0]["text"], "text");

  AnthropicStream messages(info);
  AnthropicStream::Events blocks;
  messages.begin(3, blocks);
  for (const OutputEvent& e : events) messages.add(e, blocks);
  messages.finish("tool_calls", "", {}, blocks);
  int starts = 0, stops = 0;
  for (const auto& [name, body] : blocks) {
    starts += name == "content_block_start";
    stops += name == "content_block_stop";
    EXPECT_EQ(Json::parse(body)["type"], name);
  }
  EXPECT_EQ(starts, 3);
  EXPECT_EQ(stops, 3);
  EXPECT_EQ(blocks.back().first, "message_stop");
}

TEST(Chat, RendersARequestAndFallsBackToTextArguments) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "now", "arguments": "{\"n\": 1}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "ok"}]})";
  const GenerationRequest r = parse_chat_request(body);
  const auto as_object = text::ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ "
      "c.function.arguments.n + 1 }}{% endfor %};{% endfor %}");
  EXPECT_EQ(render_prompt(as_object, r), "user:a\nb;assistant:2;tool:ok;");
  const auto as_text = text::ChatTemplate::parse(
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments + '>' }}{% "
      "endfor %}{% endfor %}");
  EXPECT_EQ(render_prompt(as_text, r), "<{\"n\":1}>");
  const auto refusing = text::ChatTemplate::parse("{{ raise_exception('no tools here') }}");
  try {
    render_prompt(refusing, r);
    FAIL() << "the template refuses";
  } catch (const ApiError& e) {
    EXPECT_EQ(e.param(), "messages");
    EXPECT_NE(std::string(e.what()).find("no tools here"), std::string::npos);
  }
  GenerationRequest more = parse_chat_request(
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "So far "}],
    "continue_final_message": true, "add_generation_prompt": false})");
  const auto turns = text::ChatTemplate::parse(
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<end>{% endfor %}");
  EXPECT_EQ(render_prompt(turns, more), "[user]q<end>[assistant]So far ");
  const GenerationRequest arguments = parse_chat_request(
      R"({"messages": [{"role": "user", "content": "q"}], "chat_template_kwargs": {"mood": "calm", "n": [1, 2]}})");
  EXPECT_EQ(render_prompt(text::ChatTemplate::parse("{{ mood }}{{ n[1] }}"), arguments), "calm2");
}

/// What a grammar's literals and one example of arguments spell must be what the parser of the format
/// understands.
TEST(ToolGrammar, SpellsCallsThatTheParserUnderstands) {
  const GenerationRequest r = chat_request(std::string(kClockTools) + R"(, "tool_choice": "required")");
  for (const auto& [format, name] : tool_formats()) {
    for (const bool parallel : {false, true}) {
      ToolChoiceSetting setting = r.tool_choice;
      setting.parallel = parallel;
      const ToolGrammar grammar = tool_grammar(format, r.tools, setting);
      ASSERT_EQ(grammar.calls.size(), 1u);
      const auto spell = [&](const std::vector<GrammarPart>& parts, auto& self) -> std::string {
        std::string text;
        for (const GrammarPart& part : parts) {
          if (part.kind == GrammarPart::Kind::kLiteral) text += part.text;
          if (part.kind == GrammarPart::Kind::kTextUntil) text += "UTC";
          if (part.kind == GrammarPart::Kind::kJson)
            text += part.text.find("\"zone\"") != std::string::npos ? R"({"zone": "UTC", "n": 1})" : "1";
          for (const auto& alternative : part.alternatives) text += self(alternative, self);
        }
        return text;
      };
      const std::string call = spell(grammar.calls[0].parts, spell);
      std::string text = grammar.begin + call;
      if (grammar.parallel) text += grammar.separator + call;
      text += grammar.end;
      ParserOptions options;
      options.tools = r.tools;
      OutputFormat output;
      output.tools = format;
      std::string arguments, content;
      size_t calls = 0;
      for (const OutputEvent& e : parse_output(output, options, text)) {
        if (e.kind == OutputEvent::Kind::kToolCallBegin) {
          EXPECT_EQ(e.name, "now") << name;
          ++calls;
        }
        if (e.kind == OutputEvent::Kind::kToolArguments && calls == 1) arguments += e.text;
        if (e.kind == OutputEvent::Kind::kContent) content += e.text;
      }
      EXPECT_EQ(calls, grammar.parallel ? 2u : 1u) << name << "\n" << text;
      EXPECT_EQ(content, "") << name << "\n" << text;
      ASSERT_TRUE(Json::accept(arguments)) << name << "\n" << arguments;
      EXPECT_EQ(Json::parse(arguments), Json::parse(R"({"zone": "UTC", "n": 1})")) << name;
      EXPECT_NE(to_gbnf(grammar, [](const std::string&) { return std::string("value"); }).find("root ::= "),
                std::string::npos);
    }
  }
  EXPECT_THROW(tool_grammar(ToolFormat::kHermes, {}, {}), Error);
  EXPECT_EQ(gbnf_literal("a\"\\\n"), R"("a\"\\\n")");
}

}  // namespace
}  // namespace millrace::api
