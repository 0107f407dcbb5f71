// OpenAI's messages and tools, checked and put into the form that chat templates expect.
#include "api/fields.h"

namespace millrace::api {

namespace {

/// Text of a content that is a string or an array of text parts, joined by line ends.
std::string content_text(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    bad_request(path, "'{}' must be a string or an array of parts, found {}", path, json_kind(content));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], fmt::format("{}[{}]", path, i));
    const std::string type = part.text("type").value_or("");
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
      throw ApiError(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}[{}]' has the type '{}': this model takes text only", path, i, type.substr(0, 60)),
          fmt::format("{}[{}].type", path, i), "unsupported_content");
    }
    const char* key = type == "refusal" ? "refusal" : "text";
    const auto piece = part.text(key);
    if (!piece) bad_request(part.path(key), "'{}' is missing", part.path(key));
    if (i > 0) text += "\n";
    text += *piece;
  }
  return text;
}

/// Arguments as an object when they are one, which most templates want.
Json arguments_value(const Json& arguments, const std::string& path) {
  if (arguments.is_object()) return arguments;
  if (!arguments.is_string())
    bad_request(path, "'{}' must be a string of JSON, found {}", path, json_kind(arguments));
  const auto& text = arguments.get_ref<const std::string&>();
  if (text.empty()) return Json::object();
  Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_object() ? parsed : arguments;
}

Json template_tool_calls(const Json& calls, const std::string& path) {
  Json out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", path, i);
    Fields call(calls[i], here);
    const auto type = call.text("type");
    if (type && *type != "function")
      bad_request(call.path("type"), "'{}' must be 'function'", call.path("type"));
    const Json* function = call.object("function");
    if (function == nullptr) bad_request(call.path("function"), "'{}' is missing", call.path("function"));
    Fields fields(*function, call.path("function"));
    const auto name = fields.text("name", 256);
    if (!name || name->empty()) bad_request(fields.path("name"), "'{}' is missing", fields.path("name"));
    const Json* arguments = fields.find("arguments");
    Json entry = Json::object();
    entry["id"] = call.text("id", 256).value_or("");
    entry["type"] = "function";
    entry["function"] = {
        {"name", *name},
        {"arguments",
         arguments == nullptr ? Json::object() : arguments_value(*arguments, fields.path("arguments"))}};
    out.push_back(std::move(entry));
  }
  return out;
}

Json template_message(const Json& message, const std::string& path) {
  Fields fields(message, path);
  const auto role = fields.word("role", {"system", "developer", "user", "assistant", "tool", "function"});
  if (!role) bad_request(fields.path("role"), "'{}' is missing", fields.path("role"));
  Json out = Json::object();
  out["role"] = *role == "function" ? "tool" : *role;
  const Json* content = fields.find("content");
  const Json* calls = fields.array("tool_calls", 1024);
  if (calls != nullptr && *role != "assistant")
    bad_request(fields.path("tool_calls"), "'{}': only the assistant calls tools", fields.path("tool_calls"));
  if (content != nullptr) {
    out["content"] = content_text(*content, fields.path("content"));
  } else if (*role == "assistant") {
    if (calls == nullptr && !fields.has("refusal") && !fields.has("reasoning_content") &&
        !fields.has("function_call"))
      bad_request(fields.path("content"), "'{}' is missing and there are no tool calls",
                  fields.path("content"));
    out["content"] = "";
  } else {
    bad_request(fields.path("content"), "'{}' is missing", fields.path("content"));
  }
  if (calls != nullptr && !calls->empty())
    out["tool_calls"] = template_tool_calls(*calls, fields.path("tool_calls"));
  if (*role == "tool") {
    const auto id = fields.text("tool_call_id", 256);
    if (!id) bad_request(fields.path("tool_call_id"), "'{}' is missing", fields.path("tool_call_id"));
    out["tool_call_id"] = *id;
  }
  for (const char* name : {"name", "reasoning_content", "thinking"})
    if (const auto text = fields.text(name)) out[name] = *text;
  if (const auto prefix = fields.boolean("prefix")) out["prefix"] = *prefix;
  fields.ignore({"refusal", "audio", "annotations", "function_call", "reasoning", "tool_call_id"});
  fields.finish();
  return out;
}

}  // namespace

Json template_messages(const Json& messages, const SchemaLimits& limits) {
  if (messages.empty()) bad_request("messages", "'messages' is empty: at least one message is needed");
  if (messages.size() > limits.max_messages)
    bad_request("messages", "'messages' has {} messages, at most {} are allowed", messages.size(),
                limits.max_messages);
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i)
    out.push_back(template_message(messages[i], fmt::format("messages[{}]", i)));
  return out;
}

void check_function_name(const std::string& name, const std::string& param) {
  const bool good = !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (!good)
    bad_request(param, "'{}' must be 1 to 128 letters, digits, '_', '-' or '.', found '{}'", param,
                name.substr(0, 140));
}

void read_tools(const Json& tools, const SchemaLimits& limits, GenerationRequest& request) {
  if (tools.size() > limits.max_tools)
    bad_request("tools", "'tools' has {} tools, at most {} are allowed", tools.size(), limits.max_tools);
  Json out = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    Fields tool(tools[i], fmt::format("tools[{}]", i));
    const auto type = tool.word("type", {"function"});
    if (!type) bad_request(tool.path("type"), "'{}' is missing", tool.path("type"));
    const Json* function = tool.object("function");
    if (function == nullptr) bad_request(tool.path("function"), "'{}' is missing", tool.path("function"));
    Fields fields(*function, tool.path("function"));
    Tool entry;
    entry.name = fields.text("name").value_or("");
    check_function_name(entry.name, fields.path("name"));
    for (const Tool& other : request.tools)
      if (other.name == entry.name) bad_request(fields.path("name"), "two tools are named '{}'", entry.name);
    entry.description = fields.text("description").value_or("");
    if (const Json* parameters = fields.object("parameters")) entry.parameters = parameters->dump();
    entry.strict = fields.boolean("strict").value_or(false);
    fields.ignore({"return", "response"});
    fields.finish();
    tool.finish();
    Json shown = tools[i];
    // Most templates read the parameters of every function.
    if (entry.parameters.empty())
      shown["function"]["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
    out.push_back(std::move(shown));
    request.tools.push_back(std::move(entry));
  }
  if (!out.empty()) request.tools_json = out.dump();
}

}  // namespace millrace::api
