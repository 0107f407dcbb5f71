#include "api/answer.h"

#include "api/anthropic.h"

namespace millrace::api {

namespace {

void data_line(const std::string& json, std::string& out) { out += "data: " + json + "\n\n"; }

void named_events(const std::vector<std::pair<std::string, std::string>>& events, std::string& out) {
  for (const auto& [name, json] : events) out += fmt::format("event: {}\ndata: {}\n\n", name, json);
}

/// /v1/chat/completions and /v1/completions.
class OpenAiAnswer : public AnswerStream {
 public:
  explicit OpenAiAnswer(AnswerForm form) : form_(std::move(form)) {}

  void begin(const engine::Usage&, std::string&) override {}

  void add(int choice, const OutputEvent& event, const ChunkExtras& given, std::string& out) override {
    ChunkExtras extras = given;
    extras.usage_comes = form_.include_usage;
    if (form_.endpoint == Endpoint::kCompletion)
      return data_line(completion_chunk(form_.info, choice, event.text, extras), out);
    say_role(choice, out);
    const std::string chunk = chat_chunk(form_.info, choice, event, extras);
    if (!chunk.empty()) data_line(chunk, out);
  }

  void end_choice(const ChoiceResult& result, const ChunkExtras& given, std::string& out) override {
    ChunkExtras extras = given;
    extras.usage_comes = form_.include_usage;
    if (form_.endpoint == Endpoint::kCompletion)
      return data_line(completion_chunk_end(form_.info, result, extras), out);
    say_role(result.index, out);
    data_line(chat_chunk_end(form_.info, result, extras), out);
  }

  void end(const engine::Usage& usage, int32_t reasoning_tokens, std::string& out) override {
    if (form_.include_usage)
      data_line(form_.endpoint == Endpoint::kCompletion
                    ? completion_chunk_usage(form_.info, usage)
                    : chat_chunk_usage(form_.info, usage, reasoning_tokens),
                out);
    out += "data: [DONE]\n\n";
  }

  void fail(const Error& error, std::string& out) override {
    data_line(openai_error_body(error), out);
    out += "data: [DONE]\n\n";
  }

 private:
  /// A choice of a chat begins with a chunk of its own.
  void say_role(int choice, std::string& out) {
    const auto index = static_cast<size_t>(choice);
    if (index >= begun_.size()) begun_.resize(index + 1);
    if (begun_[index]) return;
    begun_[index] = true;
    ChunkExtras extras;
    extras.usage_comes = form_.include_usage;
    data_line(chat_chunk_begin(form_.info, choice, extras), out);
  }

  AnswerForm form_;
  std::vector<bool> begun_;
};

class ResponsesAnswer : public AnswerStream {
 public:
  explicit ResponsesAnswer(const AnswerForm& form) : stream_(form.info) {}

  void begin(const engine::Usage&, std::string& out) override {
    ResponsesStream::Events events;
    stream_.begin(events);
    named_events(events, out);
  }
  void add(int, const OutputEvent& event, const ChunkExtras&, std::string& out) override {
    if (event.kind == OutputEvent::Kind::kContent && event.text.empty()) return;
    ResponsesStream::Events events;
    stream_.add(event, events);
    named_events(events, out);
  }
  void end_choice(const ChoiceResult& result, const ChunkExtras&, std::string&) override {
    finish_reason_ = result.finish_reason;
  }
  void end(const engine::Usage& usage, int32_t reasoning_tokens, std::string& out) override {
    ResponsesStream::Events events;
    stream_.finish(finish_reason_, usage, events, reasoning_tokens);
    named_events(events, out);
  }
  void fail(const Error& error, std::string& out) override {
    ResponsesStream::Events events;
    stream_.fail(error, events);
    named_events(events, out);
  }

 private:
  ResponsesStream stream_;
  std::string finish_reason_;
};

class AnthropicAnswer : public AnswerStream {
 public:
  explicit AnthropicAnswer(const AnswerForm& form) : stream_(form.info) {}

  void begin(const engine::Usage& usage, std::string& out) override {
    AnthropicStream::Events events;
    stream_.begin(usage.prompt_tokens, events);
    named_events(events, out);
  }
  void add(int, const OutputEvent& event, const ChunkExtras&, std::string& out) override {
    if (event.kind == OutputEvent::Kind::kContent && event.text.empty()) return;
    AnthropicStream::Events events;
    stream_.add(event, events);
    named_events(events, out);
  }
  void end_choice(const ChoiceResult& result, const ChunkExtras&, std::string&) override {
    finish_reason_ = result.finish_reason;
    stop_string_ = result.stop_string;
  }
  void end(const engine::Usage& usage, int32_t, std::string& out) override {
    AnthropicStream::Events events;
    stream_.finish(finish_reason_, stop_string_, usage, events);
    named_events(events, out);
  }
  void fail(const Error& error, std::string& out) override {
    AnthropicStream::Events events;
    AnthropicStream::fail(error, events);
    named_events(events, out);
  }

 private:
  AnthropicStream stream_;
  std::string finish_reason_, stop_string_;
};

}  // namespace

std::string whole_answer(const AnswerForm& form, const std::vector<ChoiceResult>& choices,
                         const engine::Usage& usage, int32_t reasoning_tokens) {
  switch (form.endpoint) {
    case Endpoint::kChat:
      return chat_response(form.info, choices, usage, reasoning_tokens);
    case Endpoint::kCompletion:
      return completion_response(form.info, choices, usage);
    case Endpoint::kResponses:
      return responses_response(form.info, choices.at(0), usage,
                                responses_status(choices.at(0).finish_reason), reasoning_tokens);
    case Endpoint::kAnthropic:
      return anthropic_response(form.info, choices.at(0), usage, choices.at(0).stop_string);
  }
  return "";
}

std::unique_ptr<AnswerStream> make_answer_stream(const AnswerForm& form) {
  if (form.endpoint == Endpoint::kResponses) return std::make_unique<ResponsesAnswer>(form);
  if (form.endpoint == Endpoint::kAnthropic) return std::make_unique<AnthropicAnswer>(form);
  return std::make_unique<OpenAiAnswer>(form);
}

std::string error_body(Endpoint endpoint, const Error& error) {
  return endpoint == Endpoint::kAnthropic ? anthropic_error_body(error) : openai_error_body(error);
}

}  // namespace millrace::api
