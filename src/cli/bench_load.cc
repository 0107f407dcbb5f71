#include "cli/bench_load.h"

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>

#include "cli/subcommand.h"
#include "core/error.h"
#include "core/random.h"

namespace millrace::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr int32_t kFirstOrdinaryToken = 3;  // before them, most vocabularies have their special tokens

/// What one request became so far: fed with the events of its stream.
void take_event(const std::string& data, double time, RequestOutcome& outcome, bool& complete) {
  if (data == "[DONE]") {
    complete = true;
    return;
  }
  const auto event = nlohmann::json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) {
    outcome.error = "the stream holds what is no JSON";
    return;
  }
  if (event.contains("error") && event["error"].is_object()) {
    outcome.error = event["error"].value("message", "an error without a message");
    return;
  }
  const auto choices = event.find("choices");
  if (choices != event.end() && choices->is_array() && !choices->empty()) {
    const auto& choice = (*choices)[0];
    // The last event may only say why the answer ends.
    if (!choice.value("text", std::string()).empty() ||
        choice.value("finish_reason", nlohmann::json()).is_null())
      outcome.tokens.push_back(time);
  }
  const auto usage = event.find("usage");
  if (usage == event.end() || !usage->is_object()) return;
  outcome.prompt_tokens = usage->value("prompt_tokens", 0);
  outcome.output_tokens = usage->value("completion_tokens", 0);
  const auto details = usage->find("prompt_tokens_details");
  if (details != usage->end() && details->is_object())
    outcome.cached_tokens = details->value("cached_tokens", 0);
}

class Load {
 public:
  Load(const LoadOptions& options, const std::vector<PlannedRequest>& plan)
      : options_(options), plan_(plan), resolver_(io_) {
    Random random(options.seed);
    shared_ = random_ids(random, options.shared_prompt);
  }

  LoadRun run() {
    beast::error_code error;
    endpoints_ = resolver_.resolve(options_.server.host, options_.server.port, error);
    require(!error, ErrorCode::kIo, "cannot find {}: {}", options_.server.host, error.message());
    begin_ = Clock::now();
    run_.outcomes.resize(plan_.size());
    if (options_.clients == 0) {
      asio::co_spawn(io_, arrivals(), asio::detached);
    } else {
      for (size_t i = 0; i < plan_.size(); ++i)
        plan_[i].intruder ? asio::co_spawn(io_, intruder(i), asio::detached) : queue_.push_back(i);
      for (int32_t c = 0; c < options_.clients; ++c) asio::co_spawn(io_, client(), asio::detached);
    }
    io_.run();
    run_.seconds = 0;
    std::erase_if(run_.outcomes, [](const RequestOutcome& o) { return o.end == 0; });
    for (const RequestOutcome& o : run_.outcomes) run_.seconds = std::max(run_.seconds, o.end);
    return std::move(run_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool over() const { return options_.duration > 0 && now() >= options_.duration; }

  std::vector<int32_t> random_ids(Random& random, int32_t count) const {
    std::vector<int32_t> ids;
    ids.reserve(static_cast<size_t>(std::max(count, 0)));
    for (int32_t i = 0; i < count; ++i)
      ids.push_back(kFirstOrdinaryToken + static_cast<int32_t>(random.below(static_cast<uint32_t>(
                                              options_.vocabulary - kFirstOrdinaryToken))));
    return ids;
  }

  asio::awaitable<void> sleep_until(double time) {
    asio::steady_timer timer(
        io_, begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time)));
    co_await timer.async_wait(asio::use_awaitable);
  }

  asio::awaitable<void> client() {
    while (!queue_.empty() && !over()) {
      const size_t i = queue_.front();
      queue_.pop_front();
      co_await one(i);
    }
  }

  asio::awaitable<void> intruder(size_t i) {
    co_await sleep_until(plan_[i].at);
    co_await one(i);
  }

  asio::awaitable<void> arrivals() {
    for (size_t i = 0; i < plan_.size(); ++i) {
      co_await sleep_until(plan_[i].at);
      if (over()) co_return;
      asio::co_spawn(io_, one(i), asio::detached);
    }
  }

  asio::awaitable<void> one(size_t i) {
    RequestOutcome& outcome = run_.outcomes[i];
    outcome.start = now();
    outcome.intruder = plan_[i].intruder;
    if (open_ >= options_.max_connections) {
      outcome.error = fmt::format("more than {} connections at once", options_.max_connections);
    } else {
      ++open_;
      try {
        co_await exchange(plan_[i], i, outcome);
      } catch (const std::exception& e) {
        if (outcome.error.empty()) outcome.error = e.what();
      }
      --open_;
    }
    outcome.end = now();
  }

  std::string body_of(const PlannedRequest& planned, size_t i) const {
    Random random(options_.seed + 1 + i);
    std::vector<int32_t> prompt = shared_;
    for (const int32_t id : random_ids(random, planned.prompt)) prompt.push_back(id);
    return nlohmann::json{{"model", options_.model},
                          {"prompt", prompt},
                          {"max_tokens", planned.output},
                          {"temperature", 0},
                          {"ignore_eos", true},
                          {"stream", true},
                          {"stream_options", {{"include_usage", true}}}}
        .dump();
  }

  asio::awaitable<void> exchange(const PlannedRequest& planned, size_t i, RequestOutcome& outcome) {
    http::request<http::string_body> request{http::verb::post, options_.server.path + "/v1/completions", 11};
    request.set(http::field::host, options_.server.host);
    request.set(http::field::content_type, "application/json");
    if (!options_.api_key.empty()) request.set(http::field::authorization, "Bearer " + options_.api_key);
    request.body() = body_of(planned, i);
    request.prepare_payload();
    std::unique_ptr<beast::tcp_stream> stream;
    // A connection that was kept may have been closed by the server meanwhile: then a new one is tried.
    if (!idle_.empty()) {
      stream = std::move(idle_.back());
      idle_.pop_back();
    }
    const auto limit =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout));
    for (bool kept = stream != nullptr;; kept = false) {
      if (!kept) {
        stream = std::make_unique<beast::tcp_stream>(io_);
        stream->expires_after(limit);
        co_await stream->async_connect(endpoints_, asio::use_awaitable);
        stream->socket().set_option(tcp::no_delay(true));
      }
      stream->expires_after(limit);
      beast::error_code error;
      co_await http::async_write(*stream, request, asio::redirect_error(asio::use_awaitable, error));
      beast::flat_buffer buffer;
      http::response_parser<http::string_body> parser;
      parser.body_limit(256u << 20);
      if (!error)
        co_await http::async_read_header(*stream, buffer, parser,
                                         asio::redirect_error(asio::use_awaitable, error));
      if (error && kept) continue;
      if (error) throw beast::system_error(error);
      co_await read_answer(*stream, buffer, parser, limit, outcome);
      if (outcome.error.empty() && parser.keep_alive()) idle_.push_back(std::move(stream));
      co_return;
    }
  }

  asio::awaitable<void> read_answer(beast::tcp_stream& stream, beast::flat_buffer& buffer,
                                    http::response_parser<http::string_body>& parser, Clock::duration limit,
                                    RequestOutcome& outcome) {
    const bool good = parser.get().result() == http::status::ok;
    EventStream events;
    std::string data;
    size_t seen = 0;
    bool complete = false;
    for (;;) {
      const std::string& body = parser.get().body();
      if (good) {
        events.push(std::string_view(body).substr(seen));
        seen = body.size();
        while (outcome.error.empty() && events.next(data)) take_event(data, now(), outcome, complete);
      }
      if (parser.is_done() || !outcome.error.empty()) break;
      stream.expires_after(limit);
      co_await http::async_read_some(stream, buffer, parser, asio::use_awaitable);
    }
    if (!good)
      outcome.error =
          fmt::format("status {}: {}", parser.get().result_int(), parser.get().body().substr(0, 200));
    else if (outcome.error.empty() && !complete)
      outcome.error = "the stream ended before its end was announced";
    else if (outcome.error.empty() && outcome.tokens.empty())
      outcome.error = "the answer has no token";
    if (outcome.output_tokens == 0) outcome.output_tokens = static_cast<int32_t>(outcome.tokens.size());
  }

  const LoadOptions& options_;
  const std::vector<PlannedRequest>& plan_;
  asio::io_context io_{1};
  tcp::resolver resolver_;
  tcp::resolver::results_type endpoints_;
  Clock::time_point begin_;
  std::vector<int32_t> shared_;
  std::deque<size_t> queue_;
  std::vector<std::unique_ptr<beast::tcp_stream>> idle_;
  int32_t open_ = 0;
  LoadRun run_;
};

}  // namespace

ServerAddress parse_address(const std::string& url) {
  const std::string scheme = "http://";
  if (!url.starts_with(scheme))
    throw UsageError(fmt::format("'{}' is no address of a server: expected http://HOST:PORT", url));
  ServerAddress a;
  const size_t slash = url.find('/', scheme.size());
  const std::string authority = url.substr(scheme.size(), slash - scheme.size());
  if (slash != std::string::npos) a.path = url.substr(slash);
  while (a.path.ends_with('/')) a.path.pop_back();
  if (a.path.ends_with("/v1")) a.path.resize(a.path.size() - 3);
  const size_t bracket = authority.rfind(']'), colon = authority.rfind(':');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  a.host = authority.substr(0, has_port ? colon : std::string::npos);
  if (a.host.starts_with('[') && a.host.ends_with(']')) a.host = a.host.substr(1, a.host.size() - 2);
  a.port = has_port ? authority.substr(colon + 1) : "80";
  if (a.host.empty() || a.port.empty())
    throw UsageError(fmt::format("'{}' is no address of a server: expected http://HOST:PORT", url));
  return a;
}

std::string first_model(const LoadOptions& options) {
  asio::io_context io;
  beast::tcp_stream stream(io);
  beast::error_code error;
  tcp::resolver resolver(io);
  const auto endpoints = resolver.resolve(options.server.host, options.server.port, error);
  if (!error) stream.connect(endpoints, error);
  http::request<http::empty_body> request{http::verb::get, options.server.path + "/v1/models", 11};
  request.set(http::field::host, options.server.host);
  if (!options.api_key.empty()) request.set(http::field::authorization, "Bearer " + options.api_key);
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  if (!error) http::write(stream, request, error);
  if (!error) http::read(stream, buffer, response, error);
  require(!error, ErrorCode::kIo, "no answer from {}:{}: {}", options.server.host, options.server.port,
          error.message());
  const auto models = nlohmann::json::parse(response.body(), nullptr, /*allow_exceptions=*/false);
  require(response.result() == http::status::ok && models.is_object() && models.contains("data") &&
              models["data"].is_array() && !models["data"].empty() && models["data"][0].is_object(),
          ErrorCode::kUnavailable, "/v1/models of {}:{} answers with status {} and names no model",
          options.server.host, options.server.port, response.result_int());
  return models["data"][0].value("id", "");
}

LoadRun run_load(const LoadOptions& options, const std::vector<PlannedRequest>& plan) {
  return Load(options, plan).run();
}

bool EventStream::next(std::string& data) {
  data.clear();
  for (;;) {
    // An event ends with an empty line; only its data is of interest.
    const size_t end = text_.find("\n\n");
    const size_t crlf = text_.find("\r\n\r\n");
    const size_t at = std::min(end, crlf);
    if (at == std::string::npos) return false;
    const std::string event = text_.substr(0, at);
    text_.erase(0, at + (at == crlf ? 4 : 2));
    for (size_t line = 0; line < event.size();) {
      size_t stop = event.find('\n', line);
      if (stop == std::string::npos) stop = event.size();
      std::string_view text(event.data() + line, stop - line);
      if (text.ends_with('\r')) text.remove_suffix(1);
      if (text.starts_with("data:")) {
        text.remove_prefix(5);
        if (text.starts_with(' ')) text.remove_prefix(1);
        if (!data.empty()) data += '\n';
        data += text;
      }
      line = stop + 1;
    }
    if (!data.empty()) return true;
  }
}

}  // namespace millrace::cli
