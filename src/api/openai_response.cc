#include <nlohmann/json.hpp>

#include "api/openai.h"
#include "core/utf8.h"

namespace millrace::api {

namespace {

using Json = nlohmann::ordered_json;

/// Model output may hold ill-formed bytes; JSON may not.
std::string clean(std::string_view text) { return utf8::replace_invalid(text); }

Json base(const ResponseInfo& info, const char* object) {
  return {{"id", info.id}, {"object", object}, {"created", info.created}, {"model", info.model}};
}

/// JSON has no infinity: what cannot be is -9999, as OpenAI says it.
float finite(float logprob) { return std::max(logprob, -9999.0f); }

Json bytes_of(std::string_view text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json usage_json(const engine::Usage& usage, int32_t reasoning_tokens) {
  Json json = {{"prompt_tokens", usage.prompt_tokens},
               {"completion_tokens", usage.completion_tokens},
               {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
               {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
  if (reasoning_tokens > 0) json["completion_tokens_details"] = {{"reasoning_tokens", reasoning_tokens}};
  return json;
}

Json chat_logprobs(const std::vector<TextLogprob>& logprobs) {
  Json content = Json::array();
  for (const TextLogprob& token : logprobs) {
    Json top = Json::array();
    for (const auto& [text, logprob] : token.top)
      top.push_back({{"token", clean(text)}, {"logprob", finite(logprob)}, {"bytes", bytes_of(text)}});
    content.push_back({{"token", clean(token.text)},
                       {"logprob", finite(token.logprob)},
                       {"bytes", bytes_of(token.text)},
                       {"top_logprobs", std::move(top)}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const std::vector<TextLogprob>& logprobs, size_t offset) {
  Json json = {{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
  for (const TextLogprob& token : logprobs) {
    Json top = Json::object();
    for (const auto& [text, logprob] : token.top) top[clean(text)] = finite(logprob);
    json["tokens"].push_back(clean(token.text));
    json["token_logprobs"].push_back(token.known ? Json(finite(token.logprob)) : Json());
    json["top_logprobs"].push_back(token.known ? std::move(top) : Json());
    json["text_offset"].push_back(offset);
    offset += token.text.size();
  }
  return json;
}

Json tool_call_json(const ToolCallResult& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", clean(call.arguments)}}}};
}

/// What ended an answer, beyond the word for it.
void add_ending(const ChoiceResult& choice, Json& json) {
  if (!choice.stop_string.empty())
    json["stop_reason"] = clean(choice.stop_string);
  else if (choice.stop_token)
    json["stop_reason"] = *choice.stop_token;
}

Json chat_choice(int index, Json delta, const ChunkExtras& extras) {
  Json json = {{"index", index}, {"delta", std::move(delta)}};
  json["logprobs"] = extras.logprobs != nullptr ? chat_logprobs(*extras.logprobs) : Json();
  json["finish_reason"] = nullptr;
  if (extras.token_ids != nullptr) json["token_ids"] = *extras.token_ids;
  return json;
}

Json completion_choice(int index, std::string_view text, const ChunkExtras& extras) {
  Json json = {{"index", index}, {"text", clean(text)}};
  json["logprobs"] =
      extras.logprobs != nullptr ? completion_logprobs(*extras.logprobs, extras.text_offset) : Json();
  json["finish_reason"] = nullptr;
  if (extras.token_ids != nullptr) json["token_ids"] = *extras.token_ids;
  return json;
}

std::string chunk_of(const ResponseInfo& info, const char* object, Json choice, const ChunkExtras& extras) {
  Json json = base(info, object);
  json["choices"] = Json::array({std::move(choice)});
  if (extras.usage_comes) json["usage"] = nullptr;
  return json.dump();
}

constexpr const char* kChatChunk = "chat.completion.chunk";
constexpr const char* kCompletionChunk = "text_completion";

Json response_item(const ToolCallResult& call, const std::string& id, std::string_view status) {
  return {{"type", "function_call"},
          {"id", id},
          {"call_id", call.id},
          {"name", call.name},
          {"arguments", clean(call.arguments)},
          {"status", status}};
}

Json message_item(const std::string& text, const std::string& id, std::string_view status) {
  return {{"type", "message"},
          {"id", id},
          {"role", "assistant"},
          {"status", status},
          {"content",
           Json::array({{{"type", "output_text"}, {"text", clean(text)}, {"annotations", Json::array()}}})}};
}

Json reasoning_item(const std::string& text, const std::string& id) {
  return {{"type", "reasoning"},
          {"id", id},
          {"summary", Json::array()},
          {"content", Json::array({{{"type", "reasoning_text"}, {"text", clean(text)}}})}};
}

Json responses_object(const ResponseInfo& info, Json output, const engine::Usage* usage,
                      std::string_view status, int32_t reasoning_tokens) {
  Json json = {{"id", info.id},
               {"object", "response"},
               {"created_at", info.created},
               {"status", status},
               {"error", nullptr}};
  // An answer cut short by its deadline has this server's own reason.
  json["incomplete_details"] = nullptr;
  if (status == "incomplete") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (status == "deadline") {
    json["status"] = "incomplete";
    json["incomplete_details"] = {{"reason", "deadline"}};
  }
  json["model"] = info.model;
  json["output"] = std::move(output);
  json["parallel_tool_calls"] = true;
  json["tool_choice"] = "auto";
  json["tools"] = Json::array();
  if (usage != nullptr) {
    json["usage"] = {{"input_tokens", usage->prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", usage->cached_tokens}}},
                     {"output_tokens", usage->completion_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens}}},
                     {"total_tokens", usage->prompt_tokens + usage->completion_tokens}};
  } else {
    json["usage"] = nullptr;
  }
  return json;
}

}  // namespace

std::string chat_response(const ResponseInfo& info, const std::vector<ChoiceResult>& choices,
                          const engine::Usage& usage, int32_t reasoning_tokens) {
  Json json = base(info, "chat.completion");
  json["choices"] = Json::array();
  for (const ChoiceResult& choice : choices) {
    Json message = {{"role", "assistant"}};
    message["content"] =
        choice.text.empty() && !choice.tool_calls.empty() ? Json() : Json(clean(choice.text));
    message["refusal"] = nullptr;
    if (!choice.reasoning.empty()) message["reasoning_content"] = clean(choice.reasoning);
    if (!choice.tool_calls.empty()) {
      message["tool_calls"] = Json::array();
      for (const ToolCallResult& call : choice.tool_calls)
        message["tool_calls"].push_back(tool_call_json(call));
    }
    Json entry = {{"index", choice.index},
                  {"message", std::move(message)},
                  {"logprobs", choice.has_logprobs ? chat_logprobs(choice.logprobs) : Json()},
                  {"finish_reason", choice.finish_reason}};
    add_ending(choice, entry);
    if (choice.token_ids) entry["token_ids"] = *choice.token_ids;
    if (!choice.prompt_logprobs.empty()) entry["prompt_logprobs"] = Json::parse(choice.prompt_logprobs);
    json["choices"].push_back(std::move(entry));
  }
  json["usage"] = usage_json(usage, reasoning_tokens);
  return json.dump();
}

std::string completion_response(const ResponseInfo& info, const std::vector<ChoiceResult>& choices,
                                const engine::Usage& usage) {
  Json json = base(info, "text_completion");
  json["choices"] = Json::array();
  for (const ChoiceResult& choice : choices) {
    Json entry = {{"index", choice.index},
                  {"text", clean(choice.text)},
                  {"logprobs", choice.has_logprobs ? completion_logprobs(choice.logprobs, 0) : Json()},
                  {"finish_reason", choice.finish_reason}};
    add_ending(choice, entry);
    if (choice.token_ids) entry["token_ids"] = *choice.token_ids;
    if (!choice.prompt_logprobs.empty()) entry["prompt_logprobs"] = Json::parse(choice.prompt_logprobs);
    json["choices"].push_back(std::move(entry));
  }
  json["usage"] = usage_json(usage, 0);
  return json.dump();
}

std::string chat_chunk_begin(const ResponseInfo& info, int choice, const ChunkExtras& extras) {
  return chunk_of(info, kChatChunk, chat_choice(choice, {{"role", "assistant"}, {"content", ""}}, extras),
                  extras);
}

std::string chat_chunk(const ResponseInfo& info, int choice, const OutputEvent& event,
                       const ChunkExtras& extras) {
  Json delta;
  switch (event.kind) {
    case OutputEvent::Kind::kContent:
      delta = {{"content", clean(event.text)}};
      break;
    case OutputEvent::Kind::kReasoning:
      delta = {{"reasoning_content", clean(event.text)}};
      break;
    case OutputEvent::Kind::kToolCallBegin: {
      Json call = {{"index", event.index},
                   {"id", event.id},
                   {"type", "function"},
                   {"function", {{"name", event.name}, {"arguments", ""}}}};
      delta["tool_calls"] = Json::array({std::move(call)});
      break;
    }
    case OutputEvent::Kind::kToolArguments: {
      Json call = {{"index", event.index}, {"function", {{"arguments", clean(event.text)}}}};
      delta["tool_calls"] = Json::array({std::move(call)});
      break;
    }
    case OutputEvent::Kind::kToolCallEnd:
      return "";
  }
  return chunk_of(info, kChatChunk, chat_choice(choice, std::move(delta), extras), extras);
}

std::string chat_chunk_end(const ResponseInfo& info, const ChoiceResult& choice, const ChunkExtras& extras) {
  Json entry = chat_choice(choice.index, Json::object(), extras);
  entry["finish_reason"] = choice.finish_reason;
  add_ending(choice, entry);
  return chunk_of(info, kChatChunk, std::move(entry), extras);
}

std::string chat_chunk_usage(const ResponseInfo& info, const engine::Usage& usage, int32_t reasoning_tokens) {
  Json json = base(info, "chat.completion.chunk");
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage, reasoning_tokens);
  return json.dump();
}

std::string completion_chunk(const ResponseInfo& info, int choice, std::string_view text,
                             const ChunkExtras& extras) {
  return chunk_of(info, kCompletionChunk, completion_choice(choice, text, extras), extras);
}

std::string completion_chunk_end(const ResponseInfo& info, const ChoiceResult& choice,
                                 const ChunkExtras& extras) {
  Json entry = completion_choice(choice.index, "", extras);
  entry["finish_reason"] = choice.finish_reason;
  add_ending(choice, entry);
  return chunk_of(info, kCompletionChunk, std::move(entry), extras);
}

std::string completion_chunk_usage(const ResponseInfo& info, const engine::Usage& usage) {
  Json json = base(info, "text_completion");
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage, 0);
  return json.dump();
}

std::string models_response(const std::vector<std::pair<std::string, int64_t>>& models) {
  Json json = {{"object", "list"}, {"data", Json::array()}};
  for (const auto& [id, created] : models)
    json["data"].push_back({{"id", id}, {"object", "model"}, {"created", created}, {"owned_by", "millrace"}});
  return json.dump();
}

std::string responses_response(const ResponseInfo& info, const ChoiceResult& answer,
                               const engine::Usage& usage, std::string_view status,
                               int32_t reasoning_tokens) {
  Json output = Json::array();
  if (!answer.reasoning.empty()) output.push_back(reasoning_item(answer.reasoning, "rs_" + info.id));
  if (!answer.text.empty() || answer.tool_calls.empty())
    output.push_back(
        message_item(answer.text, "msg_" + info.id, status == "incomplete" ? "incomplete" : "completed"));
  for (size_t i = 0; i < answer.tool_calls.size(); ++i)
    output.push_back(response_item(answer.tool_calls[i], fmt::format("fc_{}_{}", info.id, i), "completed"));
  return responses_object(info, std::move(output), &usage, status, reasoning_tokens).dump();
}

// --- the stream of /v1/responses ---

void ResponsesStream::emit(const char* name, const std::string& body, Events& out) {
  Json json = Json::parse(body);
  json["type"] = name;
  json["sequence_number"] = sequence_++;
  out.emplace_back(name, json.dump());
}

std::string ResponsesStream::item_json(std::string_view status) const {
  const std::string id = fmt::format("item_{}_{}", info_.id, output_index_);
  if (item_ == Item::kCall) return response_item(call_, id, status).dump();
  return (item_ == Item::kReasoning ? reasoning_item(text_, id) : message_item(text_, id, status)).dump();
}

void ResponsesStream::begin(Events& out) {
  const Json response = responses_object(info_, Json::array(), nullptr, "in_progress", 0);
  emit("response.created", Json{{"response", response}}.dump(), out);
  emit("response.in_progress", Json{{"response", response}}.dump(), out);
}

void ResponsesStream::open(Item item, const OutputEvent& event, Events& out) {
  close(out);
  item_ = item;
  ++output_index_;
  text_.clear();
  call_ = {event.id, event.name, ""};
  Json added = Json::parse(item_json("in_progress"));
  if (item != Item::kCall) added["content"] = Json::array();
  emit("response.output_item.added", Json{{"output_index", output_index_}, {"item", added}}.dump(), out);
  if (item == Item::kMessage) {
    const Json part = {{"type", "output_text"}, {"text", ""}, {"annotations", Json::array()}};
    emit("response.content_part.added",
         Json{{"item_id", added["id"]}, {"output_index", output_index_}, {"content_index", 0}, {"part", part}}
             .dump(),
         out);
  }
}

void ResponsesStream::close(Events& out) {
  if (item_ == Item::kNone) return;
  const Json item = Json::parse(item_json("completed"));
  Json place = {{"item_id", item["id"]}, {"output_index", output_index_}};
  if (item_ == Item::kCall) {
    place["name"] = call_.name;
    place["arguments"] = clean(call_.arguments);
    emit("response.function_call_arguments.done", place.dump(), out);
  } else {
    place["content_index"] = 0;
    Json text = place;
    text["text"] = clean(text_);
    emit(item_ == Item::kMessage ? "response.output_text.done" : "response.reasoning_text.done", text.dump(),
         out);
    if (item_ == Item::kMessage) {
      place["part"] = item["content"][0];
      emit("response.content_part.done", place.dump(), out);
    }
  }
  emit("response.output_item.done", Json{{"output_index", output_index_}, {"item", item}}.dump(), out);
  items_.push_back(item.dump());
  item_ = Item::kNone;
}

void ResponsesStream::add(const OutputEvent& event, Events& out) {
  using Kind = OutputEvent::Kind;
  if (event.kind == Kind::kToolCallBegin) {
    open(Item::kCall, event, out);
    return;
  }
  if (event.kind == Kind::kToolCallEnd) {
    close(out);
    return;
  }
  const Item wanted = event.kind == Kind::kContent     ? Item::kMessage
                      : event.kind == Kind::kReasoning ? Item::kReasoning
                                                       : Item::kCall;
  if (item_ != wanted) open(wanted, event, out);
  Json delta = {{"item_id", fmt::format("item_{}_{}", info_.id, output_index_)},
                {"output_index", output_index_}};
  if (wanted == Item::kCall) {
    call_.arguments += event.text;
  } else {
    text_ += event.text;
    delta["content_index"] = 0;
  }
  delta["delta"] = clean(event.text);
  emit(wanted == Item::kMessage     ? "response.output_text.delta"
       : wanted == Item::kReasoning ? "response.reasoning_text.delta"
                                    : "response.function_call_arguments.delta",
       delta.dump(), out);
}

void ResponsesStream::finish(std::string_view finish_reason, const engine::Usage& usage, Events& out,
                             int32_t reasoning_tokens) {
  close(out);
  Json items = Json::array();
  for (const std::string& item : items_) items.push_back(Json::parse(item));
  const std::string_view status = responses_status(finish_reason);
  const Json response = responses_object(info_, std::move(items), &usage, status, reasoning_tokens);
  emit(status == "completed"   ? "response.completed"
       : status == "cancelled" ? "response.cancelled"
                               : "response.incomplete",
       Json{{"response", response}}.dump(), out);
}

void ResponsesStream::fail(const Error& error, Events& out) {
  close(out);
  const Json body = Json::parse(openai_error_body(error))["error"];
  Json items = Json::array();
  for (const std::string& item : items_) items.push_back(Json::parse(item));
  Json response = responses_object(info_, std::move(items), nullptr, "failed", 0);
  response["error"] = {{"code", body["code"]}, {"message", body["message"]}};
  emit("response.failed", Json{{"response", response}}.dump(), out);
}

std::string_view responses_status(std::string_view finish_reason) {
  if (finish_reason == "length") return "incomplete";
  if (finish_reason == "deadline" || finish_reason == "cancelled") return finish_reason;
  return "completed";
}

}  // namespace millrace::api
