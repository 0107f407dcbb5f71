// How an answer goes out, for all APIs alike: whole, or piece by piece as server-sent events.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/openai.h"
#include "api/request.h"

namespace millrace::api {

struct AnswerForm {
  Endpoint endpoint = Endpoint::kChat;
  ResponseInfo info;
  bool include_usage = false;  ///< streams of OpenAI's: a last chunk with usage
};

/// The body of a whole answer.
std::string whole_answer(const AnswerForm& form, const std::vector<ChoiceResult>& choices,
                         const engine::Usage& usage, int32_t reasoning_tokens);

/// An answer that streams. Every call adds the bytes of its events to `out`.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  /// The prompt has been read; `usage` has its part.
  virtual void begin(const engine::Usage& usage, std::string& out) = 0;
  /// A part of an answer. Text of completions comes as content.
  virtual void add(int choice, const OutputEvent& event, const ChunkExtras& extras, std::string& out) = 0;
  /// `result` says what ended it; `extras` has what no event has carried.
  virtual void end_choice(const ChoiceResult& result, const ChunkExtras& extras, std::string& out) = 0;
  virtual void end(const engine::Usage& usage, int32_t reasoning_tokens, std::string& out) = 0;
  /// Instead of what would still come.
  virtual void fail(const Error& error, std::string& out) = 0;
};

std::unique_ptr<AnswerStream> make_answer_stream(const AnswerForm& form);

/// The body of an error as the endpoint's API has it.
std::string error_body(Endpoint endpoint, const Error& error);

}  // namespace millrace::api
