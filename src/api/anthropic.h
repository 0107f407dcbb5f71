// Anthropic's Messages API on the same core: body of /v1/messages to a request, results to its body and
// stream events. Unknown members are refused as in openai.h; metadata, service_tier and cache_control are
// accepted and ignored.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/openai.h"
#include "api/request.h"

namespace millrace::api {

/// Errors: ApiError naming the parameter.
GenerationRequest parse_anthropic_request(std::string_view body, const SchemaLimits& limits = {});

/// "end_turn", "max_tokens", "stop_sequence", "tool_use" from OpenAI's finish reason.
const char* anthropic_stop_reason(std::string_view finish_reason, bool by_stop_string);

std::string anthropic_response(const ResponseInfo& info, const ChoiceResult& answer,
                               const engine::Usage& usage, const std::string& stop_string);

/// The events of a streamed message, in order; each entry is (event name, JSON).
class AnthropicStream {
 public:
  explicit AnthropicStream(ResponseInfo info) : info_(std::move(info)) {}
  using Events = std::vector<std::pair<std::string, std::string>>;
  void begin(int32_t prompt_tokens, Events& out);
  void add(const OutputEvent& event, Events& out);
  void finish(std::string_view finish_reason, const std::string& stop_string, const engine::Usage& usage,
              Events& out);
  static void fail(const Error& error, Events& out);

 private:
  enum class Block { kNone, kText, kThinking, kTool };
  void open(Block block, const OutputEvent& event, Events& out);
  void close(Events& out);

  ResponseInfo info_;
  Block block_ = Block::kNone;
  int index_ = -1;
};

}  // namespace millrace::api
