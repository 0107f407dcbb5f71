// A request for completions as it came, read and checked, and the answer that streams back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/output_parser.h"
#include "engine/engine.h"
#include "server/http.h"
#include "text/template/chat_template.h"
#include "text/template/template_source.h"
#include "text/tokenizer.h"

namespace millrace::server {

/// Bounds on what one request may ask for, beyond the engine's own.
struct RequestBounds {
  int32_t prompts = 128;  ///< in one completions or embeddings request
  int32_t stop_strings = 16;
  int32_t stop_string_bytes = 1024;
  int32_t messages = 4096;
  int32_t tools = 128;
  int32_t max_tokens = 0;  ///< 0: what the context holds
  double seconds = 0;      ///< a request ends after this time at the latest; 0: never
};

/// What is served.
struct ServedModel {
  std::string id;
  int64_t created = 0;
  engine::Engine* engine = nullptr;
  const text::Tokenizer* tokenizer = nullptr;
  text::TemplateSource chat;
  api::OutputFormat format;  ///< how it writes tool calls and reasoning
};

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  ///< for echo
};

struct CompletionRequest {
  bool chat = false;
  bool stream = false, include_usage = false, echo = false, include_stop = false, token_ids = false;
  std::vector<Prompt> prompts;
  engine::SamplingParams sampling;
  engine::GenerationParams generation;
  std::vector<std::string> stops;
  std::vector<api::Tool> tools;
  bool starts_in_reasoning = false;
  int32_t priority = 0;
  double deadline_seconds = 0;
  std::string cache_salt;
  bool pin_prefix = false;
};

/// Reads the body of /v1/completions or /v1/chat/completions. ApiError for what is wrong.
CompletionRequest read_completion(const std::string& body, const ServedModel& model,
                                  const RequestBounds& bounds);
CompletionRequest read_chat(const std::string& body, const ServedModel& model, const RequestBounds& bounds);

struct EmbeddingRequest {
  std::vector<Prompt> prompts;
  engine::Pooling pooling = engine::Pooling::kMean;
  bool base64 = false;
  int32_t dimensions = 0;  ///< 0: all
};
EmbeddingRequest read_embedding(const std::string& body, const ServedModel& model,
                                const RequestBounds& bounds);

/// Requests that met their service levels, for goodput.
struct ServiceLevel {
  double first_token_seconds = 2.0;
  double token_seconds = 0.2;  ///< mean time per token after the first
};
struct GoodputCounters {
  std::atomic<uint64_t> met{0}, missed{0}, tokens_met{0};
};

/// One answer on its way. cancel() may be called from any thread.
class Call {
 public:
  virtual ~Call() = default;
  virtual void cancel() = 0;
};

struct CallContext {
  const ServedModel* model = nullptr;
  std::string id;  ///< "chatcmpl-..."
  std::string tenant;
  ServiceLevel level;
  GoodputCounters* goodput = nullptr;
  std::function<void()> on_end;  ///< the answer is complete or given up
};

/// Submits and begins to answer. ApiError when the engine refuses; then nothing was sent.
std::shared_ptr<Call> start_completion(CompletionRequest request, CallContext context,
                                       std::shared_ptr<HttpResponse> response);
std::shared_ptr<Call> start_embedding(EmbeddingRequest request, CallContext context,
                                      std::shared_ptr<HttpResponse> response);

}  // namespace millrace::server
