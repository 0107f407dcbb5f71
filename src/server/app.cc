#include "server/app.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <unordered_map>

#include "api/answer.h"
#include "api/anthropic.h"
#include "api/fields.h"
#include "api/grammar_service.h"
#include "core/error.h"
#include "core/log.h"
#include "core/utf8.h"
#include "server/keys.h"
#include "server/metrics.h"

namespace millrace::server {

using api::ApiError;
using nlohmann::json;

namespace {

constexpr size_t kLongBody = 256 << 10;

using RequestPtr = std::shared_ptr<HttpRequest>;
using ResponsePtr = std::shared_ptr<HttpResponse>;

/// An error that a status says best.
ApiError http_error(int status, const std::string& message, const std::string& param = "",
                    const std::string& reason = "") {
  const ErrorCode code = status == 401   ? ErrorCode::kUnauthorized
                         : status == 404 ? ErrorCode::kNotFound
                         : status == 503 ? ErrorCode::kUnavailable
                         : status >= 500 ? ErrorCode::kInternal
                                         : ErrorCode::kInvalidArgument;
  return {code, message, param, reason, status};
}

/// Whose form errors have.
api::Endpoint endpoint_of(const std::string& path) {
  return path.rfind("/v1/messages", 0) == 0 ? api::Endpoint::kAnthropic : api::Endpoint::kChat;
}

/// A few threads that read requests, so that a long prompt never holds up a connection.
class Workers {
 public:
  explicit Workers(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { main(); });
  }
  ~Workers() { stop(); }
  /// Waits for what is being done; what waits is dropped.
  void stop() {
    std::deque<std::function<void()>> dropped;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      dropped.swap(queue_);
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  /// False when `limit` pieces of work are waiting, and after stop().
  bool add(std::function<void()> work, size_t limit) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || queue_.size() >= limit) return false;
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
    return true;
  }

 private:
  void main() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

struct App::State : std::enable_shared_from_this<App::State> {
  explicit State(AppOptions o)
      : options(std::move(o)),
        keys(options.api_key_file.empty() ? ApiKeys() : ApiKeys(options.api_key_file)),
        workers(options.worker_threads),
        slow_workers(options.slow_threads) {
    std::random_device device;
    ids.seed((static_cast<uint64_t>(device()) << 32) | device());
  }

  AppOptions options;
  ApiKeys keys;
  GoodputCounters goodput;
  std::atomic<bool> draining{false};
  std::atomic<const ServedModel*> model{nullptr};
  std::unique_ptr<ServedModel> model_storage;

  std::mutex mutex;
  std::mt19937_64 ids;
  struct Open {
    std::weak_ptr<Call> call;
    std::string tenant;
  };
  std::unordered_map<std::string, Open> open;  // answers on their way, by id

  std::unique_ptr<HttpServer> http;
  Workers workers, slow_workers;

  Headers headers(Headers more = {}) const {
    if (!options.allow_origin.empty()) more.emplace_back("Access-Control-Allow-Origin", options.allow_origin);
    return more;
  }

  void send_json(const ResponsePtr& r, const json& body, int status = 200) const {
    r->send(status, "application/json", body.dump(-1, ' ', false, json::error_handler_t::replace), headers());
  }

  const ServedModel& need_model() const {
    const ServedModel* m = model.load();
    if (m == nullptr)
      throw http_error(503, "the model is still being loaded: try again later", "", "loading");
    return *m;
  }

  /// Closes everything. Then nobody uses the model any more, nor holds the state: were a worker the last to
  /// let go of it, it would wait for itself.
  void stop() {
    http->stop();
    workers.stop();  // these hand on to the others
    slow_workers.stop();
  }

  void handle(const RequestPtr& request, const ResponsePtr& response) {
    guarded(request, response, [&] { route(request, response); });
  }

  /// Does the work; what it throws becomes the answer.
  template <typename Work>
  void guarded(const RequestPtr& request, const ResponsePtr& response, Work work) {
    const api::Endpoint endpoint = endpoint_of(request->path);
    try {
      work();
    } catch (const Error& e) {
      send_error(*response, e, endpoint, headers());
    } catch (const std::exception& e) {
      log::error("request failed", {{"path", request->path}, {"reason", e.what()}});
      send_error(*response, http_error(500, "the server made a mistake; its log has the reason"), endpoint,
                 headers());
    }
  }

  void route(const RequestPtr& request, const ResponsePtr& response) {
    const std::string& path = request->path;
    if (request->method == "OPTIONS") {
      Headers more = {{"Allow", "GET, POST, DELETE, OPTIONS"}};
      if (!options.allow_origin.empty()) {
        more.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
        more.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type");
      }
      return response->send(204, "", "", headers(std::move(more)));
    }
    // Those that load balancers and dashboards ask need no key.
    if (path == "/health" || path == "/ready" || path == "/version" || path == "/metrics")
      return get(request, [&] { open_page(path, response); });
    const std::string tenant = authorise(*request);
    if (const std::string* coding = request->header("content-encoding");
        coding != nullptr && *coding != "identity")
      throw http_error(415, fmt::format("a body in Content-Encoding '{}' is not understood: send it as it is",
                                        coding->substr(0, 40)));
    if (path == "/v1/models") return get(request, [&] { send_json(response, models_json()); });
    if (path.rfind("/v1/models/", 0) == 0)
      return get(request, [&] {
        if (path.substr(11) != need_model().id)
          throw http_error(404, fmt::format("The model '{}' does not exist", path.substr(11)), "model",
                           "model_not_found");
        send_json(response, model_json());
      });
    for (const char* prefix :
         {"/v1/chat/completions/", "/v1/completions/", "/v1/responses/", "/v1/messages/", "/v1/requests/"})
      if (request->method == "DELETE" && path.rfind(prefix, 0) == 0)
        return cancel(path.substr(std::string_view(prefix).size()), tenant, response);
    using Reader = void (State::*)(const RequestPtr&, const ResponsePtr&, const std::string&);
    static const std::unordered_map<std::string, Reader> kPosts = {
        {"/v1/chat/completions", &State::completion<Chat>},
        {"/v1/completions", &State::completion<Completion>},
        {"/v1/responses", &State::completion<Responses>},
        {"/v1/messages", &State::completion<Messages>},
        {"/v1/embeddings", &State::embedding},
        {"/tokenize", &State::tokenize},
        {"/detokenize", &State::detokenize},
    };
    const auto it = kPosts.find(path);
    if (it == kPosts.end())
      throw http_error(404, fmt::format("Unknown request URL: {} {}", request->method, path));
    if (request->method != "POST")
      throw http_error(405, fmt::format("{} is not allowed for {}: use POST", request->method, path));
    if (draining) throw http_error(503, "the server is shutting down and takes no new requests");
    // A body that is long to read holds up only others like it.
    Workers& lane = request->body.size() > kLongBody ? slow_workers : workers;
    const bool taken = lane.add(
        [self = shared_from_this(), request, response, tenant, reader = it->second] {
          self->guarded(request, response, [&] { ((*self).*reader)(request, response, tenant); });
        },
        static_cast<size_t>(options.max_reading));
    if (!taken) throw http_error(503, "too many requests are being read at once: try again later");
  }

  template <typename Work>
  void get(const RequestPtr& request, Work work) {
    if (request->method != "GET" && request->method != "HEAD")
      throw http_error(405, fmt::format("{} is not allowed for {}: use GET", request->method, request->path));
    work();
  }

  std::string authorise(const HttpRequest& request) const {
    if (!keys.required()) return "";
    const std::string* header = request.header("authorization");
    if (header == nullptr) header = request.header("x-api-key");
    if (header == nullptr)
      throw http_error(401, "You didn't provide an API key: send it as 'Authorization: Bearer KEY'", "",
                       "invalid_api_key");
    const auto tenant = keys.tenant_of(*header);
    if (!tenant) throw http_error(401, "Incorrect API key provided", "", "invalid_api_key");
    return *tenant;
  }

  void open_page(const std::string& path, const ResponsePtr& response) {
    if (path == "/health") return send_json(response, {{"status", "ok"}});
    if (path == "/version") return send_json(response, {{"version", options.version}});
    if (path == "/ready") {
      if (draining) throw http_error(503, "the server is shutting down");
      need_model();
      return send_json(response, {{"status", "ready"}});
    }
    const ServedModel* m = model.load();
    const engine::Stats stats = m != nullptr ? m->engine->stats() : engine::Stats();
    response->send(200, "text/plain; version=0.0.4; charset=utf-8",
                   prometheus_text(stats, http->counters(), goodput, m), headers());
  }

  json model_json() const {
    const ServedModel& m = need_model();
    return {{"id", m.id},
            {"object", "model"},
            {"created", m.created},
            {"owned_by", "millrace"},
            {"max_model_len", m.engine->max_context()}};
  }
  json models_json() const { return {{"object", "list"}, {"data", json::array({model_json()})}}; }

  // ---- completions

  CallContext make_context(const char* prefix, const std::string& tenant) {
    CallContext c;
    c.model = &need_model();
    c.tenant = tenant;
    c.level = options.level;
    c.goodput = &goodput;
    c.headers = headers();
    const std::lock_guard lock(mutex);
    // Whoever knows an id may cancel it, so it is not to be guessed.
    c.id = fmt::format("{}{:016x}{:08x}", prefix, ids(), static_cast<uint32_t>(ids()));
    open[c.id] = {{}, tenant};
    c.on_end = [weak = weak_from_this(), id = c.id] {
      if (const auto self = weak.lock()) {
        const std::lock_guard inner(self->mutex);
        self->open.erase(id);
      }
    };
    return c;
  }

  template <typename Start>
  void begin_call(CallContext context, Start start) {
    const std::string id = context.id;
    const auto forget = context.on_end;
    try {
      const std::shared_ptr<Call> call = start(std::move(context));
      const std::lock_guard lock(mutex);
      const auto it = open.find(id);
      if (it != open.end()) it->second.call = call;
    } catch (const Error& e) {
      forget();
      // A full queue is the client's to wait out; a server that goes down is another matter.
      if (e.code() == ErrorCode::kUnavailable && !draining) throw http_error(429, e.what(), "", "queue_full");
      throw;
    } catch (...) {
      forget();
      throw;
    }
  }

  // What each of the APIs calls its answers, and how it reads a body.
  struct Chat {
    static constexpr const char* kPrefix = "chatcmpl-";
    static constexpr auto kParse = api::parse_chat_request;
  };
  struct Completion {
    static constexpr const char* kPrefix = "cmpl-";
    static constexpr auto kParse = api::parse_completion_request;
  };
  struct Responses {
    static constexpr const char* kPrefix = "resp_";
    static constexpr auto kParse = api::parse_responses_request;
  };
  struct Messages {
    static constexpr const char* kPrefix = "msg_";
    static constexpr auto kParse = api::parse_anthropic_request;
  };

  template <typename Api>
  void completion(const RequestPtr& request, const ResponsePtr& response, const std::string& tenant) {
    need_model();
    api::GenerationRequest r = Api::kParse(request->body, options.bounds.schema);
    if (!needs_grammar(r)) return start(Api::kPrefix, std::move(r), response, tenant);
    // A grammar may take its time to compile: whoever reads requests does not wait for it.
    const bool taken = slow_workers.add(
        [self = shared_from_this(), request, response, tenant,
         r = std::make_shared<api::GenerationRequest>(std::move(r))] {
          self->guarded(request, response,
                        [&] { self->start(Api::kPrefix, std::move(*r), response, tenant); });
        },
        static_cast<size_t>(options.max_reading));
    if (!taken) throw http_error(503, "too many grammars are being compiled: try again later");
  }

  void start(const char* prefix, api::GenerationRequest r, const ResponsePtr& response,
             const std::string& tenant) {
    PreparedRequest p = prepare(std::move(r), need_model(), options.bounds);
    begin_call(make_context(prefix, tenant),
               [&](CallContext c) { return start_completion(std::move(p), std::move(c), response); });
  }

  void embedding(const RequestPtr& request, const ResponsePtr& response, const std::string& tenant) {
    const ServedModel& m = need_model();
    PreparedEmbedding p = prepare(api::parse_embedding_request(request->body, options.bounds.schema), m);
    begin_call(make_context("embd-", tenant),
               [&](CallContext c) { return start_embedding(std::move(p), std::move(c), response); });
  }

  void cancel(const std::string& id, const std::string& tenant, const ResponsePtr& response) {
    std::shared_ptr<Call> call;
    bool known = false;
    {
      const std::lock_guard lock(mutex);
      const auto it = open.find(id);
      known = it != open.end() && it->second.tenant == tenant;
      if (known) call = it->second.call.lock();
    }
    if (!known) throw http_error(404, fmt::format("there is no request '{}' at work", id));
    if (call) call->cancel();
    send_json(response, {{"id", id}, {"object", "request"}, {"deleted", true}});
  }

  // ---- tokens

  void tokenize(const RequestPtr& request, const ResponsePtr& response, const std::string&) {
    api::Json body = api::parse_body(request->body);
    const ServedModel& m = need_model();
    std::vector<int32_t> tokens;
    bool pieces = false;
    if (body.contains("messages")) {
      // A chat's prompt: what its template makes of the same members.
      for (const char* name : {"return_token_strs", "add_special_tokens"}) {
        if (!body.contains(name)) continue;
        if (!body[name].is_boolean())
          throw http_error(400, fmt::format("'{}' must be true or false", name), name, "invalid_value");
        pieces |= std::string_view(name) == "return_token_strs" && body[name].get<bool>();
        body.erase(name);
      }
      tokens = chat_prompt(api::read_chat_request(body, options.bounds.schema), m).tokens;
    } else {
      api::Fields f(body, "");
      f.ignore({"model"});
      const bool add_special = f.boolean("add_special_tokens").value_or(true);
      pieces = f.boolean("return_token_strs").value_or(false);
      auto content = f.text("prompt");
      if (auto other = f.text("content")) content = std::move(other);
      f.finish();
      if (!content) throw http_error(400, "'prompt' must be a string", "prompt", "invalid_value");
      tokens = m.tokenizer->encode(*content, {add_special, true});
    }
    json out = {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", m.engine->max_context()}};
    if (pieces) {
      out["token_strs"] = json::array();
      for (const auto id : tokens)
        out["token_strs"].push_back(utf8::replace_invalid(m.tokenizer->piece(id, true)));
    }
    send_json(response, out);
  }

  void detokenize(const RequestPtr& request, const ResponsePtr& response, const std::string&) {
    const api::Json body = api::parse_body(request->body);
    api::Fields f(body, "");
    f.ignore({"model"});
    const api::Json* tokens = f.array("tokens");
    f.finish();
    if (tokens == nullptr) throw http_error(400, "'tokens' is missing", "tokens", "invalid_value");
    std::vector<int32_t> ids;
    const ServedModel& m = need_model();
    const int32_t size = m.tokenizer->vocab_size();
    for (const api::Json& t : *tokens) {
      if (!t.is_number_integer() || t < 0 || t >= size)
        throw http_error(400, fmt::format("'tokens' must hold ids from 0 to {}", size - 1), "tokens",
                         "invalid_value");
      ids.push_back(t.get<int32_t>());
    }
    send_json(response, {{"prompt", utf8::replace_invalid(m.tokenizer->decode(ids))}});
  }
};

App::App(AppOptions options) : state_(std::make_shared<State>(std::move(options))) {
  state_->http = std::make_unique<HttpServer>(
      state_->options.http,
      [state = state_.get()](const std::shared_ptr<HttpRequest>& request,
                             const std::shared_ptr<HttpResponse>& response) {
        state->handle(request, response);
      },
      [](int status, const std::string& sentence) {
        return api::openai_error_body(http_error(status, sentence));
      });
}

App::~App() { state_->stop(); }

void App::start() { state_->http->start(); }

void App::set_model(ServedModel model) {
  state_->model_storage = std::make_unique<ServedModel>(std::move(model));
  state_->model = state_->model_storage.get();
}

int App::port() const { return state_->http->port(); }

void App::drain(double seconds) {
  state_->draining = true;
  const auto begin = std::chrono::steady_clock::now();
  state_->http->stop_accepting();
  const ServedModel* m = state_->model.load();
  if (m != nullptr) m->engine->drain(seconds);
  const double used = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  state_->http->wait_idle(std::max(1.0, seconds - used));
  state_->stop();
}

}  // namespace millrace::server
