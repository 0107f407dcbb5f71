#include "api/anthropic.h"

#include "api/fields.h"
#include "core/utf8.h"

namespace millrace::api {

namespace {

std::string clean(std::string_view text) { return utf8::replace_invalid(text); }

/// Text of a string or of an array of text blocks.
std::string block_text(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    bad_request(path, "'{}' must be a string or an array of blocks, found {}", path, json_kind(content));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields block(content[i], fmt::format("{}[{}]", path, i));
    const auto type = block.word("type", {"text"});
    const auto piece = block.text("text");
    if (!type || !piece)
      bad_request(block.path("text"), "'{}' must be a text block", fmt::format("{}[{}]", path, i));
    text += (i > 0 ? "\n" : "") + *piece;
  }
  return text;
}

/// One message as OpenAI messages: tool results become messages of their own, tool uses become calls.
void add_messages(const Json& message, const std::string& path, Json& out) {
  Fields f(message, path);
  const auto role = f.word("role", {"user", "assistant"});
  if (!role) bad_request(f.path("role"), "'{}' is missing", f.path("role"));
  const Json* content = f.find("content");
  if (content == nullptr) bad_request(f.path("content"), "'{}' is missing", f.path("content"));
  f.finish();
  if (content->is_string()) {
    out.push_back({{"role", *role}, {"content", *content}});
    return;
  }
  if (!content->is_array())
    bad_request(f.path("content"), "'{}' must be a string or an array of blocks", f.path("content"));
  std::string text, thinking;
  bool has_text = false;
  Json calls = Json::array();
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string here = fmt::format("{}[{}]", f.path("content"), i);
    Fields block((*content)[i], here);
    const auto type =
        block.word("type", {"text", "thinking", "redacted_thinking", "tool_use", "tool_result"});
    if (!type) bad_request(block.path("type"), "'{}' is missing", block.path("type"));
    if (*type == "text") {
      const auto piece = block.text("text");
      if (!piece) bad_request(block.path("text"), "'{}' is missing", block.path("text"));
      text += (has_text ? "\n" : "") + *piece;
      has_text = true;
    } else if (*type == "thinking") {
      thinking += block.text("thinking").value_or("");
    } else if (*type == "tool_use") {
      const auto name = block.text("name", 256);
      const Json* input = block.object("input");
      if (!name || input == nullptr) bad_request(here, "'{}' needs 'name' and 'input'", here);
      calls.push_back({{"id", block.text("id", 256).value_or("")},
                       {"type", "function"},
                       {"function", {{"name", *name}, {"arguments", *input}}}});
    } else if (*type == "tool_result") {
      const Json* result = block.find("content");
      out.push_back({{"role", "tool"},
                     {"tool_call_id", block.text("tool_use_id", 256).value_or("")},
                     {"content", result == nullptr ? "" : block_text(*result, block.path("content"))}});
    }
  }
  if (!has_text && calls.empty() && thinking.empty()) return;
  Json joined = {{"role", *role}, {"content", text}};
  if (!thinking.empty()) joined["reasoning_content"] = thinking;
  if (!calls.empty()) joined["tool_calls"] = std::move(calls);
  out.push_back(std::move(joined));
}

Json openai_tools(const Json& tools) {
  Json out = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    Fields f(tools[i], fmt::format("tools[{}]", i));
    f.word("type", {"custom", "function"});
    Json function = Json::object();
    for (const char* key : {"name", "description"})
      if (const auto text = f.text(key)) function[key] = *text;
    if (const Json* schema = f.object("input_schema")) function["parameters"] = *schema;
    f.ignore({"cache_control"});
    f.finish();
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

void read_choice(const Json& choice, GenerationRequest& r) {
  Fields f(choice, "tool_choice");
  const auto type = f.word("type", {"auto", "any", "tool", "none"});
  if (!type) bad_request("tool_choice.type", "'tool_choice.type' is missing");
  if (*type == "none") r.tool_choice.choice = ToolChoice::kNone;
  if (*type == "any") r.tool_choice.choice = ToolChoice::kRequired;
  if (*type == "tool") {
    r.tool_choice.choice = ToolChoice::kNamed;
    r.tool_choice.name = f.text("name", 256).value_or("");
    const bool known = std::any_of(r.tools.begin(), r.tools.end(),
                                   [&](const Tool& t) { return t.name == r.tool_choice.name; });
    if (!known)
      bad_request("tool_choice.name", "'tool_choice.name' is '{}', which is not among the tools",
                  r.tool_choice.name);
  }
  r.tool_choice.parallel = !f.boolean("disable_parallel_tool_use").value_or(false);
  f.finish();
}

Json usage_json(const engine::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

}  // namespace

GenerationRequest parse_anthropic_request(std::string_view body, const SchemaLimits& limits) {
  const Json json = parse_body(body);
  GenerationRequest r;
  r.endpoint = Endpoint::kAnthropic;
  Fields f(json, "");
  r.model = f.text("model", 1024).value_or("");
  const Json* given = f.array("messages", limits.max_messages);
  if (given == nullptr) bad_request("messages", "'messages' is missing");
  Json messages = Json::array();
  if (const Json* system = f.find("system"))
    messages.push_back({{"role", "system"}, {"content", block_text(*system, "system")}});
  for (size_t i = 0; i < given->size(); ++i)
    add_messages((*given)[i], fmt::format("messages[{}]", i), messages);
  r.messages = template_messages(messages, limits).dump();
  const auto max_tokens = f.integer("max_tokens", 1, limits.max_tokens);
  if (!max_tokens) bad_request("max_tokens", "'max_tokens' is missing");
  r.generation.max_tokens = static_cast<int32_t>(*max_tokens);
  if (const Json* tools = f.array("tools")) read_tools(openai_tools(*tools), limits, r);
  if (r.tools.empty()) r.tool_choice.choice = ToolChoice::kNone;
  if (const Json* choice = f.object("tool_choice")) read_choice(*choice, r);
  const auto sampling = [&](const char* name, double low, double high, float& target) {
    if (const auto value = f.number(name, low, high)) {
      target = static_cast<float>(*value);
      r.given.emplace_back(name);
    }
  };
  sampling("temperature", 0, 1, r.sampling.temperature);
  sampling("top_p", 1e-6, 1, r.sampling.top_p);
  if (const auto k = f.integer("top_k", 0, INT32_MAX)) {
    r.sampling.top_k = static_cast<int32_t>(*k);
    r.given.emplace_back("top_k");
  }
  if (const Json* stop = f.array("stop_sequences", limits.max_stop_strings))
    for (const Json& s : *stop) {
      if (!s.is_string() || s.get_ref<const std::string&>().empty())
        bad_request("stop_sequences", "'stop_sequences' must hold strings that are not empty");
      if (s.get_ref<const std::string&>().size() > limits.max_stop_bytes)
        bad_request("stop_sequences", "'stop_sequences' has a string of more than {} bytes",
                    limits.max_stop_bytes);
      r.stop.push_back(s.get<std::string>());
    }
  r.stream = f.boolean("stream").value_or(false);
  if (const Json* format = f.object("output_format")) {
    Fields o(*format, "output_format");
    const Json* schema = o.object("schema");
    if (!o.word("type", {"json_schema"}) || schema == nullptr)
      bad_request("output_format", "'output_format' must have the type 'json_schema' and a 'schema'");
    o.finish();
    r.constraint.kind = TextConstraint::Kind::kJsonSchema;
    r.constraint.text = schema->dump();
    r.constraint.param = "output_format.schema";
  }
  if (const Json* thinking = f.object("thinking")) {
    Fields t(*thinking, "thinking");
    const auto type = t.word("type", {"enabled", "disabled"});
    if (const auto budget = t.integer("budget_tokens", 1, limits.max_tokens))
      r.reasoning_tokens = static_cast<int32_t>(*budget);
    r.template_arguments =
        Json{{"enable_thinking", type == "enabled"}, {"thinking", type == "enabled"}}.dump();
    t.finish();
  }
  f.ignore({"metadata", "service_tier", "container", "context_management"});
  f.finish();
  return r;
}

const char* anthropic_stop_reason(std::string_view finish_reason, bool by_stop_string) {
  // A deadline or a cancellation cuts an answer as its length would.
  if (finish_reason == "length" || finish_reason == "deadline" || finish_reason == "cancelled")
    return "max_tokens";
  if (finish_reason == "tool_calls") return "tool_use";
  return by_stop_string ? "stop_sequence" : "end_turn";
}

std::string anthropic_response(const ResponseInfo& info, const ChoiceResult& answer,
                               const engine::Usage& usage, const std::string& stop_string) {
  Json content = Json::array();
  if (!answer.reasoning.empty())
    content.push_back({{"type", "thinking"}, {"thinking", clean(answer.reasoning)}, {"signature", ""}});
  if (!answer.text.empty()) content.push_back({{"type", "text"}, {"text", clean(answer.text)}});
  for (const ToolCallResult& call : answer.tool_calls) {
    Json input = Json::parse(call.arguments, nullptr, false);
    if (!input.is_object()) input = Json::object();
    content.push_back(
        {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
  }
  Json json = {{"id", info.id}, {"type", "message"}, {"role", "assistant"}, {"model", info.model}};
  json["content"] = std::move(content);
  json["stop_reason"] = anthropic_stop_reason(answer.finish_reason, !stop_string.empty());
  json["stop_sequence"] = stop_string.empty() ? Json() : Json(stop_string);
  json["usage"] = usage_json(usage);
  return json.dump();
}

void AnthropicStream::begin(int32_t prompt_tokens, Events& out) {
  Json message = {{"id", info_.id}, {"type", "message"}, {"role", "assistant"}, {"model", info_.model}};
  message["content"] = Json::array();
  message["stop_reason"] = message["stop_sequence"] = nullptr;
  message["usage"] = {{"input_tokens", prompt_tokens}, {"output_tokens", 0}};
  out.emplace_back("message_start", Json{{"type", "message_start"}, {"message", std::move(message)}}.dump());
}

void AnthropicStream::open(Block block, const OutputEvent& event, Events& out) {
  close(out);
  block_ = block;
  ++index_;
  Json content = {{"type", "text"}, {"text", ""}};
  if (block == Block::kThinking) content = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  if (block == Block::kTool)
    content = {{"type", "tool_use"}, {"id", event.id}, {"name", event.name}, {"input", Json::object()}};
  out.emplace_back(
      "content_block_start",
      Json{{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(content)}}.dump());
}

void AnthropicStream::close(Events& out) {
  if (block_ == Block::kNone) return;
  block_ = Block::kNone;
  out.emplace_back("content_block_stop", Json{{"type", "content_block_stop"}, {"index", index_}}.dump());
}

void AnthropicStream::add(const OutputEvent& event, Events& out) {
  using Kind = OutputEvent::Kind;
  if (event.kind == Kind::kToolCallBegin) {
    open(Block::kTool, event, out);
    return;
  }
  if (event.kind == Kind::kToolCallEnd) {
    close(out);
    return;
  }
  const Block wanted = event.kind == Kind::kContent     ? Block::kText
                       : event.kind == Kind::kReasoning ? Block::kThinking
                                                        : Block::kTool;
  if (block_ != wanted) open(wanted, event, out);
  Json delta;
  if (wanted == Block::kText) delta = {{"type", "text_delta"}, {"text", clean(event.text)}};
  if (wanted == Block::kThinking) delta = {{"type", "thinking_delta"}, {"thinking", clean(event.text)}};
  if (wanted == Block::kTool) delta = {{"type", "input_json_delta"}, {"partial_json", clean(event.text)}};
  out.emplace_back(
      "content_block_delta",
      Json{{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}}.dump());
}

void AnthropicStream::finish(std::string_view finish_reason, const std::string& stop_string,
                             const engine::Usage& usage, Events& out) {
  close(out);
  Json delta = {{"stop_reason", anthropic_stop_reason(finish_reason, !stop_string.empty())}};
  delta["stop_sequence"] = stop_string.empty() ? Json() : Json(stop_string);
  out.emplace_back(
      "message_delta",
      Json{{"type", "message_delta"}, {"delta", std::move(delta)}, {"usage", usage_json(usage)}}.dump());
  out.emplace_back("message_stop", R"({"type":"message_stop"})");
}

void AnthropicStream::fail(const Error& error, Events& out) {
  out.emplace_back("error", anthropic_error_body(error));
}

}  // namespace millrace::api
