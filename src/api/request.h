// What any of the APIs (OpenAI chat, completions and responses; Anthropic messages) asks for, in one form.
// Texts are still texts here: the server renders, tokenises and hands an engine::Request on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/output_parser.h"
#include "api/tool_grammar.h"
#include "core/error.h"
#include "engine/request.h"

namespace millrace::api {

/// An error for a client: beside code and sentence, which parameter is wrong and OpenAI's short code for why.
class ApiError : public Error {
 public:
  ApiError(ErrorCode code, const std::string& message, std::string param = "", std::string reason = "",
           int status = 0)
      : Error(code, message), param_(std::move(param)), reason_(std::move(reason)), status_(status) {}
  const std::string& param() const { return param_; }
  const std::string& reason() const { return reason_; }
  /// HTTP status where the code alone does not say it; 0: see http_status().
  int status() const { return status_; }

 private:
  std::string param_;
  std::string reason_;
  int status_;
};

enum class Endpoint { kChat, kCompletion, kResponses, kAnthropic };

/// A constraint on the text of the answer.
struct TextConstraint {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf, kLark } kind = Kind::kNone;
  std::string text;                  ///< schema, expression or grammar
  std::vector<std::string> choices;  ///< of kChoice
  bool strict = true;                ///< of kJsonSchema; enforced either way
  bool compact = false;              ///< JSON without white space between its parts
  std::string param;                 ///< where it came from, for errors: "response_format.json_schema.schema"
};

/// A prompt of a completion: text, or token ids.
struct Prompt {
  std::string text;
  std::vector<engine::TokenId> ids;
  bool is_ids = false;
};

struct GenerationRequest {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;

  // Chat.
  std::string messages = "[]";  ///< JSON array as templates want it (see chat.h)
  std::string tools_json;       ///< the request's tools in OpenAI's form, "" when there are none
  std::vector<Tool> tools;
  ToolChoiceSetting tool_choice;
  std::string template_arguments;  ///< JSON object of more template variables ("chat_template_kwargs"), or ""
  std::string documents;           ///< JSON array, or ""
  std::string reasoning_effort;    ///< "", "minimal", "low", "medium", "high"
  std::optional<int32_t> reasoning_tokens;  ///< most tokens of a reasoning block
  bool add_generation_prompt = true;
  bool continue_final_message = false;  ///< the last message goes on instead of a new one
  bool include_reasoning = true;

  // Completion.
  std::vector<Prompt> prompts;
  bool echo = false;
  bool add_special_tokens = true;

  // Both. Fields that the request does not have keep the engine's defaults and are not in `given`, so that a
  // model's own defaults may fill them.
  engine::SamplingParams sampling;
  engine::GenerationParams generation;
  std::vector<std::string> given;         ///< names of the sampling fields that the request has
  std::vector<std::string> stop;          ///< stop strings
  bool include_stop = false;              ///< the stop string is part of the text
  bool token_ids = false;                 ///< the tokens' ids are part of the answer
  std::vector<std::string> dry_breakers;  ///< texts over which no repeat reaches (sampling: DRY)
  bool logprobs = false;  ///< chat: log-probabilities wanted (sampling.logprobs says how many)
  TextConstraint constraint;
  bool stream = false;
  bool include_usage = false;  ///< a last chunk with usage
  int32_t priority = 0;
  int64_t deadline_ms = 0;  ///< 0: none
  std::string cache_salt;
  bool pin_prefix = false;  ///< "cache_pin"
  std::string user;

  bool has(std::string_view field) const;
};

/// What a server lets a request ask for.
struct SchemaLimits {
  int32_t max_n = 128;
  int32_t max_tokens = 1 << 24;
  int32_t max_logprobs = 20;
  size_t max_stop_strings = 16;
  size_t max_stop_bytes = 1024;
  size_t max_messages = 10000;
  size_t max_tools = 512;
  size_t max_prompts = 128;
  size_t max_logit_bias = 1024;
};

/// Texts or token ids of which vectors are wanted.
struct EmbeddingRequest {
  std::string model;
  std::vector<Prompt> prompts;
  engine::Pooling pooling = engine::Pooling::kMean;
  bool base64 = false;
  int32_t dimensions = 0;  ///< 0: all
};

/// HTTP status for an error: 400, 401, 404, 429, 499, 500, 503, 504; an ApiError may bring its own.
int http_status(ErrorCode code);
int http_status(const Error& error);
/// OpenAI's type for a status: "invalid_request_error", "authentication_error", "rate_limit_error",
/// "server_error", ...
const char* error_type(int status);

/// {"error": {"message", "type", "param", "code"}}
std::string openai_error_body(const Error& error);
/// {"type": "error", "error": {"type", "message"}}
std::string anthropic_error_body(const Error& error);

}  // namespace millrace::api
