// Requests as the APIs have them, made ready for the engine.
#include "api/chat.h"
#include "api/grammar_service.h"
#include "core/error.h"
#include "server/call.h"

namespace millrace::server {

using api::ApiError;

namespace {

void check_model(const std::string& name, const ServedModel& model) {
  if (name.empty() || name == model.id || name == "default") return;
  throw ApiError(ErrorCode::kNotFound,
                 fmt::format("The model '{}' does not exist: this server has '{}'", name, model.id), "model",
                 "model_not_found");
}

PromptTokens tokenise(const api::Prompt& prompt, const ServedModel& model, bool add_special,
                      const char* param) {
  PromptTokens p;
  if (!prompt.is_ids) {
    p.tokens = model.tokenizer->encode(prompt.text, {add_special, true});
    // An empty prompt begins where every text does.
    if (p.tokens.empty() && model.tokenizer->bos()) p.tokens.push_back(*model.tokenizer->bos());
    p.text = prompt.text;
    return p;
  }
  const int32_t size = model.engine->model_info().vocab_size;
  for (const engine::TokenId id : prompt.ids)
    if (id < 0 || id >= size)
      throw ApiError(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' has the token id {}, but the vocabulary has 0 to {}", param, id, size - 1), param,
          "invalid_value");
  p.tokens = prompt.ids;
  p.text = model.tokenizer->decode(p.tokens);
  return p;
}

void render_chat(PreparedRequest& p, const ServedModel& model) {
  PromptTokens prompt = chat_prompt(p.request, model);
  p.starts_in_reasoning = api::prompt_opens_reasoning(p.format, prompt.text);
  p.prompts.push_back(std::move(prompt));
}

}  // namespace

bool needs_grammar(const api::GenerationRequest& r) {
  return r.constraint.kind != api::TextConstraint::Kind::kNone ||
         (!r.tools.empty() && r.tool_choice.choice != api::ToolChoice::kNone);
}

PromptTokens chat_prompt(const api::GenerationRequest& r, const ServedModel& model) {
  check_model(r.model, model);
  const bool tools = !r.tools.empty() && r.tool_choice.choice != api::ToolChoice::kNone;
  const std::string* source = model.chat.choose(tools);
  if (source == nullptr)
    throw ApiError(ErrorCode::kInvalidArgument, "this model has no chat template: use /v1/completions",
                   "messages", "no_chat_template");
  text::RenderOptions options;
  options.fallbacks = model.chat.special_tokens;
  PromptTokens prompt;
  prompt.text = api::render_prompt(text::ChatTemplate::parse(*source), r, options);
  prompt.tokens = model.tokenizer->encode(prompt.text, {false, true});
  return prompt;
}

PreparedRequest prepare(api::GenerationRequest request, const ServedModel& model,
                        const RequestBounds& bounds) {
  PreparedRequest p;
  p.request = std::move(request);
  api::GenerationRequest& r = p.request;
  check_model(r.model, model);
  if (bounds.max_tokens > 0 && r.generation.max_tokens < 0) r.generation.max_tokens = bounds.max_tokens;
  r.generation.end_tokens = model.tokenizer->end_of_generation();
  for (const std::string& text : r.dry_breakers) {
    auto ids = model.tokenizer->encode(text, {false, false});
    if (!ids.empty()) r.sampling.dry_sequence_breakers.push_back(std::move(ids));
  }
  const auto longest = static_cast<int64_t>(bounds.seconds * 1000);
  if (longest > 0 && (r.deadline_ms == 0 || r.deadline_ms > longest)) r.deadline_ms = longest;

  p.format = model.format;
  if (r.tool_choice.choice == api::ToolChoice::kNone) r.tools.clear();
  // A model without a form of its own for tool calls can still be held to the plainest one.
  const bool must_call =
      r.tool_choice.choice == api::ToolChoice::kRequired || r.tool_choice.choice == api::ToolChoice::kNamed;
  if (p.format.tools == api::ToolFormat::kNone && must_call && !r.tools.empty())
    p.format.tools = api::ToolFormat::kGenericJson;
  if (r.endpoint == api::Endpoint::kCompletion) {
    for (const api::Prompt& prompt : r.prompts)
      p.prompts.push_back(tokenise(prompt, model, r.add_special_tokens, "prompt"));
  } else {
    render_chat(p, model);
  }
  p.constraint = model.grammars->constraint(r, p.format, p.prompts[0].text, p.starts_in_reasoning);
  return p;
}

PreparedEmbedding prepare(api::EmbeddingRequest request, const ServedModel& model) {
  PreparedEmbedding p;
  p.request = std::move(request);
  check_model(p.request.model, model);
  const int32_t width = model.engine->model_info().hidden_size;
  if (p.request.dimensions > width)
    throw ApiError(
        ErrorCode::kInvalidArgument,
        fmt::format("'dimensions' is {}, but must be between 1 and {}", p.request.dimensions, width),
        "dimensions", "invalid_value");
  for (const api::Prompt& prompt : p.request.prompts)
    p.prompts.push_back(tokenise(prompt, model, true, "input"));
  return p;
}

}  // namespace millrace::server
