// A model's output split while it streams: content, reasoning, tool calls with their arguments as they are
// produced. Every model family writes tool calls in its own way; each way is an OutputFormat with a parser
// here and the matching grammar in tool_grammar.h.
//
// What holds for every format: the events of a text do not depend on how it was cut into pieces (adjacent
// events of one kind join); half a marker is never given out as content; what turns out not to be a tool call
// is content, whole. Only white space next to markers is dropped.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::api {

/// A function that the model may call.
struct Tool {
  std::string name;
  std::string description;
  std::string parameters;  ///< JSON schema of the arguments, as text; "" when none was given
  bool strict = false;
};

enum class ToolFormat {
  kNone,          ///< no tool calls: all is content
  kLlama3Json,    ///< {"name": ..., "parameters": {...}}, <|python_tag|> before it or before code
  kHermes,        ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Qwen 2.5 and 3, Granite 4)
  kQwen3Coder,    ///< <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>
  kMistralArray,  ///< [TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}]
  kMistralNamed,  ///< [TOOL_CALLS]NAME[ARGS]{...}, also without [ARGS] and with [CALL_ID]
  kDeepSeekV3,  ///< <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, then a fenced JSON block (V3, R1)
  kDeepSeekV31,     ///< <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}
  kCommandR7B,      ///< <|START_ACTION|>[{"tool_call_id", "tool_name", "parameters"}]<|END_ACTION|>
  kCommandR,        ///< Action: and a fenced JSON array of {"tool_name", "parameters"}
  kFunctionaryV32,  ///< >>>NAME, newline, {...}; >>>all for content
  kFunctionaryV31,  ///< <function=NAME>{...}</function>
  kFunctionaryV2,   ///< <|recipient|>NAME<|content|>{...}
  kGranite,         ///< <|tool_call|>[{"name", "arguments"}] (Granite 3)
  kHarmony,         ///< gpt-oss: channels analysis, commentary (to=functions.NAME) and final
  kGlm,             ///< <tool_call>NAME <arg_key>k</arg_key> <arg_value>v</arg_value> </tool_call>
  kKimiK2,          ///< <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}
  kPhi4Mini,        ///< <|tool_call|>[...]<|/tool_call|>, or functools[...]
  kNemotron,        ///< <TOOLCALL>[{"name", "arguments"}]</TOOLCALL>
  kMiniMax,         ///< <invoke name="NAME"><parameter name="KEY">value</parameter></invoke>
  kSeed,  ///< <seed:tool_call><function=NAME><parameter=KEY>value</parameter></function></seed:tool_call>
  kGenericJson,  ///< the whole output is {"name", "arguments"}, or a list of such
};

/// Markers around a model's reasoning; empty: it has none.
struct ReasoningMarkers {
  std::string begin;
  std::string end;
  bool empty() const { return end.empty(); }
};

struct OutputFormat {
  ToolFormat tools = ToolFormat::kNone;
  ReasoningMarkers reasoning;
  std::vector<std::string> dropped;  ///< other markers that are no content ("<|START_RESPONSE|>")
};

/// Name for --tool-format and for messages: "hermes", "llama3_json", ...
const char* tool_format_name(ToolFormat format);
/// All formats with their names, kNone left out.
const std::vector<std::pair<ToolFormat, std::string>>& tool_formats();
/// Error(kInvalidArgument) listing the names for an unknown one. "none" is kNone.
ToolFormat parse_tool_format(std::string_view name);
/// "think", "seed", "command_r", "mistral", "kimi", "granite", "apertus", "none"; Error(kInvalidArgument) for
/// another.
ReasoningMarkers parse_reasoning_format(std::string_view name);

/// What a model whose chat template is `chat_template` writes. Templates without tools give kNone.
OutputFormat detect_output_format(std::string_view chat_template);

/// Whether a rendered prompt ends inside a reasoning block that the model goes on with.
bool prompt_opens_reasoning(const OutputFormat& format, std::string_view prompt);

struct OutputEvent {
  enum class Kind {
    kContent,        ///< text
    kReasoning,      ///< text
    kToolCallBegin,  ///< index, id, name
    kToolArguments,  ///< index, text: a piece of the arguments' JSON
    kToolCallEnd,    ///< index
  };
  Kind kind = Kind::kContent;
  std::string text;
  int index = 0;
  std::string id;
  std::string name;

  bool operator==(const OutputEvent& other) const {
    return kind == other.kind && text == other.text && index == other.index && id == other.id &&
           name == other.name;
  }
};

struct ParserOptions {
  std::vector<Tool> tools;           ///< those of the request; none: tool calls are content
  bool starts_in_reasoning = false;  ///< see prompt_opens_reasoning
  /// Ids for calls that bring none; the default counts "call_0", "call_1", ...
  std::function<std::string(int index)> make_id;
};

class OutputParser {
 public:
  virtual ~OutputParser() = default;
  /// Takes the next piece of text (valid UTF-8 with special tokens spelled out) and adds what is now certain
  /// to `events`.
  virtual void push(std::string_view text, std::vector<OutputEvent>& events) = 0;
  /// The text has ended: what was held back comes out.
  virtual void finish(std::vector<OutputEvent>& events) = 0;
  /// Between push() and finish(): whether the text so far ends inside reasoning (for a budget of reasoning
  /// tokens).
  virtual bool in_reasoning() const = 0;
};

std::unique_ptr<OutputParser> make_output_parser(const OutputFormat& format, ParserOptions options);

/// A whole text at once, events joined.
std::vector<OutputEvent> parse_output(const OutputFormat& format, const ParserOptions& options,
                                      std::string_view text);

}  // namespace millrace::api
