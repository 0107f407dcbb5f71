// A request on its way through the server: made ready for the engine, and the answer that streams back.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/output_parser.h"
#include "api/request.h"
#include "engine/engine.h"
#include "server/http.h"
#include "text/template/template_source.h"
#include "text/tokenizer.h"

namespace millrace::api {
class GrammarService;
}

namespace millrace::server {

/// Bounds on what one request may ask for, beyond the engine's own.
struct RequestBounds {
  api::SchemaLimits schema;
  int32_t max_tokens = 0;  ///< of an answer; 0: what the context holds
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
  std::shared_ptr<api::GrammarService> grammars;
};

struct PromptTokens {
  std::vector<engine::TokenId> tokens;
  std::string text;  ///< for echo
};

/// A request in the engine's terms: rendered and tokenised, its grammar compiled.
struct PreparedRequest {
  api::GenerationRequest request;
  std::vector<PromptTokens> prompts;
  api::OutputFormat format;
  bool starts_in_reasoning = false;
  std::unique_ptr<engine::TokenConstraint> constraint;  ///< forked for each prompt
};

/// Error (ApiError, mostly) for what cannot be done. May wait for a grammar to be compiled: see
/// needs_grammar().
PreparedRequest prepare(api::GenerationRequest request, const ServedModel& model,
                        const RequestBounds& bounds);
/// A chat's prompt through the model's template. Error as prepare().
PromptTokens chat_prompt(const api::GenerationRequest& request, const ServedModel& model);
/// Whether prepare() compiles a grammar, which may take long.
bool needs_grammar(const api::GenerationRequest& request);

struct PreparedEmbedding {
  api::EmbeddingRequest request;
  std::vector<PromptTokens> prompts;
};
PreparedEmbedding prepare(api::EmbeddingRequest request, const ServedModel& model);

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
  Headers headers;               ///< of every answer
  std::function<void()> on_end;  ///< the answer is complete or given up
};

/// Has the call submit what it needs and begin to answer; cancels what it submitted when the engine refuses.
template <typename Call>
std::shared_ptr<Call> started(std::shared_ptr<Call> call) {
  try {
    call->start();
  } catch (...) {
    call->cancel();
    throw;
  }
  return call;
}

/// Submits and begins to answer. Error when the engine refuses; then nothing was sent.
std::shared_ptr<Call> start_completion(PreparedRequest request, CallContext context,
                                       std::shared_ptr<HttpResponse> response);
std::shared_ptr<Call> start_embedding(PreparedEmbedding request, CallContext context,
                                      std::shared_ptr<HttpResponse> response);

/// Answers with an error as the endpoint's API has it, Retry-After and the like among the headers.
void send_error(HttpResponse& response, const Error& error, api::Endpoint endpoint, Headers headers = {});

}  // namespace millrace::server
