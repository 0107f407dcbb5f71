// Which formats there are, how a chat template gives its away, and which parser reads it.
#include "api/parser_base.h"
#include "core/error.h"

namespace millrace::api {

namespace {

struct ReasoningName {
  std::string_view name;
  ReasoningMarkers markers;
};

const std::vector<ReasoningName>& reasoning_formats() {
  static const std::vector<ReasoningName> formats = {
      {"think", {"<think>", "</think>"}},
      {"command_r", {"<|START_THINKING|>", "<|END_THINKING|>"}},
      {"seed", {"<seed:think>", "</seed:think>"}},
      {"mistral", {"[THINK]", "[/THINK]"}},
      {"kimi", {"◁think▷", "◁/think▷"}},
      {"granite", {"Here is my thought process:", "Here is my response:"}},
      {"apertus", {"<|inner_prefix|>", "<|inner_suffix|>"}},
      {"thinking", {"<thinking>", "</thinking>"}},
  };
  return formats;
}

struct Clue {
  ToolFormat format;
  std::vector<std::string_view> all;   ///< every one of these is in the template
  std::vector<std::string_view> none;  ///< and none of these
};

/// Tried in order: the more telling come first.
const std::vector<Clue>& clues() {
  static const std::vector<Clue> list = {
      {ToolFormat::kHarmony, {"<|channel|>", "<|message|>"}, {}},
      {ToolFormat::kKimiK2, {"<|tool_call_argument_begin|>"}, {}},
      {ToolFormat::kDeepSeekV3, {"<｜tool▁call▁begin｜>", "```json"}, {}},
      {ToolFormat::kDeepSeekV31, {"<｜tool▁call▁begin｜>"}, {}},
      {ToolFormat::kCommandR7B, {"<|START_ACTION|>"}, {}},
      {ToolFormat::kCommandR, {"Action:", "tool_name"}, {}},
      {ToolFormat::kFunctionaryV32, {">>>all"}, {}},
      {ToolFormat::kFunctionaryV2, {"<|recipient|>", "<|content|>"}, {}},
      {ToolFormat::kSeed, {"<seed:tool_call>"}, {}},
      {ToolFormat::kMiniMax, {"<minimax:tool_call>"}, {}},
      {ToolFormat::kMiniMax, {"minimax:tool_call", "<invoke name="}, {}},
      {ToolFormat::kGlm, {"<arg_key>"}, {}},
      {ToolFormat::kQwen3Coder, {"<function=", "<parameter="}, {}},
      {ToolFormat::kMistralNamed, {"[TOOL_CALLS]", "[ARGS]"}, {}},
      {ToolFormat::kMistralArray, {"[TOOL_CALLS]"}, {}},
      {ToolFormat::kNemotron, {"<TOOLCALL>"}, {}},
      {ToolFormat::kGranite, {"<|start_of_role|>", "<|tool_call|>"}, {}},
      {ToolFormat::kPhi4Mini, {"<|tool|>", "<|/tool|>"}, {}},
      {ToolFormat::kPhi4Mini, {"functools["}, {}},
      {ToolFormat::kHermes, {"<tool_call>"}, {}},
      {ToolFormat::kFunctionaryV31, {"<function="}, {}},
      {ToolFormat::kLlama3Json, {"<|start_header_id|>", "tool"}, {}},
      {ToolFormat::kLlama3Json, {"<|header_start|>", "tool"}, {}},
      {ToolFormat::kGenericJson, {"tool_calls"}, {}},
      {ToolFormat::kGenericJson, {"tools"}, {}},
  };
  return list;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

const std::vector<std::pair<ToolFormat, std::string>>& tool_formats() {
  static const std::vector<std::pair<ToolFormat, std::string>> formats = {
      {ToolFormat::kLlama3Json, "llama3_json"},
      {ToolFormat::kHermes, "hermes"},
      {ToolFormat::kQwen3Coder, "qwen3_coder"},
      {ToolFormat::kMistralArray, "mistral"},
      {ToolFormat::kMistralNamed, "mistral_named"},
      {ToolFormat::kDeepSeekV3, "deepseek_v3"},
      {ToolFormat::kDeepSeekV31, "deepseek_v31"},
      {ToolFormat::kCommandR7B, "command_r7b"},
      {ToolFormat::kCommandR, "command_r"},
      {ToolFormat::kFunctionaryV32, "functionary_v32"},
      {ToolFormat::kFunctionaryV31, "functionary_v31"},
      {ToolFormat::kFunctionaryV2, "functionary_v2"},
      {ToolFormat::kGranite, "granite"},
      {ToolFormat::kHarmony, "harmony"},
      {ToolFormat::kGlm, "glm"},
      {ToolFormat::kKimiK2, "kimi_k2"},
      {ToolFormat::kPhi4Mini, "phi4_mini"},
      {ToolFormat::kNemotron, "nemotron"},
      {ToolFormat::kMiniMax, "minimax"},
      {ToolFormat::kSeed, "seed"},
      {ToolFormat::kGenericJson, "json"},
  };
  return formats;
}

const char* tool_format_name(ToolFormat format) {
  for (const auto& [known, name] : tool_formats())
    if (known == format) return name.c_str();
  return "none";
}

ToolFormat parse_tool_format(std::string_view name) {
  if (name == "none") return ToolFormat::kNone;
  std::string names = "none";
  for (const auto& [format, known] : tool_formats()) {
    if (known == name) return format;
    names += ", " + known;
  }
  fail(ErrorCode::kInvalidArgument, "unknown tool call format '{}': expected one of {}", name, names);
}

ReasoningMarkers parse_reasoning_format(std::string_view name) {
  if (name == "none") return {};
  std::string names = "none";
  for (const ReasoningName& r : reasoning_formats()) {
    if (r.name == name) return r.markers;
    names += ", " + std::string(r.name);
  }
  fail(ErrorCode::kInvalidArgument, "unknown reasoning format '{}': expected one of {}", name, names);
}

OutputFormat detect_output_format(std::string_view chat_template) {
  OutputFormat format;
  for (const Clue& clue : clues()) {
    const auto in_template = [&](std::string_view part) { return has(chat_template, part); };
    if (std::all_of(clue.all.begin(), clue.all.end(), in_template) &&
        std::none_of(clue.none.begin(), clue.none.end(), in_template)) {
      format.tools = clue.format;
      break;
    }
  }
  // Harmony has its reasoning in a channel.
  if (format.tools == ToolFormat::kHarmony) return format;
  for (const ReasoningName& r : reasoning_formats())
    if (has(chat_template, r.markers.begin) || has(chat_template, r.markers.end)) {
      format.reasoning = r.markers;
      break;
    }
  for (const std::string_view marker : {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
                                        "<|END_TEXT|>", "<response>", "</response>"})
    if (has(chat_template, marker)) format.dropped.emplace_back(marker);
  return format;
}

bool prompt_opens_reasoning(const OutputFormat& format, std::string_view prompt) {
  if (format.reasoning.empty() || format.reasoning.begin.empty()) return false;
  while (!prompt.empty() && std::string_view(" \n\r\t").find(prompt.back()) != std::string_view::npos)
    prompt.remove_suffix(1);
  const std::string& begin = format.reasoning.begin;
  return prompt.size() >= begin.size() && prompt.substr(prompt.size() - begin.size()) == begin;
}

std::unique_ptr<OutputParser> make_output_parser(const OutputFormat& format, ParserOptions options) {
  switch (format.tools) {
    case ToolFormat::kHarmony:
      return make_harmony_parser(format, std::move(options));
    case ToolFormat::kFunctionaryV32:
    case ToolFormat::kFunctionaryV2:
      return make_functionary_parser(format, std::move(options));
    case ToolFormat::kQwen3Coder:
    case ToolFormat::kGlm:
    case ToolFormat::kMiniMax:
    case ToolFormat::kSeed:
      return make_tagged_calls_parser(format, std::move(options));
    case ToolFormat::kDeepSeekV3:
    case ToolFormat::kDeepSeekV31:
    case ToolFormat::kKimiK2:
    case ToolFormat::kFunctionaryV31:
      return make_named_calls_parser(format, std::move(options));
    case ToolFormat::kNone:
      options.tools.clear();
      return make_json_calls_parser(format, std::move(options));
    default:
      return make_json_calls_parser(format, std::move(options));
  }
}

std::vector<OutputEvent> parse_output(const OutputFormat& format, const ParserOptions& options,
                                      std::string_view text) {
  const auto parser = make_output_parser(format, options);
  std::vector<OutputEvent> events;
  parser->push(text, events);
  parser->finish(events);
  return events;
}

}  // namespace millrace::api
