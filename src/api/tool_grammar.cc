#include "api/tool_grammar.h"

#include <nlohmann/json.hpp>

#include "api/json_scanner.h"
#include "core/error.h"

namespace millrace::api {

namespace {

using Json = nlohmann::ordered_json;

GrammarPart literal(std::string text) {
  GrammarPart part;
  part.text = std::move(text);
  return part;
}

GrammarPart json_value(std::string schema) {
  GrammarPart part;
  part.kind = GrammarPart::Kind::kJson;
  part.text = std::move(schema);
  return part;
}

std::string arguments_schema(const Tool& tool) {
  return tool.parameters.empty() ? std::string(R"({"type":"object"})") : tool.parameters;
}

/// prefix, arguments, suffix: what most formats are.
std::vector<GrammarPart> around(const Tool& tool, std::string prefix, std::string suffix) {
  std::vector<GrammarPart> parts = {literal(std::move(prefix)), json_value(arguments_schema(tool))};
  if (!suffix.empty()) parts.push_back(literal(std::move(suffix)));
  return parts;
}

/// `before` (with the opening brace), "name": NAME, KEY: arguments, closing brace, `after`.
std::vector<GrammarPart> named_object(const Tool& tool, const std::string& name_key, const std::string& key,
                                      const std::string& before, const std::string& after = "") {
  return around(
      tool,
      before + "\"" + name_key + "\": " + encode_json_string(tool.name) + ", \"" + key + "\": ", "}" + after);
}

/// One tag per property, in the order of the schema.
std::vector<GrammarPart> tagged(const Tool& tool, const std::string& prefix, const std::string& key_begin,
                                const std::string& between, const std::string& value_end,
                                const std::string& end_mark, const std::string& suffix) {
  GrammarPart set;
  set.kind = GrammarPart::Kind::kOptionalSet;
  const Json schema = Json::parse(arguments_schema(tool), nullptr, false);
  require(schema.is_object(), ErrorCode::kInvalidArgument,
          "tool '{}': its parameters are not a JSON schema object", tool.name);
  const Json properties = schema.value("properties", Json::object());
  const Json required = schema.value("required", Json::array());
  for (const auto& [key, property] : properties.items()) {
    std::string begin = key_begin;
    begin.append(key).append(between);
    std::vector<GrammarPart> parts = {literal(std::move(begin))};
    // Strings stand in the tag as they are; everything else as JSON.
    if (property.is_object() && property.value("type", Json()) == "string" && !property.contains("enum")) {
      GrammarPart text;
      text.kind = GrammarPart::Kind::kTextUntil;
      text.text = end_mark;
      parts.push_back(std::move(text));
    } else if (property.is_object() && property.value("type", Json()) == "string" &&
               property["enum"].is_array()) {
      GrammarPart choice;
      choice.kind = GrammarPart::Kind::kChoice;
      for (const Json& value : property["enum"])
        if (value.is_string()) choice.alternatives.push_back({literal(value.get<std::string>())});
      parts.push_back(std::move(choice));
    } else {
      parts.push_back(json_value(property.dump()));
    }
    parts.push_back(literal(value_end));
    set.alternatives.push_back(std::move(parts));
    set.required.push_back(std::find(required.begin(), required.end(), Json(key)) != required.end());
  }
  std::vector<GrammarPart> parts = {literal(prefix)};
  parts.push_back(std::move(set));
  parts.push_back(literal(suffix));
  return parts;
}

struct Frame {
  std::string begin, separator, end, trigger;
};

Frame frame_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return {"", "\n", "", "<tool_call>"};
    case ToolFormat::kQwen3Coder:
      return {"", "\n", "", "<tool_call>"};
    case ToolFormat::kGlm:
      return {"", "\n", "", "<tool_call>"};
    case ToolFormat::kSeed:
      return {"", "\n", "", "<seed:tool_call>"};
    case ToolFormat::kMiniMax:
      return {"<minimax:tool_call>\n", "\n", "\n</minimax:tool_call>", "<minimax:tool_call>"};
    case ToolFormat::kMistralArray:
      return {"[TOOL_CALLS][", ", ", "]", "[TOOL_CALLS]"};
    case ToolFormat::kMistralNamed:
      return {"", "", "", "[TOOL_CALLS]"};
    case ToolFormat::kDeepSeekV3:
    case ToolFormat::kDeepSeekV31:
      return {"<｜tool▁calls▁begin｜>", format == ToolFormat::kDeepSeekV3 ? "\n" : "", "<｜tool▁calls▁end｜>",
              "<｜tool▁calls▁begin｜>"};
    case ToolFormat::kCommandR7B:
      return {"<|START_ACTION|>[\n    ", ",\n    ", "\n]<|END_ACTION|>", "<|START_ACTION|>"};
    case ToolFormat::kCommandR:
      return {"Action: ```json\n[\n    ", ",\n    ", "\n]```", "Action:"};
    case ToolFormat::kFunctionaryV32:
      return {"", ">>>", "", ">>>"};
    case ToolFormat::kFunctionaryV31:
      return {"", "", "", "<function="};
    case ToolFormat::kFunctionaryV2:
      return {"", "\n<|from|>assistant\n<|recipient|>", "", "<|recipient|>"};
    case ToolFormat::kGranite:
      return {"<|tool_call|>[", ", ", "]", "<|tool_call|>"};
    case ToolFormat::kHarmony:
      return {"", "<|start|>assistant", "", " to=functions."};
    case ToolFormat::kKimiK2:
      return {"<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>",
              "<|tool_calls_section_begin|>"};
    case ToolFormat::kPhi4Mini:
      return {"<|tool_call|>[", ", ", "]<|/tool_call|>", "<|tool_call|>"};
    case ToolFormat::kNemotron:
      return {"<TOOLCALL>[", ", ", "]</TOOLCALL>", "<TOOLCALL>"};
    case ToolFormat::kLlama3Json:
      return {"", "; ", "", ""};
    default:
      return {"[", ", ", "]", ""};
  }
}

std::vector<GrammarPart> call_of(ToolFormat format, const Tool& tool, bool parallel) {
  switch (format) {
    case ToolFormat::kHermes:
      return named_object(tool, "name", "arguments", "<tool_call>\n{", "\n</tool_call>");
    case ToolFormat::kLlama3Json:
      return named_object(tool, "name", "parameters", "{");
    case ToolFormat::kCommandR7B:
      return named_object(tool, "tool_name", "parameters", "{\"tool_call_id\": \"0\", ");
    case ToolFormat::kCommandR:
      return named_object(tool, "tool_name", "parameters", "{");
    case ToolFormat::kMistralNamed:
      return around(tool, "[TOOL_CALLS]" + tool.name + "[ARGS]", "");
    case ToolFormat::kDeepSeekV3:
      return around(tool, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + tool.name + "\n```json\n",
                    "\n```<｜tool▁call▁end｜>");
    case ToolFormat::kDeepSeekV31:
      return around(tool, "<｜tool▁call▁begin｜>" + tool.name + "<｜tool▁sep｜>", "<｜tool▁call▁end｜>");
    case ToolFormat::kFunctionaryV32:
      return around(tool, tool.name + "\n", "");
    case ToolFormat::kFunctionaryV31:
      return around(tool, "<function=" + tool.name + ">", "</function>");
    case ToolFormat::kFunctionaryV2:
      return around(tool, tool.name + "\n<|content|>", "");
    case ToolFormat::kHarmony:
      return around(tool, "<|channel|>commentary to=functions." + tool.name + " <|constrain|>json<|message|>",
                    "<|call|>");
    case ToolFormat::kKimiK2: {
      // The call's number is part of its id.
      std::vector<GrammarPart> parts = {literal("<|tool_call_begin|>functions." + tool.name + ":")};
      parts.push_back(parallel ? json_value(R"({"type":"integer","minimum":0,"maximum":99})") : literal("0"));
      for (GrammarPart& part : around(tool, "<|tool_call_argument_begin|>", "<|tool_call_end|>"))
        parts.push_back(part);
      return parts;
    }
    case ToolFormat::kQwen3Coder:
      return tagged(tool, "<tool_call>\n<function=" + tool.name + ">\n", "<parameter=", ">\n",
                    "\n</parameter>\n", "</parameter>", "</function>\n</tool_call>");
    case ToolFormat::kSeed:
      return tagged(tool, "<seed:tool_call>\n<function=" + tool.name + ">\n", "<parameter=", ">",
                    "</parameter>\n", "</parameter>", "</function>\n</seed:tool_call>");
    case ToolFormat::kMiniMax:
      return tagged(tool, "<invoke name=\"" + tool.name + "\">\n", "<parameter name=\"", "\">",
                    "</parameter>\n", "</parameter>", "</invoke>");
    case ToolFormat::kGlm:
      return tagged(tool, "<tool_call>" + tool.name + "\n", "<arg_key>", "</arg_key>\n<arg_value>",
                    "</arg_value>\n", "</arg_value>", "</tool_call>");
    default:
      return named_object(tool, "name", "arguments", "{");
  }
}

}  // namespace

ToolGrammar tool_grammar(ToolFormat format, const std::vector<Tool>& tools,
                         const ToolChoiceSetting& setting) {
  require(!tools.empty(), ErrorCode::kInvalidArgument,
          "a tool call was asked for, but the request has no tools");
  const Frame frame = frame_of(format);
  ToolGrammar grammar;
  grammar.begin = frame.begin;
  grammar.separator = frame.separator;
  grammar.end = frame.end;
  grammar.trigger = setting.choice == ToolChoice::kAuto ? frame.trigger : "";
  grammar.parallel =
      setting.parallel && setting.choice != ToolChoice::kNamed && format != ToolFormat::kHarmony;
  if (setting.choice == ToolChoice::kAuto) {
    if (format == ToolFormat::kFunctionaryV32) {
      grammar.text_begin = "all\n";
      grammar.text_mark = ">>>";
    } else if (format == ToolFormat::kFunctionaryV2) {
      grammar.text_begin = "all\n<|content|>";
      grammar.text_mark = "<|";
    }
  }
  for (const Tool& tool : tools) {
    if (setting.choice == ToolChoice::kNamed && tool.name != setting.name) continue;
    grammar.calls.push_back({tool.name, call_of(format, tool, grammar.parallel)});
  }
  require(!grammar.calls.empty(), ErrorCode::kInvalidArgument,
          "tool_choice names '{}', which is not among the tools", setting.name);
  return grammar;
}

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out.push_back(c);
    }
  }
  return out + "\"";
}

std::string gbnf_text_without(std::string_view mark, bool whole) {
  // For marks whose first character does not come again in them ("</parameter>"): text is other characters,
  // and beginnings of the mark that break off, each followed by a character that does not go on with it or by
  // the next beginning. And for marks of one character several times (">>>").
  check(!mark.empty(), "an empty mark");
  const bool repeated = mark.find_first_not_of(mark[0]) == std::string_view::npos;
  check(repeated || mark.find(mark[0], 1) == std::string_view::npos,
        "the mark {} repeats its first character", mark);
  const auto class_of = [](std::string_view characters) {
    std::string out = "[^";
    for (const char c : characters) {
      if (c == ']' || c == '\\' || c == '^' || c == '[' || c == '-') out.push_back('\\');
      out.push_back(c);
    }
    return out + "]";
  };
  const std::string_view first = mark.substr(0, 1);
  if (mark.size() == 1) return class_of(first) + "*";
  std::string beginnings, broken;
  for (size_t n = 1; n < mark.size(); ++n) {
    beginnings += (n > 1 ? " | " : "") + gbnf_literal(mark.substr(0, n));
    broken += (n > 1 ? " | " : "") + gbnf_literal(mark.substr(0, n)) + " " +
              (repeated ? class_of(first) : class_of(std::string(first) + mark[n]));
  }
  const std::string again = repeated ? "" : "(" + beginnings + ")* ";
  std::string body = "(" + class_of(first) + " | " + again + "(" + broken + "))*";
  if (whole) return body;
  return body + " (" + beginnings + ")" + (repeated ? "?" : "*");
}

}  // namespace millrace::api
