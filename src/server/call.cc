// Answers on their way: events of the engine become OpenAI's JSON, whole or as server-sent events. Everything
// of a call runs on its connection's strand; the engine only posts there that something is ready. While the
// client takes nothing, nothing is taken from the engine, which then pauses the request by itself.

#include "server/call.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "server/errors.h"
#include "text/stop_strings.h"

namespace millrace::server {

using engine::Event;
using nlohmann::json;

namespace {

constexpr size_t kMostPending = 256 << 10;  // bytes written to a client that has not taken them

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

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

const char* reason_name(engine::FinishReason reason) {
  return reason == engine::FinishReason::kNone ? nullptr : engine::finish_reason_name(reason);
}

json usage_json(const engine::Usage& u) {
  return {{"prompt_tokens", u.prompt_tokens},
          {"completion_tokens", u.completion_tokens},
          {"total_tokens", u.prompt_tokens + u.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", u.cached_tokens}}}};
}

/// One choice of the answer: its tokens become text, tool calls and reasoning.
struct Choice {
  Choice(const CompletionRequest& r, const ServedModel& model, int32_t index)
      : index(index), decoder(*model.tokenizer, parses(r, model)), stops(r.stops, r.include_stop) {
    decoder.set_at_start(false);
    if (!parses(r, model)) return;
    api::ParserOptions options;
    options.tools = r.tools;
    options.starts_in_reasoning = r.starts_in_reasoning;
    parser = api::make_output_parser(model.format, options);
  }
  static bool parses(const CompletionRequest& r, const ServedModel& model) {
    return r.chat && (!r.tools.empty() || !model.format.reasoning.empty() || !model.format.dropped.empty());
  }

  int32_t index;
  text::StreamDecoder decoder;
  text::StopStrings stops;
  std::unique_ptr<api::OutputParser> parser;

  // The whole answer, when it is not streamed.
  std::string content, reasoning;
  struct ToolCall {
    std::string id, name, arguments;
  };
  std::vector<ToolCall> tool_calls;
  json logprobs = json::array();  // entries not sent yet (all, when not streamed)
  std::vector<int32_t> tokens;
  json finish_reason;
  json stop_reason;
  int64_t text_offset = 0;
  bool role_sent = false;
};

class CompletionCall : public Call, public std::enable_shared_from_this<CompletionCall> {
 public:
  CompletionCall(CompletionRequest request, CallContext context, std::shared_ptr<HttpResponse> response)
      : r_(std::move(request)),
        context_(std::move(context)),
        response_(std::move(response)),
        created_(std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  void start() {
    for (size_t i = 0; i < r_.prompts.size(); ++i) {
      engine::Request request;
      request.prompt = r_.prompts[i].tokens;
      request.sampling = r_.sampling;
      // The same prompt twice in one request should not give the same answer twice.
      if (request.sampling.seed) *request.sampling.seed += i;
      request.generation = r_.generation;
      if (r_.generation.max_tokens == 0 && !r_.echo)
        throw ApiError(400, "'max_tokens' is 0, which needs 'echo' to be true", "max_tokens");
      if (!r_.stops.empty())
        request.watcher = std::make_unique<StopWatcher>(*context_.model->tokenizer, r_.stops);
      request.priority = r_.priority;
      request.deadline_seconds = r_.deadline_seconds;
      request.cache_salt = r_.cache_salt;
      request.tenant = context_.tenant;
      request.pin_prefix = r_.pin_prefix;
      Part part;
      part.first_choice = static_cast<int32_t>(i) * r_.generation.n;
      part.generation = context_.model->engine->submit(std::move(request));
      parts_.push_back(std::move(part));
      for (int32_t c = 0; c < r_.generation.n; ++c)
        choices_.emplace_back(r_, *context_.model, static_cast<int32_t>(choices_.size()));
    }
    const std::weak_ptr<CompletionCall> weak = weak_from_this();
    response_->post([self = shared_from_this()] {
      self->response_->on_close([self] { self->give_up(); });
      self->response_->on_room([self] { self->pump(); });
      self->pump();
    });
    for (Part& p : parts_)
      p.generation->set_listener([weak, response = response_] {
        // Called on the engine's thread: only a note is left.
        response->post([weak] {
          if (const auto self = weak.lock()) self->pump();
        });
      });
  }

  void cancel() override {
    for (Part& p : parts_) p.generation->cancel();
  }

 private:
  struct Part {
    std::shared_ptr<engine::Generation> generation;
    int32_t first_choice = 0;
    bool done = false;
    engine::Timing timing;
  };

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
    for (Part& p : parts_) p.generation->set_listener({});
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
    if (!all_done) return;
    complete();
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
        return take_error(e);
      case Event::Kind::kEmbedding:
        return;
    }
  }

  void take_error(const Event& e) {
    cancel();
    const ApiError error(Error(static_cast<ErrorCode>(e.error_code), e.error));
    if (!begun_) {
      Headers headers;
      if (error.status == 503 || error.status == 429) headers.emplace_back("Retry-After", "1");
      response_->send(error.status, "application/json",
                      error_body(error.status, error.message, "", error.code), headers);
    } else {
      response_->write("data: " + error_body(error.status, error.message, "", error.code) +
                       "\n\ndata: [DONE]\n\n");
      response_->end();
    }
    finish();
  }

  // ---- tokens to text

  json logprob_entry(int32_t token, float logprob, const std::vector<engine::TokenLogprob>& top, Choice& c) {
    const text::Tokenizer& t = *context_.model->tokenizer;
    const auto named = [&](int32_t id, float value) {
      const std::string piece = t.piece(id, true);
      json bytes = json::array();
      for (const char b : piece) bytes.push_back(static_cast<uint8_t>(b));
      return json{
          {"token", utf8::replace_invalid(piece)}, {"logprob", std::max(value, -9999.0f)}, {"bytes", bytes}};
    };
    json entry = named(token, logprob);
    if (r_.chat) {
      entry["top_logprobs"] = json::array();
      for (const auto& x : top) entry["top_logprobs"].push_back(named(x.token, x.logprob));
    } else {
      // The older form has no bytes, but the place in the text.
      json map = json::object();
      for (const auto& x : top)
        map[utf8::replace_invalid(t.piece(x.token, true))] = std::max(x.logprob, -9999.0f);
      entry["top"] = std::move(map);
      entry["offset"] = c.text_offset;
      c.text_offset += static_cast<int64_t>(entry["token"].get_ref<const std::string&>().size());
    }
    return entry;
  }

  void take_prompt(Part& part, Event& e) {
    if (r_.stream && !begun_) begin();
    if (!r_.echo) {
      if (r_.sampling.prompt_logprobs >= 0) keep_prompt_logprobs(part, e);
      return;
    }
    for (int32_t i = 0; i < r_.generation.n; ++i) {
      Choice& c = choices_[static_cast<size_t>(part.first_choice + i)];
      const size_t index = static_cast<size_t>(part.first_choice / r_.generation.n);
      if (r_.sampling.logprobs >= 0)
        for (size_t t = 0; t < e.prompt_logprobs.size(); ++t) {
          const auto& entry = e.prompt_logprobs[t];
          const int32_t token = r_.prompts[index].tokens[t];
          json j =
              logprob_entry(token, entry.empty() ? 0 : entry[0].logprob,
                            entry.empty() ? std::vector<engine::TokenLogprob>{}
                                          : std::vector<engine::TokenLogprob>(entry.begin() + 1, entry.end()),
                            c);
          if (entry.empty()) j["logprob"] = j["top"] = nullptr;
          c.logprobs.push_back(std::move(j));
        }
      show(c, r_.prompts[index].text);
    }
  }

  void keep_prompt_logprobs(const Part& part, const Event& e) {
    json all = json::array();
    for (const auto& entry : e.prompt_logprobs) {
      if (entry.empty()) {
        all.push_back(nullptr);
        continue;
      }
      json map = json::object();
      for (const auto& x : entry)
        map[std::to_string(x.token)] = {
            {"logprob", x.logprob},
            {"decoded_token", utf8::replace_invalid(context_.model->tokenizer->piece(x.token, true))}};
      all.push_back(std::move(map));
    }
    prompt_logprobs_[part.first_choice] = std::move(all);
  }

  void take_token(Choice& c, const Event& e) {
    if (r_.sampling.logprobs >= 0) c.logprobs.push_back(logprob_entry(e.token, e.logprob, e.top, c));
    if (r_.token_ids || !r_.stream) c.tokens.push_back(e.token);
    const auto& ends = r_.generation.end_tokens;
    // With special tokens spelled out for the parser, the one that ends the answer is still no text.
    if (c.parser && std::find(ends.begin(), ends.end(), e.token) != ends.end()) return;
    push_text(c, c.stops.push(c.decoder.push(e.token)));
  }

  void push_text(Choice& c, const std::string& text) {
    if (!c.parser) return show(c, text);
    if (text.empty()) return show(c, "");
    std::vector<api::OutputEvent> events;
    c.parser->push(text, events);
    for (const api::OutputEvent& e : events) show(c, e);
  }

  void take_finish(Choice& c, const Event& e) {
    if (c.stops.matched() < 0) {
      push_text(c, c.stops.push(c.decoder.finish()));
      push_text(c, c.stops.finish());
    }
    if (c.parser) {
      std::vector<api::OutputEvent> events;
      c.parser->finish(events);
      for (const api::OutputEvent& x : events) show(c, x);
    }
    const char* reason = reason_name(e.finish_reason);
    if (!c.tool_calls.empty() && e.finish_reason == engine::FinishReason::kStop) reason = "tool_calls";
    c.finish_reason = reason ? json(reason) : json(nullptr);
    if (c.stops.matched() >= 0)
      c.stop_reason = r_.stops[static_cast<size_t>(c.stops.matched())];
    else if (e.stop_token)
      c.stop_reason = *e.stop_token;
    if (r_.stream) send_delta(c, json::object(), "", true);
  }

  /// Text of the answer that is certain.
  void show(Choice& c, const std::string& text) {
    if (!r_.stream) {
      c.content += text;
      return;
    }
    if (text.empty() && (c.logprobs.empty() || c.parser)) return;
    send_delta(c, {{"content", text}}, text, false);
  }

  void show(Choice& c, const api::OutputEvent& e) {
    using Kind = api::OutputEvent::Kind;
    switch (e.kind) {
      case Kind::kContent:
        return show(c, e.text);
      case Kind::kReasoning:
        c.reasoning += r_.stream ? "" : e.text;
        if (r_.stream) send_delta(c, {{"reasoning_content", e.text}}, "", false);
        return;
      case Kind::kToolCallBegin:
        c.tool_calls.push_back({e.id, e.name, ""});
        if (r_.stream)
          send_delta(c,
                     {{"tool_calls",
                       {{{"index", e.index},
                         {"id", e.id},
                         {"type", "function"},
                         {"function", {{"name", e.name}, {"arguments", ""}}}}}}},
                     "", false);
        return;
      case Kind::kToolArguments:
        if (!c.tool_calls.empty()) c.tool_calls.back().arguments += e.text;
        if (r_.stream)
          send_delta(c, {{"tool_calls", {{{"index", e.index}, {"function", {{"arguments", e.text}}}}}}}, "",
                     false);
        return;
      case Kind::kToolCallEnd:
        return;
    }
  }

  // ---- JSON

  json envelope(const char* object) const {
    return {{"id", context_.id}, {"object", object}, {"created", created_}, {"model", context_.model->id}};
  }

  json logprobs_json(Choice& c) {
    if (r_.sampling.logprobs < 0) return nullptr;
    json entries = std::move(c.logprobs);
    c.logprobs = json::array();
    if (r_.chat) return {{"content", std::move(entries)}, {"refusal", nullptr}};
    json out = {{"tokens", json::array()},
                {"token_logprobs", json::array()},
                {"top_logprobs", json::array()},
                {"text_offset", json::array()}};
    for (json& e : entries) {
      out["tokens"].push_back(e["token"]);
      out["token_logprobs"].push_back(e["logprob"]);
      out["top_logprobs"].push_back(e["top"]);
      out["text_offset"].push_back(e["offset"]);
    }
    return out;
  }

  void begin() {
    begun_ = true;
    response_->begin(200, "text/event-stream; charset=utf-8",
                     {{"Cache-Control", "no-cache"}, {"X-Request-Id", context_.id}});
  }

  void send_event(const json& value) {
    if (!begun_) begin();
    response_->write("data: " + dump(value) + "\n\n");
  }

  void send_delta(Choice& c, json delta, const std::string& text, bool last) {
    json out = envelope(r_.chat ? "chat.completion.chunk" : "text_completion");
    json choice = {{"index", c.index}, {"finish_reason", last ? c.finish_reason : json(nullptr)}};
    choice["logprobs"] = c.logprobs.empty() ? json(nullptr) : logprobs_json(c);
    if (r_.chat) {
      if (!c.role_sent) {
        c.role_sent = true;
        json first = out;
        first["choices"] = {{{"index", c.index},
                             {"delta", {{"role", "assistant"}, {"content", ""}}},
                             {"logprobs", nullptr},
                             {"finish_reason", nullptr}}};
        if (r_.include_usage) first["usage"] = nullptr;
        send_event(first);
      }
      choice["delta"] = std::move(delta);
    } else {
      choice["text"] = text;
    }
    if (last && !c.stop_reason.is_null()) choice["stop_reason"] = c.stop_reason;
    if (r_.token_ids) {
      choice["token_ids"] = c.tokens;
      c.tokens.clear();
    }
    out["choices"] = json::array({std::move(choice)});
    if (r_.include_usage) out["usage"] = nullptr;
    send_event(out);
  }

  json whole_choice(Choice& c) {
    json choice = {{"index", c.index}, {"finish_reason", c.finish_reason}, {"logprobs", logprobs_json(c)}};
    if (!c.stop_reason.is_null()) choice["stop_reason"] = c.stop_reason;
    if (r_.token_ids) choice["token_ids"] = c.tokens;
    const auto prompt = prompt_logprobs_.find(c.index / r_.generation.n * r_.generation.n);
    if (prompt != prompt_logprobs_.end()) choice["prompt_logprobs"] = prompt->second;
    if (!r_.chat) {
      choice["text"] = c.content;
      return choice;
    }
    json message = {{"role", "assistant"}, {"content", c.content}, {"refusal", nullptr}};
    if (!c.reasoning.empty()) message["reasoning_content"] = c.reasoning;
    if (!c.tool_calls.empty()) {
      if (c.content.empty()) message["content"] = nullptr;
      message["tool_calls"] = json::array();
      for (const auto& t : c.tool_calls)
        message["tool_calls"].push_back({{"id", t.id},
                                         {"type", "function"},
                                         {"function", {{"name", t.name}, {"arguments", t.arguments}}}});
    }
    choice["message"] = std::move(message);
    return choice;
  }

  void complete() {
    count_goodput();
    response_->note("prompt_tokens", std::to_string(usage_.prompt_tokens));
    response_->note("cached_tokens", std::to_string(usage_.cached_tokens));
    response_->note("completion_tokens", std::to_string(usage_.completion_tokens));
    response_->note("ttft", fmt::format("{:.4f}", parts_[0].timing.first_token));
    if (r_.stream) {
      if (r_.include_usage) {
        json out = envelope(r_.chat ? "chat.completion.chunk" : "text_completion");
        out["choices"] = json::array();
        out["usage"] = usage_json(usage_);
        send_event(out);
      }
      if (!begun_) begin();
      response_->write("data: [DONE]\n\n");
      response_->end();
    } else {
      json out = envelope(r_.chat ? "chat.completion" : "text_completion");
      out["choices"] = json::array();
      for (Choice& c : choices_) out["choices"].push_back(whole_choice(c));
      out["usage"] = usage_json(usage_);
      response_->send(200, "application/json", dump(out), {{"X-Request-Id", context_.id}});
    }
    finish();
  }

  void count_goodput() {
    if (context_.goodput == nullptr) return;
    bool met = true;
    for (const Part& p : parts_) {
      const double decode = p.timing.total - p.timing.first_token;
      const int32_t tokens =
          usage_.completion_tokens / std::max<int32_t>(1, static_cast<int32_t>(choices_.size()));
      met &= p.timing.first_token <= context_.level.first_token_seconds;
      met &= tokens < 2 || decode / (tokens - 1) <= context_.level.token_seconds;
    }
    ++(met ? context_.goodput->met : context_.goodput->missed);
    if (met) context_.goodput->tokens_met += static_cast<uint64_t>(usage_.completion_tokens);
  }

  CompletionRequest r_;
  CallContext context_;
  std::shared_ptr<HttpResponse> response_;
  int64_t created_;
  std::vector<Part> parts_;
  std::vector<Choice> choices_;
  std::map<int32_t, json> prompt_logprobs_;  // by the prompt's first choice
  engine::Usage usage_;
  bool begun_ = false, finished_ = false;
};

// ---- embeddings

std::string base64(const std::vector<float>& values) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j)
      word = word << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? kDigits[word >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

class EmbeddingCall : public Call, public std::enable_shared_from_this<EmbeddingCall> {
 public:
  EmbeddingCall(EmbeddingRequest request, CallContext context, std::shared_ptr<HttpResponse> response)
      : r_(std::move(request)), context_(std::move(context)), response_(std::move(response)) {}

  void start() {
    for (const Prompt& p : r_.prompts) {
      engine::Request request;
      request.task = engine::Task::kEmbed;
      request.prompt = p.tokens;
      request.pooling = r_.pooling;
      request.tenant = context_.tenant;
      parts_.push_back(context_.model->engine->submit(std::move(request)));
    }
    vectors_.resize(parts_.size());
    response_->post([self = shared_from_this()] {
      self->response_->on_close([self] {
        self->cancel();
        self->finish();
      });
      self->pump();
    });
    const std::weak_ptr<EmbeddingCall> weak = weak_from_this();
    for (const auto& p : parts_)
      p->set_listener([weak, response = response_] {
        response->post([weak] {
          if (const auto self = weak.lock()) self->pump();
        });
      });
  }

  void cancel() override {
    for (const auto& p : parts_) p->cancel();
  }

 private:
  void finish() {
    if (finished_) return;
    finished_ = true;
    for (const auto& p : parts_) p->set_listener({});
    response_->on_close({});
    if (context_.on_end) context_.on_end();
  }

  void pump() {
    Event e;
    for (size_t i = 0; i < parts_.size() && !finished_; ++i)
      while (!finished_ && parts_[i]->try_next(e)) {
        if (e.kind == Event::Kind::kEmbedding) vectors_[i] = std::move(e.embedding);
        if (e.kind == Event::Kind::kDone) {
          ++done_;
          tokens_ += e.usage.prompt_tokens;
        }
        if (e.kind == Event::Kind::kError) {
          cancel();
          const ApiError error(Error(static_cast<ErrorCode>(e.error_code), e.error));
          response_->send(error.status, "application/json",
                          error_body(error.status, error.message, "", error.code));
          finish();
        }
      }
    if (finished_ || done_ < parts_.size()) return;
    json data = json::array();
    for (size_t i = 0; i < vectors_.size(); ++i) {
      std::vector<float>& v = vectors_[i];
      if (r_.dimensions < static_cast<int32_t>(v.size())) shorten(v);
      data.push_back(
          {{"object", "embedding"}, {"index", i}, {"embedding", r_.base64 ? json(base64(v)) : json(v)}});
    }
    const json out = {{"object", "list"},
                      {"model", context_.model->id},
                      {"data", std::move(data)},
                      {"usage", {{"prompt_tokens", tokens_}, {"total_tokens", tokens_}}}};
    response_->send(200, "application/json", dump(out));
    finish();
  }

  /// The first components, of unit length again.
  void shorten(std::vector<float>& v) const {
    v.resize(static_cast<size_t>(r_.dimensions));
    double square = 0;
    for (const float x : v) square += static_cast<double>(x) * static_cast<double>(x);
    if (square > 0)
      for (float& x : v) x = static_cast<float>(x / std::sqrt(square));
  }

  EmbeddingRequest r_;
  CallContext context_;
  std::shared_ptr<HttpResponse> response_;
  std::vector<std::shared_ptr<engine::Generation>> parts_;
  std::vector<std::vector<float>> vectors_;
  size_t done_ = 0;
  int64_t tokens_ = 0;
  bool finished_ = false;
};

}  // namespace

std::shared_ptr<Call> start_completion(CompletionRequest request, CallContext context,
                                       std::shared_ptr<HttpResponse> response) {
  auto call = std::make_shared<CompletionCall>(std::move(request), std::move(context), std::move(response));
  try {
    call->start();
  } catch (...) {
    call->cancel();
    throw;
  }
  return call;
}

std::shared_ptr<Call> start_embedding(EmbeddingRequest request, CallContext context,
                                      std::shared_ptr<HttpResponse> response) {
  auto call = std::make_shared<EmbeddingCall>(std::move(request), std::move(context), std::move(response));
  try {
    call->start();
  } catch (...) {
    call->cancel();
    throw;
  }
  return call;
}

}  // namespace millrace::server
