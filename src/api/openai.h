// The OpenAI API: bodies of /v1/chat/completions, /v1/completions and /v1/responses to requests, results to
// bodies and stream chunks.
//
// Rule for members a body may have: those that OpenAI documents are taken; of these, the ones that can mean
// nothing here (user, metadata, store, service_tier, ...) are accepted and ignored; vLLM's and llama.cpp's
// additions that this server has are taken (top_k, min_p, ignore_eos, guided_json, grammar, priority,
// deadline_ms, cache_salt, ...). Any other member is refused as OpenAI does: 400, "Unknown parameter: 'x'.",
// code unknown_parameter.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/request.h"

namespace millrace::api {

/// Errors: ApiError naming the parameter.
GenerationRequest parse_chat_request(std::string_view body, const SchemaLimits& limits = {});
/// The same of a body that has been parsed.
GenerationRequest read_chat_request(const nlohmann::ordered_json& body, const SchemaLimits& limits = {});
GenerationRequest parse_completion_request(std::string_view body, const SchemaLimits& limits = {});
/// /v1/responses: input as text or items; earlier responses are not stored, so previous_response_id is
/// refused.
GenerationRequest parse_responses_request(std::string_view body, const SchemaLimits& limits = {});
EmbeddingRequest parse_embedding_request(std::string_view body, const SchemaLimits& limits = {});

/// A token's text with its log-probability, and the alternatives.
struct TextLogprob {
  std::string text;  ///< the token's bytes; ill-formed UTF-8 is replaced where JSON needs text
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
  bool known = true;  ///< the first token of an echoed prompt has none
};

struct ToolCallResult {
  std::string id;
  std::string name;
  std::string arguments;
};

/// One answer.
struct ChoiceResult {
  int index = 0;
  std::string text;
  std::string reasoning;
  std::vector<ToolCallResult> tool_calls;
  std::string finish_reason;  ///< "stop", "length", "tool_calls", ...
  std::vector<TextLogprob> logprobs;
  bool has_logprobs = false;
  // Beyond OpenAI's, as vLLM has them.
  std::string stop_string;                    ///< the stop string that ended it, or
  std::optional<engine::TokenId> stop_token;  ///< the token that did
  std::optional<std::vector<engine::TokenId>> token_ids;
  std::string prompt_logprobs;  ///< JSON, or ""
};

/// What a chunk of a stream has beside its text.
struct ChunkExtras {
  const std::vector<TextLogprob>* logprobs = nullptr;
  size_t text_offset = 0;                                   ///< completions: of the first of them
  const std::vector<engine::TokenId>* token_ids = nullptr;  ///< null: not asked for
  bool usage_comes = false;  ///< "usage": null, because the last chunk will have it
};

struct ResponseInfo {
  std::string id;       ///< "chatcmpl-...", "cmpl-...", "resp_...", "msg_..."
  int64_t created = 0;  ///< seconds since 1970
  std::string model;
};

std::string chat_response(const ResponseInfo& info, const std::vector<ChoiceResult>& choices,
                          const engine::Usage& usage, int32_t reasoning_tokens = 0);
std::string completion_response(const ResponseInfo& info, const std::vector<ChoiceResult>& choices,
                                const engine::Usage& usage);

// Streams: each is the JSON of one "data:" line. The stream ends with "data: [DONE]".
std::string chat_chunk_begin(const ResponseInfo& info, int choice, const ChunkExtras& extras = {});
/// One parser event; kToolCallEnd gives "" (nothing to send).
std::string chat_chunk(const ResponseInfo& info, int choice, const OutputEvent& event,
                       const ChunkExtras& extras = {});
/// Of `choice` only what ended it is looked at.
std::string chat_chunk_end(const ResponseInfo& info, const ChoiceResult& choice,
                           const ChunkExtras& extras = {});
std::string chat_chunk_usage(const ResponseInfo& info, const engine::Usage& usage,
                             int32_t reasoning_tokens = 0);
std::string completion_chunk(const ResponseInfo& info, int choice, std::string_view text,
                             const ChunkExtras& extras = {});
std::string completion_chunk_end(const ResponseInfo& info, const ChoiceResult& choice,
                                 const ChunkExtras& extras = {});
std::string completion_chunk_usage(const ResponseInfo& info, const engine::Usage& usage);

std::string models_response(const std::vector<std::pair<std::string, int64_t>>& models);

/// /v1/responses: "completed", "incomplete" (cut by its length), "deadline" (incomplete by that),
/// "cancelled".
std::string_view responses_status(std::string_view finish_reason);
/// The whole object of one answer. `status`: one of responses_status(), "in_progress" or "failed".
std::string responses_response(const ResponseInfo& info, const ChoiceResult& answer,
                               const engine::Usage& usage, std::string_view status,
                               int32_t reasoning_tokens = 0);

/// The events of a streamed response, in order; each entry is (event name, JSON).
class ResponsesStream {
 public:
  explicit ResponsesStream(ResponseInfo info) : info_(std::move(info)) {}
  using Events = std::vector<std::pair<std::string, std::string>>;
  void begin(Events& out);
  void add(const OutputEvent& event, Events& out);
  void finish(std::string_view finish_reason, const engine::Usage& usage, Events& out,
              int32_t reasoning_tokens = 0);
  void fail(const Error& error, Events& out);

 private:
  enum class Item { kNone, kMessage, kReasoning, kCall };
  void open(Item item, const OutputEvent& event, Events& out);
  void close(Events& out);
  void emit(const char* name, const std::string& body, Events& out);
  std::string item_json(std::string_view status) const;

  ResponseInfo info_;
  int sequence_ = 0;
  int output_index_ = -1;
  Item item_ = Item::kNone;
  std::string text_;
  ToolCallResult call_;
  std::vector<std::string> items_;
};

}  // namespace millrace::api
