// Every format: what its models write, whole and in every split; malformed output is content, whole.
#include "api/output_parser.h"

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "testing/testing.h"

namespace millrace::api {
namespace {

using Kind = OutputEvent::Kind;

const Tool kWeather = {
    "get_weather", "Weather of a city",
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                           "opts": {"type": "object"}}, "required": ["city"]})",
    false};
const Tool kNow = {"now", "The time", R"({"type": "object", "properties": {}})", false};

ParserOptions with_tools() {
  ParserOptions options;
  options.tools = {kWeather, kNow};
  return options;
}

/// Content, reasoning and calls, joined over all events.
struct Output {
  std::string content, reasoning;
  struct Call {
    std::string name, id, arguments;
    bool ended = false;
    bool operator==(const Call& o) const {
      return name == o.name && id == o.id && arguments == o.arguments && ended == o.ended;
    }
  };
  std::vector<Call> calls;

  void add(const std::vector<OutputEvent>& events) {
    for (const OutputEvent& e : events) {
      const auto index = static_cast<size_t>(e.index);
      switch (e.kind) {
        case Kind::kContent:
          content += e.text;
          break;
        case Kind::kReasoning:
          reasoning += e.text;
          break;
        case Kind::kToolCallBegin:
          EXPECT_EQ(index, calls.size());
          calls.push_back({e.name, e.id, "", false});
          break;
        case Kind::kToolArguments:
          ASSERT_LT(index, calls.size());
          EXPECT_FALSE(calls[index].ended);
          calls[index].arguments += e.text;
          break;
        case Kind::kToolCallEnd:
          ASSERT_LT(index, calls.size());
          EXPECT_FALSE(calls[index].ended);
          calls[index].ended = true;
          break;
      }
    }
  }
  bool operator==(const Output& o) const {
    return content == o.content && reasoning == o.reasoning && calls == o.calls;
  }
  std::string describe() const {
    std::string text = "content [" + content + "] reasoning [" + reasoning + "]";
    for (const Call& c : calls)
      text += " call " + c.name + "#" + c.id + "(" + c.arguments + ")" + (c.ended ? "" : "...");
    return text;
  }
};

Output whole(const OutputFormat& format, const ParserOptions& options, const std::string& text) {
  Output out;
  out.add(parse_output(format, options, text));
  return out;
}

/// The text in pieces whose sizes `next_size` gives.
template <typename NextSize>
Output in_pieces(const OutputFormat& format, const ParserOptions& options, const std::string& text,
                 NextSize next_size) {
  const auto parser = make_output_parser(format, options);
  Output out;
  for (size_t at = 0; at < text.size();) {
    const size_t n = std::min<size_t>(next_size(), text.size() - at);
    std::vector<OutputEvent> events;
    parser->push(std::string_view(text).substr(at, n), events);
    out.add(events);
    at += n;
  }
  std::vector<OutputEvent> events;
  parser->finish(events);
  out.add(events);
  return out;
}

/// Whole, byte by byte, in two at every place, and in random pieces: always the same.
void expect_same_in_every_split(const OutputFormat& format, const ParserOptions& options,
                                const std::string& text, const std::string& what) {
  const Output expected = whole(format, options, text);
  for (const size_t size : {size_t{1}, size_t{2}, size_t{3}, size_t{7}}) {
    const Output got = in_pieces(format, options, text, [&] { return size; });
    ASSERT_TRUE(got == expected) << what << " in pieces of " << size << "\n"
                                 << text << "\n"
                                 << got.describe() << "\n"
                                 << expected.describe();
  }
  for (size_t cut = 1; cut < text.size(); ++cut) {
    bool first = true;
    const Output got =
        in_pieces(format, options, text, [&] { return std::exchange(first, false) ? cut : text.size(); });
    ASSERT_TRUE(got == expected) << what << " cut at " << cut << "\n"
                                 << text << "\n"
                                 << got.describe() << "\n"
                                 << expected.describe();
  }
}

struct Case {
  ToolFormat tools;
  std::string text;
  std::string content, reasoning;
  std::vector<Output::Call> calls;
  bool thinking = false;  ///< the format with <think> blocks
};

const std::string kArgs = R"({"city": "Zürich \"}{\" <x>", "days": 2})";

std::vector<Case> good_cases() {
  const Output::Call weather = {"get_weather", "call_0", kArgs, true};
  const Output::Call now = {"now", "call_1", "{}", true};
  const std::string object = R"({"name": "get_weather", "arguments": )" + kArgs + "}";
  const std::string with_parameters = R"({"name": "get_weather", "parameters": )" + kArgs + "}";
  const std::string now_object = R"({"name": "now", "arguments": {}})";
  const Output::Call plain_weather = {"get_weather", "call_0", R"({"city": "Bern", "days": 2})", true};
  return {
      {ToolFormat::kHermes, "<tool_call>\n" + object + "\n</tool_call>", "", "", {weather}},
      {ToolFormat::kHermes,
       "Let me see.\n\n<tool_call>\n" + object + "\n</tool_call>\n<tool_call>\n" + now_object +
           "\n</tool_call>",
       "Let me see.",
       "",
       {weather, now}},
      {ToolFormat::kHermes,
       "<think>\nhm <tool_call>\n</think>\n\n<tool_call>\n" + object + "\n</tool_call>\n after",
       "after",
       "hm <tool_call>",
       {weather},
       true},
      {ToolFormat::kHermes,
       "<tool_call>\n{\"arguments\": " + kArgs + ", \"name\": \"get_weather\"}\n</tool_call>",
       "",
       "",
       {weather}},
      {ToolFormat::kHermes,
       "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"x\\\"}\"}</tool_call>",
       "",
       "",
       {{"get_weather", "call_0", "{\"city\": \"x\"}", true}}},
      {ToolFormat::kHermes,
       "<tool_call>{\"name\": \"now\"}</tool_call>",
       "",
       "",
       {{"now", "call_0", "{}", true}}},
      {ToolFormat::kLlama3Json, with_parameters, "", "", {weather}},
      {ToolFormat::kLlama3Json, "<|python_tag|>" + with_parameters + "<|eom_id|>", "", "", {weather}},
      {ToolFormat::kLlama3Json,
       with_parameters + "; {\"name\": \"now\", \"parameters\": {}}",
       "",
       "",
       {weather, now}},
      {ToolFormat::kLlama3Json,
       "{\"type\": \"function\", \"function\": " + with_parameters + "}",
       "",
       "",
       {weather}},
      {ToolFormat::kLlama3Json,
       "<|python_tag|>get_weather.call(city=\"Bern\", days=2)",
       "",
       "",
       {plain_weather}},
      {ToolFormat::kMistralArray,
       "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": " + kArgs + ", \"id\": \"abcdefghi\"}]",
       "",
       "",
       {{"get_weather", "call_0", kArgs, true}}},
      {ToolFormat::kMistralArray, "[TOOL_CALLS][" + object + ", " + now_object + "]", "", "", {weather, now}},
      {ToolFormat::kMistralArray, "[TOOL_CALLS]get_weather" + kArgs, "", "", {weather}},
      {ToolFormat::kMistralNamed,
       "Sure.[TOOL_CALLS]get_weather[ARGS]" + kArgs + "[TOOL_CALLS]now[ARGS]{}",
       "Sure.",
       "",
       {weather, now}},
      {ToolFormat::kMistralNamed,
       "[TOOL_CALLS]get_weather[CALL_ID]id1234567[ARGS]" + kArgs,
       "",
       "",
       {{"get_weather", "id1234567", kArgs, true}}},
      {ToolFormat::kMistralNamed, "[TOOL_CALLS][" + object + "]", "", "", {weather}},
      {ToolFormat::kDeepSeekV3,
       "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" + kArgs +
           "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n"
           "{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "ok",
       "",
       {weather, now}},
      {ToolFormat::kDeepSeekV31,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + kArgs +
           "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
           "<｜tool▁calls▁end｜>",
       "",
       "",
       {weather, now}},
      {ToolFormat::kCommandR7B,
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
       "\"parameters\": " +
           kArgs +
           "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", "
           "\"parameters\": {}}\n]<|END_ACTION|>",
       "",
       "",
       {{"get_weather", "0", kArgs, true}, {"now", "1", "{}", true}}},
      {ToolFormat::kCommandR,
       "Action: ```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": " +
           kArgs + "\n    }\n]```",
       "",
       "",
       {weather}},
      {ToolFormat::kFunctionaryV32, "get_weather\n" + kArgs + ">>>now\n{}", "", "", {weather, now}},
      {ToolFormat::kFunctionaryV32,
       "all\nText a >> b.>>>get_weather\n" + kArgs,
       "Text a >> b.",
       "",
       {weather}},
      {ToolFormat::kFunctionaryV32, "all\nOnly text", "Only text", "", {}},
      {ToolFormat::kFunctionaryV31,
       "<function=get_weather>" + kArgs + "</function><function=now>{}</function>",
       "",
       "",
       {weather, now}},
      {ToolFormat::kFunctionaryV2,
       "all\n<|content|>Wait.\n<|from|>assistant\n<|recipient|>get_weather\n<|content|>" + kArgs,
       "Wait.",
       "",
       {weather}},
      {ToolFormat::kGranite, "<|tool_call|>[" + object + ", " + now_object + "]", "", "", {weather, now}},
      {ToolFormat::kHarmony,
       "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.get_weather <|constrain|>json<|message|>" +
           kArgs + "<|call|>",
       "",
       "Need weather.",
       {weather}},
      {ToolFormat::kHarmony,
       "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Four. "
       "<|return|>",
       "Four.",
       "Easy.",
       {}},
      {ToolFormat::kHarmony,
       " to=functions.now<|channel|>commentary<|message|>{}<|call|>",
       "",
       "",
       {{"now", "call_0", "{}", true}}},
      {ToolFormat::kHarmony,
       "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>final<|message|>Done",
       "I will look.Done",
       "",
       {}},
      {ToolFormat::kGlm,
       "Hm\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</"
       "arg_key>\n"
       "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
       "Hm",
       "",
       {plain_weather, now}},
      {ToolFormat::kKimiK2,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" +
           kArgs +
           "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
           "<|tool_call_end|><|tool_calls_section_end|>",
       "",
       "",
       {{"get_weather", "functions.get_weather:0", kArgs, true}, {"now", "functions.now:1", "{}", true}}},
      {ToolFormat::kPhi4Mini, "<|tool_call|>[" + object + "]<|/tool_call|>", "", "", {weather}},
      {ToolFormat::kPhi4Mini, "functools[" + object + ", " + now_object + "]", "", "", {weather, now}},
      {ToolFormat::kNemotron, "<TOOLCALL>[" + object + "]</TOOLCALL>", "", "", {weather}},
      {ToolFormat::kQwen3Coder,
       "I'll check.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n"
       "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
       "I'll check.",
       "",
       {plain_weather}},
      {ToolFormat::kQwen3Coder,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\na\n\n \"b\" "
       "</x>\n\n</parameter>\n</function>\n"
       "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       "",
       "",
       {{"get_weather", "call_0", R"({"city": "a\n\n \"b\" </x>\n"})", true}, now}},
      {ToolFormat::kQwen3Coder,
       "<function=get_weather>\n<parameter=opts>\n{\"a\": "
       "[1]}\n</parameter>\n<parameter=other>\nfree\n</parameter>\n</function>",
       "",
       "",
       {{"get_weather", "call_0", R"({"opts": {"a": [1]}, "other": "free"})", true}}},
      {ToolFormat::kSeed,
       "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Bern</parameter>\n<parameter=days>2</"
       "parameter>\n"
       "</function>\n</seed:tool_call>",
       "",
       "",
       {plain_weather}},
      {ToolFormat::kMiniMax,
       "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Bern</parameter>\n"
       "<parameter name=\"days\">2</parameter>\n</invoke>\n</minimax:tool_call>",
       "",
       "",
       {plain_weather}},
      {ToolFormat::kGenericJson, object, "", "", {weather}},
      {ToolFormat::kGenericJson, "[" + object + ", " + now_object + "]", "", "", {weather, now}},
      {ToolFormat::kGenericJson, "<think>x</think>\n" + object, "", "x", {weather}, true},
  };
}

OutputFormat format_of(const Case& c) {
  OutputFormat format;
  format.tools = c.tools;
  if (c.thinking) format.reasoning = parse_reasoning_format("think");
  return format;
}

TEST(OutputParser, EveryFormatIsUnderstoodInEverySplit) {
  std::set<ToolFormat> seen;
  for (Case c : good_cases()) {
    seen.insert(c.tools);
    if (c.text.find("abcdefghi") != std::string::npos) c.calls[0].id = "abcdefghi";
    const Output got = whole(format_of(c), with_tools(), c.text);
    // The id of Mistral's array comes behind the arguments, when the call has begun with an id of ours.
    if (c.text.find("abcdefghi") != std::string::npos) c.calls[0].id = "call_0";
    const std::string what = tool_format_name(c.tools);
    EXPECT_EQ(got.content, c.content) << what << "\n" << c.text;
    EXPECT_EQ(got.reasoning, c.reasoning) << what << "\n" << c.text;
    EXPECT_TRUE(got.calls == c.calls) << what << "\n" << c.text << "\n" << got.describe();
    for (const Output::Call& call : got.calls)
      EXPECT_TRUE(nlohmann::json::accept(call.arguments)) << call.arguments;
    expect_same_in_every_split(format_of(c), with_tools(), c.text, what);
  }
  EXPECT_EQ(seen.size(), tool_formats().size());
}

TEST(OutputParser, WithoutToolsInTheRequestEverythingIsContent) {
  for (const Case& c : good_cases()) {
    if (c.tools == ToolFormat::kHarmony || c.thinking || c.tools == ToolFormat::kFunctionaryV32 ||
        c.tools == ToolFormat::kFunctionaryV2)
      continue;  // their markers are not those of tool calls alone
    EXPECT_EQ(whole(format_of(c), {}, c.text).content, c.text);
  }
}

TEST(OutputParser, PlainTextPassesUnchanged) {
  for (const auto& [format, name] : tool_formats()) {
    OutputFormat f;
    f.tools = format;
    f.reasoning = parse_reasoning_format("think");
    for (const std::string text : {"Hello, world.\n\n  Indented < text | [x] {y} \n", "", " \n",
                                   "a <b> {\"c\": 1} [2]", "{\"answer\": 42}", "[1, 2]",
                                   "{\"name\": \"unknown_tool\", \"arguments\": {}}", "x <tool", "Act"}) {
      // Formats with a recipient first take a first line as one only when it names a tool.
      EXPECT_EQ(whole(f, with_tools(), text).content, text) << name;
      expect_same_in_every_split(f, with_tools(), text, name);
    }
  }
}

TEST(OutputParser, MalformedCallsFallBackToContentAndNothingIsLost) {
  struct Broken {
    ToolFormat tools;
    std::string text;
  };
  const Broken cases[] = {
      {ToolFormat::kHermes, "see <tool_call>\nno json\n</tool_call>"},
      {ToolFormat::kHermes, "<tool_call>{\"nome\": 1}</tool_call> after"},
      {ToolFormat::kHermes, "<tool_call>"},
      {ToolFormat::kHermes, "<tool_call>\n{\"name\": \"get_we"},
      {ToolFormat::kMistralArray, "[TOOL_CALLS] [1, 2]"},
      {ToolFormat::kMistralNamed, "[TOOL_CALLS]not a name at all\nnext"},
      {ToolFormat::kDeepSeekV3, "<｜tool▁calls▁begin｜> and then nothing"},
      {ToolFormat::kDeepSeekV31, "<｜tool▁call▁begin｜>no separator {}"},
      {ToolFormat::kKimiK2, "<|tool_call_begin|>functions.x:0 without its marker {}"},
      {ToolFormat::kCommandR7B, "<|START_ACTION|>nothing<|END_ACTION|>"},
      {ToolFormat::kCommandR, "Action: go for a walk."},
      {ToolFormat::kGlm, "<tool_call><arg_key>"},
      {ToolFormat::kQwen3Coder, "<tool_call>\n<function>\n</tool_call>"},
      {ToolFormat::kLlama3Json, "{\"name\": \"get_weather\", \"parameters\" 1}"},
      {ToolFormat::kLlama3Json, "<|python_tag|>print(1)"},
      {ToolFormat::kGenericJson, "{\"name\": \"get_weather\"}"},
      {ToolFormat::kFunctionaryV31, "<function=get weather>{}"},
      {ToolFormat::kHarmony, "no channel at all"},
  };
  for (const Broken& b : cases) {
    OutputFormat format;
    format.tools = b.tools;
    const Output got = whole(format, with_tools(), b.text);
    EXPECT_EQ(got.content, b.text) << tool_format_name(b.tools) << ": " << got.describe();
    EXPECT_TRUE(got.calls.empty()) << tool_format_name(b.tools);
    expect_same_in_every_split(format, with_tools(), b.text, tool_format_name(b.tools));
  }
}

TEST(OutputParser, ArgumentsThatBreakOffKeepWhatTheyHaveAndTheRestIsContent) {
  OutputFormat format;
  format.tools = ToolFormat::kHermes;
  const Output got =
      whole(format, with_tools(), "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1 oops</tool_call>");
  ASSERT_EQ(got.calls.size(), 1u);
  EXPECT_EQ(got.calls[0].arguments, "{\"a\": 1 ");
  EXPECT_EQ(got.content, "oops</tool_call>");
}

/// Pieces of all formats' markers and of JSON, thrown together: in every split the same, and no letter of the
/// plain words between them is lost.
TEST(OutputParser, RandomMixturesAreTheSameInEverySplit) {
  const std::vector<std::string> pieces = {"<tool_call>",
                                           "</tool_call>",
                                           "<think>",
                                           "</think>",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           "\"name\": \"now\"",
                                           "\"arguments\": {}",
                                           ", ",
                                           "{\"name\": \"now\", \"arguments\": {\"a\": [1, 2.5e3]}}",
                                           "[TOOL_CALLS]",
                                           "[ARGS]",
                                           "now",
                                           "get_weather",
                                           "\n",
                                           " ",
                                           "<｜tool▁calls▁begin｜>",
                                           "<｜tool▁call▁begin｜>",
                                           "<｜tool▁sep｜>",
                                           "<｜tool▁call▁end｜>",
                                           "```json",
                                           "```",
                                           "function",
                                           "<|START_ACTION|>",
                                           "<|END_ACTION|>",
                                           "Action:",
                                           ">>>",
                                           "all\n",
                                           "<function=",
                                           ">",
                                           "</function>",
                                           "<parameter=",
                                           "city",
                                           "</parameter>",
                                           "<arg_key>",
                                           "</arg_key>",
                                           "<arg_value>",
                                           "</arg_value>",
                                           "<|channel|>",
                                           "analysis",
                                           "final",
                                           "commentary to=functions.now",
                                           "<|message|>",
                                           "<|end|>",
                                           "<|call|>",
                                           "<|start|>assistant",
                                           "<|tool_call_begin|>",
                                           "functions.now:0",
                                           "<|tool_call_argument_begin|>",
                                           "<|tool_calls_section_begin|>",
                                           "<|recipient|>",
                                           "<|content|>",
                                           "<|python_tag|>",
                                           "now.call()",
                                           ";",
                                           "text",
                                           "é世🌍",
                                           "<",
                                           "|",
                                           "\"",
                                           "\\",
                                           "<|tool_call|>",
                                           "<TOOLCALL>",
                                           "<invoke name=\"now\">"};
  Random random(testing::seed());
  for (const auto& [tools, name] : tool_formats()) {
    OutputFormat format;
    format.tools = tools;
    format.reasoning = parse_reasoning_format("think");
    format.dropped = {"<response>"};
    for (int64_t i = 0; i < testing::scaled(250); ++i) {
      std::string text;
      for (uint64_t n = random.below(14); n > 0; --n) text += pieces[random.below(pieces.size())];
      ParserOptions options = with_tools();
      options.starts_in_reasoning = random.below(4) == 0;
      const Output expected = whole(format, options, text);
      for (int round = 0; round < 4; ++round) {
        const Output got =
            in_pieces(format, options, text, [&] { return round == 0 ? 1 : 1 + random.below(6); });
        ASSERT_TRUE(got == expected) << name << "\n"
                                     << text << "\n"
                                     << got.describe() << "\n"
                                     << expected.describe();
      }
      // Plain words are in one of the outputs.
      const auto count = [](const std::string& in, const char* word) {
        size_t n = 0;
        for (size_t at = in.find(word); at != std::string::npos; at = in.find(word, at + 1)) ++n;
        return n;
      };
      std::string all = expected.content + expected.reasoning;
      for (const Output::Call& c : expected.calls) all += " " + c.name + " " + c.arguments;
      if (tools != ToolFormat::kHarmony) {
        EXPECT_GE(count(all, "🌍"), count(text, "🌍") > 0 && expected.calls.empty() ? count(text, "🌍") : 0)
            << name << "\n"
            << text;
      }
    }
  }
}

TEST(OutputParser, ReasoningBlocksOfEveryKindAreSplitOff) {
  for (const char* name : {"think", "command_r", "seed", "mistral", "kimi", "granite", "apertus"}) {
    OutputFormat format;
    format.reasoning = parse_reasoning_format(name);
    const std::string text =
        format.reasoning.begin + "\nbecause 1 < 2\n" + format.reasoning.end + "\n\nSo: yes. \n";
    const Output got = whole(format, {}, text);
    EXPECT_EQ(got.reasoning, "because 1 < 2") << name;
    EXPECT_EQ(got.content, "So: yes. \n") << name;
    expect_same_in_every_split(format, {}, text, name);
    // The prompt had the opening marker already.
    ParserOptions inside;
    inside.starts_in_reasoning = true;
    EXPECT_TRUE(prompt_opens_reasoning(format, "<|assistant|>" + format.reasoning.begin + "\n"));
    EXPECT_FALSE(prompt_opens_reasoning(format, format.reasoning.begin + format.reasoning.end));
    const Output rest = whole(format, inside, text.substr(format.reasoning.begin.size()));
    EXPECT_EQ(rest.reasoning, "because 1 < 2") << name;
    EXPECT_EQ(rest.content, "So: yes. \n") << name;
    // Cut off inside.
    EXPECT_EQ(whole(format, inside, "still thinking").reasoning, "still thinking");
  }
  EXPECT_THROW(parse_reasoning_format("nope"), Error);
}

TEST(OutputParser, TellsWhetherItIsInsideReasoning) {
  OutputFormat format;
  format.reasoning = parse_reasoning_format("think");
  const auto parser = make_output_parser(format, {});
  std::vector<OutputEvent> events;
  parser->push("<think>a", events);
  EXPECT_TRUE(parser->in_reasoning());
  parser->push("b</think>c", events);
  EXPECT_FALSE(parser->in_reasoning());
}

TEST(OutputParser, IdsComeFromTheCaller) {
  ParserOptions options = with_tools();
  options.make_id = [](int index) { return "id" + std::to_string(index); };
  OutputFormat format;
  format.tools = ToolFormat::kHermes;
  EXPECT_EQ(
      whole(format, options, "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>").calls[0].id,
      "id0");
}

TEST(OutputFormats, NamesRoundTrip) {
  for (const auto& [format, name] : tool_formats()) EXPECT_EQ(parse_tool_format(name), format);
  EXPECT_EQ(parse_tool_format("none"), ToolFormat::kNone);
  EXPECT_THROW(parse_tool_format("nope"), Error);
}

TEST(OutputFormats, AreFoundFromPublishedTemplates) {
  MILLRACE_NEED_SHARED(folder, "chat-templates");
  const std::pair<const char*, const char*> expected[] = {
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command_r7b"},
      {"HuggingFaceTB-SmolLM3-3B", "none"},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
      {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
      {"Qwen-Qwen3-0.6B", "hermes"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3"},
      {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31"},
      {"google-gemma-2-2b-it", "none"},
      {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
      {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json"},
      {"microsoft-Phi-3.5-mini-instruct", "none"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
      {"openai-gpt-oss-120b", "harmony"},
  };
  for (const auto& [file, name] : expected) {
    const std::string source = testing::read_file(folder / (std::string(file) + ".jinja"));
    EXPECT_STREQ(tool_format_name(detect_output_format(source).tools), name) << file;
  }
}

TEST(OutputFormats, AreFoundFromTheStylesOfOtherModels) {
  const std::pair<const char*, const char*> expected[] = {
      {"qwen3_style", "hermes"},
      {"qwen3_coder_style", "qwen3_coder"},
      {"llama4_style", "llama3_json"},
      {"mistral_small_style", "mistral_named"},
      {"mistral_v3_tools_style", "mistral"},
      {"glm45_style", "glm"},
      {"kimi_k2_style", "kimi_k2"},
      {"phi4_mini_style", "phi4_mini"},
      {"deepseek_v3_style", "deepseek_v3"},
      {"command_r_style", "command_r"},
      {"granite4_style", "hermes"},
      {"functionary_style", "functionary_v32"},
      {"minimax_style", "minimax"},
      {"nemotron_style", "nemotron"},
      {"hermes3_style", "hermes"},
      {"gemma3_style", "none"},
      {"zephyr_style", "none"},
      {"phi4_style", "none"},
  };
  for (const auto& [file, name] : expected) {
    const std::string source =
        testing::read_file(testing::fixture("text/template/styles/" + std::string(file) + ".jinja"));
    EXPECT_STREQ(tool_format_name(detect_output_format(source).tools), name) << file;
  }
}

}  // namespace
}  // namespace millrace::api
