#include "api/chat.h"

#include "api/fields.h"

namespace millrace::api {

namespace {

void arguments_to_text(Json& messages) {
  for (Json& message : messages) {
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) {
      Json& arguments = call["function"]["arguments"];
      if (!arguments.is_string()) arguments = arguments.dump();
    }
  }
}

bool has_calls(const GenerationRequest& request) {
  return request.messages.find("\"tool_calls\"") != std::string::npos;
}

/// Ends the text with the last message's content, dropping the end-of-turn markers behind it.
std::string cut_after_final(const std::string& text, const GenerationRequest& request) {
  const Json messages = Json::parse(request.messages);
  const std::string content = messages.back().value("content", "");
  const size_t last = content.find_last_not_of(" \n\r\t");
  const std::string trimmed = last == std::string::npos ? "" : content.substr(0, last + 1);
  const size_t at = trimmed.empty() ? std::string::npos : text.rfind(trimmed);
  if (at == std::string::npos)
    bad_request("continue_final_message",
                "the chat template does not show the last message, so it cannot be continued");
  return text.substr(0, at + trimmed.size()) + content.substr(trimmed.size());
}

}  // namespace

std::string template_context(const GenerationRequest& request, ArgumentsForm form) {
  Json context = Json::object();
  Json messages = Json::parse(request.messages);
  if (form == ArgumentsForm::kText) arguments_to_text(messages);
  context["messages"] = std::move(messages);
  const bool tools = !request.tools_json.empty() && request.tool_choice.choice != ToolChoice::kNone;
  if (tools) context["tools"] = Json::parse(request.tools_json);
  if (!request.documents.empty()) context["documents"] = Json::parse(request.documents);
  context["add_generation_prompt"] = request.add_generation_prompt && !request.continue_final_message;
  if (!request.reasoning_effort.empty()) {
    if (request.reasoning_effort != "none") context["reasoning_effort"] = request.reasoning_effort;
    context["enable_thinking"] = context["thinking"] = request.reasoning_effort != "none";
  }
  if (!request.template_arguments.empty()) {
    // Named, for items() only refers to it.
    const Json arguments = Json::parse(request.template_arguments);
    for (const auto& [key, value] : arguments.items()) context[key] = value;
  }
  return context.dump();
}

std::string render_prompt(const text::ChatTemplate& chat_template, const GenerationRequest& request,
                          const text::RenderOptions& options) {
  std::string text;
  try {
    text = chat_template.render(template_context(request), options).text;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kLimitExceeded || !has_calls(request))
      throw ApiError(e.code(), e.what(), "messages", "invalid_messages");
    try {
      text = chat_template.render(template_context(request, ArgumentsForm::kText), options).text;
    } catch (const Error&) {
      throw ApiError(e.code(), e.what(), "messages", "invalid_messages");
    }
  }
  return request.continue_final_message ? cut_after_final(text, request) : text;
}

}  // namespace millrace::api
