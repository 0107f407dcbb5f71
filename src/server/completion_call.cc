// Answers on their way: events of the engine become text, tool calls and reasoning, and those what the API
// sends. Everything of a call runs on its connection's strand; the engine only posts there that something is
// ready. While the client takes nothing, nothing is taken from the engine, which then pauses the request by
// itself.

#include <nlohmann/json.hpp>

#include "api/answer.h"
#include "core/utf8.h"
#include "server/call.h"
#include "text/stop_strings.h"

namespace millrace::server {

using api::ChunkExtras;
using api::OutputEvent;
using engine::Event;

namespace {

constexpr size_t kMostPending = 256 << 10;  // bytes written to a client that has not taken them

/// Watches an answer's text for stop strings on the engine's thread.
class StopWatcher : public engine::TokenWatcher {
 public:
  StopWatcher(const text::Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : decoder_(tokenizer, true), stops_(stops) {
    decoder_.set_at_start(false);
  }
  bool push(engine::TokenId token) override {
    stops_.push(decoder_.push(token));
    return stops_.matched() >= 0;
  }
  std::unique_ptr<engine::TokenWatcher> fork() const override { return std::make_unique<StopWatcher>(*this); }

 private:
  text::StreamDecoder decoder_;
  text::StopStrings stops_;
};

/// One choice of the answer: its tokens become text, tool calls and reasoning.
struct Choice {
  Choice(const PreparedRequest& p, const CallContext& context, int32_t index)
      : decoder(*context.model->tokenizer, parses(p)), stops(p.request.stop, p.request.include_stop) {
    result.index = index;
    result.has_logprobs = p.request.sampling.logprobs >= 0;
    decoder.set_at_start(false);
    if (!parses(p)) return;
    api::ParserOptions options;
    options.tools = p.request.tools;
    options.starts_in_reasoning = p.starts_in_reasoning;
    const std::string unique = context.id.substr(context.id.find_first_of("-_") + 1);
    const char* prefix = p.request.endpoint == api::Endpoint::kAnthropic ? "toolu" : "call";
    options.make_id = [=](int call) { return fmt::format("{}_{}_{}_{}", prefix, unique, index, call); };
    parser = api::make_output_parser(p.format, options);
  }
  static bool parses(const PreparedRequest& p) {
    return p.request.endpoint != api::Endpoint::kCompletion &&
           (!p.request.tools.empty() || !p.format.reasoning.empty() || !p.format.dropped.empty() ||
            p.format.tools == api::ToolFormat::kHarmony);
  }

  api::ChoiceResult result;
  text::StreamDecoder decoder;
  text::StopStrings stops;
  std::unique_ptr<api::OutputParser> parser;
  int32_t reasoning_tokens = 0;

  // Streams: what the next chunk has beside its text.
  std::vector<api::TextLogprob> logprobs;
  std::vector<engine::TokenId> ids;
  size_t text_offset = 0;  ///< where the next token's text stands in the answer
  size_t sent_offset = 0;  ///< ... of the first of `logprobs`
};

class CompletionCall : public Call, public std::enable_shared_from_this<CompletionCall> {
 public:
  CompletionCall(PreparedRequest prepared, CallContext context, std::shared_ptr<HttpResponse> response)
      : p_(std::move(prepared)),
        r_(p_.request),
        context_(std::move(context)),
        response_(std::move(response)) {
    form_.endpoint = r_.endpoint;
    form_.info.id = context_.id;
    form_.info.model = context_.model->id;
    form_.info.created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    form_.include_usage = r_.include_usage;
    if (r_.stream) stream_ = api::make_answer_stream(form_);
  }

  void start() {
    for (size_t i = 0; i < p_.prompts.size(); ++i) {
      Part part;
      part.first_choice = static_cast<int32_t>(i) * r_.generation.n;
      part.generation = context_.model->engine->submit(engine_request(i));
      parts_.push_back(std::move(part));
      for (int32_t c = 0; c < r_.generation.n; ++c)
        choices_.emplace_back(p_, context_, static_cast<int32_t>(choices_.size()));
    }
    const std::weak_ptr<CompletionCall> weak = weak_from_this();
    response_->post([self = shared_from_this()] {
      self->response_->note("id", self->context_.id);
      self->response_->on_close([self] { self->give_up(); });
      self->response_->on_room([self] { self->pump(); });
      self->pump();
    });
    for (Part& part : parts_)
      part.generation->set_listener([weak, response = response_] {
        // Called on the engine's thread: only a note is left.
        response->post([weak] {
          if (const auto self = weak.lock()) self->pump();
        });
      });
  }

  void cancel() override {
    for (Part& part : parts_) part.generation->cancel();
  }

 private:
  struct Part {
    std::shared_ptr<engine::Generation> generation;
    int32_t first_choice = 0;
    bool done = false;
    engine::Timing timing;
  };

  engine::Request engine_request(size_t i) const {
    engine::Request request;
    request.prompt = p_.prompts[i].tokens;
    request.sampling = r_.sampling;
    // The same prompt twice in one request should not give the same answer twice.
    if (request.sampling.seed) *request.sampling.seed += i;
    request.generation = r_.generation;
    if (!r_.stop.empty())
      request.watcher = std::make_unique<StopWatcher>(*context_.model->tokenizer, r_.stop);
    if (p_.constraint) request.constraint = p_.constraint->fork();
    request.priority = r_.priority;
    request.deadline_seconds = static_cast<double>(r_.deadline_ms) / 1000;
    request.cache_salt = r_.cache_salt;
    request.tenant = context_.tenant;
    request.pin_prefix = r_.pin_prefix;
    return request;
  }

  Choice& choice(const Part& part, const Event& e) {
    return choices_[static_cast<size_t>(part.first_choice + e.choice)];
  }

  /// The client is gone.
  void give_up() {
    cancel();
    finish();
  }

  void finish() {
    if (finished_) return;
    finished_ = true;
    for (Part& part : parts_) part.generation->set_listener({});
    response_->on_room({});
    response_->on_close({});
    if (context_.on_end) context_.on_end();
  }

  void pump() {
    if (finished_) return;
    bool all_done = true;
    for (Part& part : parts_) {
      Event e;
      while (!part.done && !finished_ && response_->pending() < kMostPending && part.generation->try_next(e))
        take(part, e);
      if (finished_) return;
      all_done &= part.done;
    }
    flush();
    if (all_done) complete();
  }

  void take(Part& part, Event& e) {
    switch (e.kind) {
      case Event::Kind::kPrompt:
        return take_prompt(part, e);
      case Event::Kind::kToken:
        return take_token(choice(part, e), e);
      case Event::Kind::kFinish:
        return take_finish(choice(part, e), e);
      case Event::Kind::kDone:
        part.done = true;
        part.timing = e.timing;
        usage_.prompt_tokens += e.usage.prompt_tokens;
        usage_.cached_tokens += e.usage.cached_tokens;
        usage_.completion_tokens += e.usage.completion_tokens;
        return;
      case Event::Kind::kError:
        return take_error(Error(static_cast<ErrorCode>(e.error_code), e.error));
      case Event::Kind::kEmbedding:
        return;
    }
  }

  void take_error(const Error& error) {
    cancel();
    if (!begun_) {
      send_error(*response_, error, r_.endpoint, context_.headers);
    } else {
      stream_->fail(error, out_);
      flush();
      response_->end();
    }
    finish();
  }

  // ---- tokens to text

  api::TextLogprob logprob_of(engine::TokenId token, float logprob,
                              std::span<const engine::TokenLogprob> top) const {
    const text::Tokenizer& t = *context_.model->tokenizer;
    api::TextLogprob entry;
    entry.text = t.piece(token, true);
    entry.logprob = logprob;
    for (const auto& x : top) entry.top.emplace_back(t.piece(x.token, true), x.logprob);
    return entry;
  }

  void add_logprob(Choice& c, api::TextLogprob entry) {
    if (c.logprobs.empty()) c.sent_offset = c.text_offset;
    c.text_offset += entry.text.size();
    (r_.stream ? c.logprobs : c.result.logprobs).push_back(std::move(entry));
  }

  void take_prompt(Part& part, Event& e) {
    if (r_.stream) begin(e.usage);
    if (r_.sampling.prompt_logprobs >= 0 && !(r_.echo && r_.logprobs)) keep_prompt_logprobs(part, e);
    if (!r_.echo) return;
    const PromptTokens& prompt = p_.prompts[static_cast<size_t>(part.first_choice / r_.generation.n)];
    for (int32_t i = 0; i < r_.generation.n; ++i) {
      Choice& c = choices_[static_cast<size_t>(part.first_choice + i)];
      if (r_.sampling.logprobs >= 0)
        for (size_t t = 0; t < e.prompt_logprobs.size(); ++t) {
          const std::span<const engine::TokenLogprob> entry = e.prompt_logprobs[t];
          api::TextLogprob x = entry.empty()
                                   ? logprob_of(prompt.tokens[t], 0, {})
                                   : logprob_of(prompt.tokens[t], entry[0].logprob, entry.subspan(1));
          x.known = !entry.empty();
          add_logprob(c, std::move(x));
        }
      OutputEvent event;
      event.text = prompt.text;
      show(c, event);
    }
  }

  void keep_prompt_logprobs(const Part& part, const Event& e) {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& entry : e.prompt_logprobs) {
      nlohmann::json map;
      for (const auto& x : entry)
        map[std::to_string(x.token)] = {
            {"logprob", std::max(x.logprob, -9999.0f)},
            {"decoded_token", utf8::replace_invalid(context_.model->tokenizer->piece(x.token, true))}};
      all.push_back(std::move(map));
    }
    for (int32_t i = 0; i < r_.generation.n; ++i)
      choices_[static_cast<size_t>(part.first_choice + i)].result.prompt_logprobs = all.dump();
  }

  void take_token(Choice& c, const Event& e) {
    if (r_.sampling.logprobs >= 0) add_logprob(c, logprob_of(e.token, e.logprob, e.top));
    if (r_.token_ids) c.ids.push_back(e.token);
    const auto& ends = r_.generation.end_tokens;
    // With special tokens spelled out for the parser, the one that ends the answer is still no text.
    if (c.parser && std::find(ends.begin(), ends.end(), e.token) != ends.end()) return;
    const bool thinking = c.parser && c.parser->in_reasoning();
    push_text(c, c.stops.push(c.decoder.push(e.token)));
    c.reasoning_tokens += thinking || (c.parser && c.parser->in_reasoning());
  }

  void push_text(Choice& c, const std::string& text) {
    if (!c.parser) {
      OutputEvent event;
      event.text = text;
      return show(c, event);
    }
    if (text.empty()) return;
    std::vector<OutputEvent> events;
    c.parser->push(text, events);
    for (const OutputEvent& event : events) show(c, event);
  }

  void take_finish(Choice& c, const Event& e) {
    if (c.stops.matched() < 0) {
      push_text(c, c.stops.push(c.decoder.finish()));
      push_text(c, c.stops.finish());
    }
    if (c.parser) {
      std::vector<OutputEvent> events;
      c.parser->finish(events);
      for (const OutputEvent& event : events) show(c, event);
    }
    c.result.finish_reason = engine::finish_reason_name(e.finish_reason);
    if (!c.result.tool_calls.empty() && e.finish_reason == engine::FinishReason::kStop)
      c.result.finish_reason = "tool_calls";
    if (c.stops.matched() >= 0)
      c.result.stop_string = r_.stop[static_cast<size_t>(c.stops.matched())];
    else if (e.stop_token &&
             std::find(r_.generation.stop_token_ids.begin(), r_.generation.stop_token_ids.end(),
                       *e.stop_token) != r_.generation.stop_token_ids.end())
      c.result.stop_token = e.stop_token;
    if (r_.stream)
      stream_->end_choice(c.result, extras(c), out_);
    else if (r_.token_ids)
      c.result.token_ids = std::move(c.ids);
    c.logprobs.clear();
    c.ids.clear();
  }

  /// A part of the answer that is certain.
  void show(Choice& c, const OutputEvent& e) {
    using Kind = OutputEvent::Kind;
    if (e.kind == Kind::kReasoning && !r_.include_reasoning) return;
    if (e.kind == Kind::kToolCallBegin) c.result.tool_calls.push_back({e.id, e.name, ""});
    if (!r_.stream) {
      if (e.kind == Kind::kContent) c.result.text += e.text;
      if (e.kind == Kind::kReasoning) c.result.reasoning += e.text;
      if (e.kind == Kind::kToolArguments && !c.result.tool_calls.empty())
        c.result.tool_calls.back().arguments += e.text;
      return;
    }
    // Nothing to show yet; but every token's log-probability goes out with it.
    if (e.kind == Kind::kContent && e.text.empty() && c.logprobs.empty()) return;
    stream_->add(c.result.index, e, extras(c), out_);
    if (e.kind == Kind::kToolCallEnd) return;
    c.logprobs.clear();
    c.ids.clear();
  }

  ChunkExtras extras(const Choice& c) const {
    ChunkExtras extras;
    if (!c.logprobs.empty()) extras.logprobs = &c.logprobs;
    extras.text_offset = c.sent_offset;
    if (r_.token_ids) extras.token_ids = &c.ids;
    return extras;
  }

  // ---- going out

  void begin(const engine::Usage& usage) {
    if (begun_) return;
    begun_ = true;
    Headers headers = context_.headers;
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Request-Id", context_.id);
    response_->begin(200, "text/event-stream; charset=utf-8", std::move(headers));
    stream_->begin(usage, out_);
  }

  /// What came together leaves together.
  void flush() {
    if (out_.empty()) return;
    begin({});
    response_->write(std::exchange(out_, {}));
  }

  void complete() {
    count_goodput();
    int32_t reasoning = 0;
    for (const Choice& c : choices_) reasoning += c.reasoning_tokens;
    response_->note("prompt_tokens", std::to_string(usage_.prompt_tokens));
    response_->note("cached_tokens", std::to_string(usage_.cached_tokens));
    response_->note("completion_tokens", std::to_string(usage_.completion_tokens));
    response_->note("queued", fmt::format("{:.4f}", parts_[0].timing.queued));
    response_->note("ttft", fmt::format("{:.4f}", parts_[0].timing.first_token));
    response_->note("finish", choices_[0].result.finish_reason);
    if (r_.stream) {
      begin(usage_);
      stream_->end(usage_, reasoning, out_);
      flush();
      response_->end();
    } else {
      std::vector<api::ChoiceResult> results;
      for (Choice& c : choices_) results.push_back(std::move(c.result));
      Headers headers = context_.headers;
      headers.emplace_back("X-Request-Id", context_.id);
      response_->send(200, "application/json", api::whole_answer(form_, results, usage_, reasoning),
                      std::move(headers));
    }
    finish();
  }

  void count_goodput() {
    if (context_.goodput == nullptr) return;
    bool met = true;
    for (const Part& part : parts_) {
      const double decode = part.timing.total - part.timing.first_token;
      const int32_t tokens =
          usage_.completion_tokens / std::max<int32_t>(1, static_cast<int32_t>(choices_.size()));
      met &= part.timing.first_token <= context_.level.first_token_seconds;
      met &= tokens < 2 || decode / (tokens - 1) <= context_.level.token_seconds;
    }
    ++(met ? context_.goodput->met : context_.goodput->missed);
    if (met) context_.goodput->tokens_met += static_cast<uint64_t>(usage_.completion_tokens);
  }

  PreparedRequest p_;
  const api::GenerationRequest& r_;
  CallContext context_;
  std::shared_ptr<HttpResponse> response_;
  api::AnswerForm form_;
  std::unique_ptr<api::AnswerStream> stream_;
  std::string out_;  // bytes of the stream that have not been written yet
  std::vector<Part> parts_;
  std::vector<Choice> choices_;
  engine::Usage usage_;
  bool begun_ = false, finished_ = false;
};

}  // namespace

std::shared_ptr<Call> start_completion(PreparedRequest request, CallContext context,
                                       std::shared_ptr<HttpResponse> response) {
  return started(
      std::make_shared<CompletionCall>(std::move(request), std::move(context), std::move(response)));
}

void send_error(HttpResponse& response, const Error& error, api::Endpoint endpoint, Headers headers) {
  const int status = api::http_status(error);
  if (status == 503 || status == 429) headers.emplace_back("Retry-After", "1");
  if (status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  response.note("error", error.what());
  response.send(status, "application/json", api::error_body(endpoint, error), std::move(headers));
}

}  // namespace millrace::server
