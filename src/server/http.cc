#include "server/http.h"

#include <array>
#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/log.h"

namespace millrace::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using boost::system::error_code;

const std::string* HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return &value;
  return nullptr;
}

class ConnectionBase {
 public:
  virtual ~ConnectionBase() = default;
  virtual void shut(bool at_once) = 0;
};

struct HttpServer::State {
  HttpOptions options;
  HttpHandler handler;
  HttpErrorBody error_body;
  // What connections use when they end stands before `io`, whose end is theirs, too.
  mutable std::mutex mutex;
  HttpCounters counters;
  std::atomic<int64_t> answering{0};
  std::atomic<size_t> body_bytes{0};
  std::atomic<bool> stopping{false};
  std::vector<std::weak_ptr<ConnectionBase>> connections;
  std::optional<asio::ssl::context> tls;

  asio::io_context io;
  // Accepting, its pauses and its end happen on one strand: an acceptor is no more safe than a socket.
  asio::strand<asio::io_context::executor_type> strand = asio::make_strand(io);
  tcp::acceptor acceptor{strand};
  asio::steady_timer accept_pause{strand};
  std::vector<std::thread> threads;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;

  void accept();
  void take(tcp::socket socket);
  /// A copy, because the last owner of a connection must not let go under the lock.
  std::vector<std::shared_ptr<ConnectionBase>> open_connections() const {
    std::vector<std::shared_ptr<ConnectionBase>> open;
    const std::lock_guard lock(mutex);
    for (const auto& weak : connections)
      if (auto c = weak.lock()) open.push_back(std::move(c));
    return open;
  }
  void add(const std::shared_ptr<ConnectionBase>& connection) {
    const std::lock_guard lock(mutex);
    ++counters.connections;
    ++counters.accepted;
    // Gone ones are swept when they make up half of the list.
    if (connections.size() > 64 && connections.size() > 2 * static_cast<size_t>(counters.connections))
      std::erase_if(connections, [](const auto& weak) { return weak.expired(); });
    connections.push_back(connection);
  }
};

namespace {

/// What one request's body takes of the memory for all of them.
class BodyShare {
 public:
  explicit BodyShare(std::atomic<size_t>& all) : all_(all) {}
  ~BodyShare() { all_ -= bytes_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  /// False when all together are more than `most` then.
  bool grow_to(size_t bytes, size_t most) {
    if (bytes <= bytes_) return true;
    const size_t more = bytes - bytes_;
    bytes_ = bytes;
    return all_.fetch_add(more) + more <= most;
  }

 private:
  std::atomic<size_t>& all_;
  size_t bytes_ = 0;
};

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

constexpr size_t kReadAhead = 64 << 10;  // of a next request, while one is answered
constexpr size_t kPiece = 64 << 10;      // written at once
constexpr size_t kRoom = 32 << 10;       // pending bytes under which a writer may go on

template <typename Stream>
class Connection : public ConnectionBase, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  using Self = std::shared_ptr<Connection>;

  Connection(Stream stream, HttpServer::State& server)
      : server_(server),
        stream_(std::move(stream)),
        read_timer_(stream_.get_executor()),
        write_timer_(stream_.get_executor()) {
    error_code ec;
    const auto endpoint = socket().remote_endpoint(ec);
    if (!ec) peer_ = endpoint.address().to_string();
    socket().set_option(tcp::no_delay(true), ec);
  }

  ~Connection() override {
    const std::lock_guard lock(server_.mutex);
    --server_.counters.connections;
  }

  void start() {
    asio::dispatch(stream_.get_executor(), [self = self()] { self->handshake(); });
  }

  void shut(bool at_once) override {
    asio::post(stream_.get_executor(), [self = self(), at_once] {
      if (at_once || (self->state_ == State::kReading && !self->request_begun_))
        self->close();
      else
        self->last_request_ = true;
    });
  }

 private:
  enum class State { kReading, kAnswering, kLingering, kClosed };

  /// The answer to the request that is being handled; calls for an earlier one are ignored.
  class Response : public HttpResponse {
   public:
    Response(Self connection, uint64_t number) : connection_(std::move(connection)), number_(number) {}
    // A handler that drops its response without an answer would leave the client waiting. Posted, not
    // dispatched: an answer sent from another thread may still be on its way to the strand.
    ~Response() override {
      if (connection_->server_.io.stopped()) return;
      asio::post(connection_->stream_.get_executor(), [connection = connection_, number = number_] {
        Connection& c = *connection;
        if (c.request_number_ != number || c.state_ != State::kAnswering) return;
        if (!c.begun_)
          c.answer(500, "application/json", c.server_.error_body(500, "the request was dropped"), {});
        else if (!c.ended_)
          c.close();
      });
    }
    void send(int status, std::string type, std::string body, Headers headers) override {
      on_strand([status, type = std::move(type), body = std::move(body), headers = std::move(headers)](
                    Connection& c) mutable { c.answer(status, type, std::move(body), headers); });
    }
    void begin(int status, std::string type, Headers headers) override {
      on_strand([status, type = std::move(type), headers = std::move(headers)](Connection& c) {
        c.begin_stream(status, type, headers);
      });
    }
    void write(std::string chunk) override {
      on_strand([chunk = std::move(chunk)](Connection& c) mutable { c.write_chunk(std::move(chunk)); });
    }
    void end() override {
      on_strand([](Connection& c) { c.end_stream(); });
    }
    void post(std::function<void()> work) override {
      asio::post(connection_->stream_.get_executor(), std::move(work));
    }
    void note(std::string key, std::string value) override {
      on_strand([key = std::move(key), value = std::move(value)](Connection& c) mutable {
        c.notes_.emplace_back(std::move(key), std::move(value));
      });
    }
    size_t pending() const override { return current() ? connection_->out_bytes_ : 0; }
    bool closed() const override { return !current() || connection_->ended_; }
    void on_room(std::function<void()> callback) override {
      if (current()) connection_->on_room_ = std::move(callback);
    }
    void on_close(std::function<void()> callback) override {
      if (current())
        connection_->on_close_ = std::move(callback);
      else if (callback)
        callback();
    }

   private:
    bool current() const {
      return connection_->request_number_ == number_ && connection_->state_ == State::kAnswering;
    }
    template <typename Work>
    void on_strand(Work work) {
      asio::dispatch(connection_->stream_.get_executor(),
                     [connection = connection_, number = number_, work = std::move(work)]() mutable {
                       if (connection->request_number_ == number && connection->state_ == State::kAnswering)
                         work(*connection);
                     });
    }
    Self connection_;
    uint64_t number_;
  };

  Self self() { return this->shared_from_this(); }
  tcp::socket& socket() {
    if constexpr (std::is_same_v<Stream, tcp::socket>)
      return stream_;
    else
      return stream_.next_layer();
  }

  void handshake() {
    if constexpr (std::is_same_v<Stream, tcp::socket>) {
      next_request();
    } else {
      read_deadline(server_.options.limits.header_seconds);
      stream_.async_handshake(asio::ssl::stream_base::server, [self = self()](error_code ec) {
        if (ec)
          self->close();
        else
          self->next_request();
      });
    }
  }

  // ---- reading

  void next_request() {
    if (state_ == State::kClosed) return;
    if (last_request_) return close();
    state_ = State::kReading;
    request_begun_ = in_.size() > 0;
    header_seen_ = false;
    parser_.emplace();
    share_ = std::make_shared<BodyShare>(server_.body_bytes);
    parser_->header_limit(static_cast<uint32_t>(server_.options.limits.header_bytes));
    parser_->body_limit(server_.options.limits.body_bytes);
    parser_->eager(true);
    const HttpLimits& limits = server_.options.limits;
    read_deadline(request_begun_ || request_number_ == 0 ? limits.header_seconds : limits.idle_seconds);
    consume();
  }

  void consume() {
    while (state_ == State::kReading) {
      if (in_.size() == 0) return read_more();
      error_code ec;
      const size_t used = parser_->put(in_.data(), ec);
      in_.consume(used);
      if (ec == http::error::need_more) {
        ec = {};
        // What is left waits for the rest of its line: of the headers, or of a chunk's size or trailer, and
        // Beast looks at the limit only when a whole line is there.
        if (in_.size() > server_.options.limits.header_bytes) ec = http::error::header_limit;
      }
      if (ec) return refuse(ec);
      if (parser_->is_header_done() && !header_seen_) {
        header_seen_ = true;
        if (const char* wrong = wrong_head()) return reject(400, wrong);
        read_deadline(server_.options.limits.body_seconds);
        const auto expect = parser_->get().find(http::field::expect);
        if (expect != parser_->get().end() && !parser_->is_done()) queue("HTTP/1.1 100 Continue\r\n\r\n");
      }
      if (parser_->is_header_done() &&
          !share_->grow_to(parser_->get().body().size(), server_.options.limits.all_body_bytes))
        return reject(503, "the requests being received are too large together: try again later");
      if (parser_->is_done()) return handle();
      if (used == 0) return read_more();
    }
  }

  /// Why a request whose headers are all there is none: where its body ends must be beyond doubt, for what
  /// stands between client and server may read it otherwise.
  const char* wrong_head() const {
    const auto& message = parser_->get();
    const auto coding = message.find(http::field::transfer_encoding);
    if (coding != message.end() &&
        (message.count(http::field::transfer_encoding) > 1 ||
         lower(std::string_view(coding->value().data(), coding->value().size())) != "chunked"))
      return "the request's Transfer-Encoding is not understood: only 'chunked' is";
    if (message.version() >= 11 && message.count(http::field::host) != 1)
      return "a request of HTTP/1.1 must have one Host header";
    return nullptr;
  }

  void read_more() {
    if (reading_ || state_ == State::kClosed) return;
    reading_ = true;
    // Not into `in_` itself: it is consumed, and moves, while a read is under way (the next request may come
    // before the answer to this one has left).
    stream_.async_read_some(asio::buffer(fresh_),
                            [self = self()](error_code ec, size_t n) { self->on_read(ec, n); });
  }

  void on_read(error_code ec, size_t n) {
    reading_ = false;
    if (state_ == State::kClosed) return;
    if (ec) return close();
    if (state_ == State::kLingering) {
      lingered_ += n;
      if (lingered_ > (size_t{64} << 20)) return close();
      return read_more();
    }
    asio::buffer_copy(in_.prepare(n), asio::buffer(fresh_, n));
    in_.commit(n);
    if (state_ == State::kReading) {
      if (!request_begun_) {
        // The clock starts with the first byte and is not set back by later ones: a slow sender gains
        // nothing.
        request_begun_ = true;
        read_deadline(server_.options.limits.header_seconds);
      }
      consume();
    } else if (in_.size() < kReadAhead) {
      read_more();  // to notice when the client goes
    }
  }

  void read_deadline(double seconds) {
    read_timer_.expires_after(
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
    read_timer_.async_wait([self = self()](error_code ec) {
      if (ec || self->state_ == State::kClosed || self->state_ == State::kAnswering) return;
      if (self->read_timer_.expiry() > Clock::now()) return;
      if (self->state_ == State::kLingering || !self->request_begun_) return self->close();
      {
        const std::lock_guard lock(self->server_.mutex);
        ++self->server_.counters.timeouts;
      }
      self->reject(408, "the request did not arrive in time");
    });
  }

  void refuse(error_code ec) {
    if (ec == http::error::body_limit)
      return reject(413, fmt::format("the request's body is larger than the limit of {} bytes",
                                     server_.options.limits.body_bytes));
    if (ec == http::error::header_limit)
      return reject(431, fmt::format("the request's headers are larger than the limit of {} bytes",
                                     server_.options.limits.header_bytes));
    reject(400, fmt::format("the request is not well-formed HTTP: {}", ec.message()));
  }

  /// Answers what never became a request, and closes.
  void reject(int status, const std::string& sentence) {
    begin_answering();
    last_request_ = true;
    method_ = "-";
    path_ = "-";
    parser_.reset();
    share_.reset();
    answer(status, "application/json", server_.error_body(status, sentence),
           status == 503 ? Headers{{"Retry-After", "1"}} : Headers());
  }

  void begin_answering() {
    state_ = State::kAnswering;
    ++request_number_;
    ++server_.answering;
    begun_ = ended_ = chunked_ = false;
    sent_bytes_ = 0;
    status_ = 0;
    notes_.clear();
    started_ = Clock::now();
    read_timer_.cancel();
  }

  void handle() {
    begin_answering();
    auto message = parser_->release();
    auto request = std::make_shared<HttpRequest>();
    request->method = std::string(message.method_string());
    std::string target(message.target());
    // As proxies are asked: the server's own address stands before the path.
    for (const char* scheme : {"http://", "https://"})
      if (lower(std::string_view(target).substr(0, std::strlen(scheme))) == scheme) {
        const size_t path = target.find('/', std::strlen(scheme));
        target = path == std::string::npos ? "/" : target.substr(path);
        break;
      }
    const size_t mark = target.find('?');
    request->path = target.substr(0, mark);
    if (mark != std::string::npos) request->query = target.substr(mark + 1);
    request->body = std::move(message.body());
    request->body_share = std::exchange(share_, nullptr);
    request->peer = peer_;
    for (const auto& field : message)
      request->headers.emplace_back(
          lower(std::string_view(field.name_string().data(), field.name_string().size())),
          std::string(field.value()));
    http_1_0_ = message.version() < 11;
    head_ = request->method == "HEAD";
    if (!message.keep_alive() || server_.stopping ||
        request_number_ >= static_cast<uint64_t>(server_.options.limits.requests_per_connection))
      last_request_ = true;
    method_ = request->method;
    path_ = request->path;
    {
      const std::lock_guard lock(server_.mutex);
      ++server_.counters.requests;
    }
    read_more();  // to notice when the client goes
    server_.handler(std::move(request), std::make_shared<Response>(self(), request_number_));
  }

  // ---- answering

  std::string head_of(int status, std::string_view type, const Headers& headers) {
    status_ = status;
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: millrace\r\n", status, reason_of(status));
    if (!type.empty()) head += fmt::format("Content-Type: {}\r\n", type);
    for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
    if (last_request_)
      head += "Connection: close\r\n";
    else if (http_1_0_)
      head += "Connection: keep-alive\r\n";
    return head;
  }

  void answer(int status, const std::string& type, std::string body, const Headers& headers) {
    if (begun_) return;
    begun_ = ended_ = true;
    std::string head = head_of(status, type, headers);
    head += status == 204 ? "\r\n" : fmt::format("Content-Length: {}\r\n\r\n", body.size());
    queue(std::move(head));
    if (!head_ && !body.empty()) queue(std::move(body));
    after_write();
  }

  void begin_stream(int status, const std::string& type, const Headers& headers) {
    if (begun_) return;
    begun_ = true;
    chunked_ = !http_1_0_;
    if (http_1_0_) last_request_ = true;
    queue(head_of(status, type, headers) + (chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
  }

  void write_chunk(std::string chunk) {
    if (!begun_ || ended_ || chunk.empty() || head_) return;
    if (chunked_)
      queue(fmt::format("{:x}\r\n", chunk.size()) + chunk + "\r\n");
    else
      queue(std::move(chunk));
  }

  void end_stream() {
    if (!begun_ || ended_) return;
    ended_ = true;
    if (chunked_ && !head_) queue("0\r\n\r\n");
    after_write();
  }

  void queue(std::string bytes) {
    out_bytes_ += bytes.size();
    out_.push_back(std::move(bytes));
    if (!writing_) write_piece();
  }

  void write_piece() {
    writing_ = true;
    piece_.clear();
    // Small writes leave together; a large one in parts, so that progress is seen.
    while (!out_.empty() && piece_.size() < kPiece) {
      std::string& front = out_.front();
      const size_t take = std::min(front.size() - front_done_, kPiece - piece_.size());
      piece_.append(front, front_done_, take);
      front_done_ += take;
      if (front_done_ < front.size()) break;
      out_.pop_front();
      front_done_ = 0;
    }
    write_timer_.expires_after(std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(server_.options.limits.write_seconds)));
    write_timer_.async_wait([self = self()](error_code ec) {
      if (!ec && self->writing_ && self->write_timer_.expiry() <= Clock::now()) self->close();
    });
    asio::async_write(stream_, asio::buffer(piece_),
                      [self = self()](error_code ec, size_t n) { self->on_written(ec, n); });
  }

  void on_written(error_code ec, size_t n) {
    writing_ = false;
    write_timer_.cancel();
    if (state_ == State::kClosed) return;
    if (ec) return close();
    out_bytes_ -= n;
    sent_bytes_ += n;
    if (!out_.empty()) write_piece();
    if (out_bytes_ < kRoom && on_room_ && !ended_) {
      const auto call = on_room_;
      call();
    }
    after_write();
  }

  /// When all of an answer has left: the next request, or the end.
  void after_write() {
    if (state_ != State::kAnswering || !ended_ || writing_ || !out_.empty()) return;
    finish_answer();
    if (!last_request_) return next_request();
    // What the client still sends is read and dropped for a moment: closing at once would take the answer
    // from it.
    state_ = State::kLingering;
    error_code ec;
    socket().shutdown(tcp::socket::shutdown_send, ec);
    read_deadline(2);
    read_more();
  }

  void finish_answer() {
    on_room_ = {};
    on_close_ = {};
    --server_.answering;
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    if (!log::enabled(log::Level::kInfo)) return;
    std::string rest;
    for (const auto& [key, value] : notes_)
      rest += fmt::format("{}{}={}", rest.empty() ? "" : " ", key, value);
    log::info("request", {{"peer", peer_},
                          {"method", method_},
                          {"path", path_},
                          {"status", status_},
                          {"bytes", sent_bytes_},
                          {"seconds", seconds},
                          {"notes", rest}});
  }

  void close() {
    if (state_ == State::kClosed) return;
    const bool cut = state_ == State::kAnswering;
    const auto on_close = cut ? on_close_ : std::function<void()>();
    if (cut) {
      if (status_ == 0 || !ended_) status_ = 499;
      finish_answer();
    }
    state_ = State::kClosed;
    share_.reset();
    on_room_ = {};
    on_close_ = {};
    read_timer_.cancel();
    write_timer_.cancel();
    error_code ec;
    socket().close(ec);
    if (on_close) on_close();
  }

  HttpServer::State& server_;
  Stream stream_;
  asio::steady_timer read_timer_, write_timer_;
  std::string peer_;
  State state_ = State::kReading;

  boost::beast::flat_buffer in_;
  std::array<char, 16 << 10> fresh_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<BodyShare> share_;  // while a request is read
  bool reading_ = false, request_begun_ = false, header_seen_ = false, last_request_ = false;
  size_t lingered_ = 0;

  uint64_t request_number_ = 0;
  std::string method_, path_;
  bool http_1_0_ = false, head_ = false, begun_ = false, ended_ = false, chunked_ = false;
  int status_ = 0;
  Clock::time_point started_;
  Headers notes_;
  std::function<void()> on_room_, on_close_;

  std::deque<std::string> out_;
  std::string piece_;
  size_t front_done_ = 0, out_bytes_ = 0, sent_bytes_ = 0;
  bool writing_ = false;
};

}  // namespace

void HttpServer::State::accept() {
  acceptor.async_accept(asio::make_strand(io),
                        asio::bind_executor(strand, [this](error_code ec, tcp::socket socket) {
                          if (ec == asio::error::operation_aborted || stopping) return;
                          if (ec) {
                            // Out of descriptors, most likely: wait a moment instead of spinning.
                            accept_pause.expires_after(std::chrono::milliseconds(50));
                            accept_pause.async_wait([this](error_code e) {
                              if (!e && !stopping) accept();
                            });
                            return;
                          }
                          take(std::move(socket));
                          accept();
                        }));
}

/// A new connection, or one too many.
void HttpServer::State::take(tcp::socket socket) {
  bool full = false;
  {
    const std::lock_guard lock(mutex);
    full = counters.connections >= options.limits.connections;
    if (full) ++counters.refused;
  }
  if (full) {
    const std::string body =
        error_body(503, "the server has all the connections it may have: try again later");
    const std::string text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: "
        "1\r\nConnection: "
        "close\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body);
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);
    socket.close(ignored);
  } else if (tls) {
    using Stream = asio::ssl::stream<tcp::socket>;
    auto c = std::make_shared<Connection<Stream>>(Stream(std::move(socket), *tls), *this);
    add(c);
    c->start();
  } else {
    auto c = std::make_shared<Connection<tcp::socket>>(std::move(socket), *this);
    add(c);
    c->start();
  }
}

HttpServer::HttpServer(HttpOptions options, HttpHandler handler, HttpErrorBody error_body)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = std::move(options);
  s.handler = std::move(handler);
  s.error_body = std::move(error_body);
  if (!s.options.tls_certificate.empty()) {
    error_code ec;
    s.tls.emplace(asio::ssl::context::tls_server);
    s.tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                       asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1);
    s.tls->use_certificate_chain_file(s.options.tls_certificate, ec);
    require(!ec, ErrorCode::kInvalidArgument, "the TLS certificate {} cannot be used: {}",
            s.options.tls_certificate, ec.message());
    s.tls->use_private_key_file(s.options.tls_key, asio::ssl::context::pem, ec);
    require(!ec, ErrorCode::kInvalidArgument, "the TLS key {} cannot be used: {}", s.options.tls_key,
            ec.message());
  }
  error_code ec;
  tcp::resolver resolver(s.io);
  const auto found =
      resolver.resolve(s.options.host, std::to_string(s.options.port), tcp::resolver::passive, ec);
  require(!ec && !found.empty(), ErrorCode::kInvalidArgument, "the host '{}' is no address to listen on: {}",
          s.options.host, ec.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  s.acceptor.open(endpoint.protocol(), ec);
  if (!ec) s.acceptor.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) s.acceptor.bind(endpoint, ec);
  if (!ec) s.acceptor.listen(4096, ec);
  require(!ec, ErrorCode::kIo, "cannot listen on {} port {}: {}", s.options.host, s.options.port,
          ec.message());
}

HttpServer::~HttpServer() { stop(); }

int HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

void HttpServer::start() {
  State& s = *state_;
  s.work.emplace(s.io.get_executor());
  asio::post(s.strand, [&s] { s.accept(); });
  for (int i = 0; i < s.options.threads; ++i)
    s.threads.emplace_back([&s] {
      for (;;) try {
          s.io.run();
          return;
        } catch (const std::exception& e) {
          log::error("connection handler failed", {{"reason", e.what()}});
        }
    });
}

void HttpServer::stop_accepting() {
  State& s = *state_;
  if (s.stopping.exchange(true)) return;
  asio::post(s.strand, [&s] {
    error_code ec;
    s.acceptor.close(ec);
    s.accept_pause.cancel();
  });
  for (const auto& c : s.open_connections()) c->shut(/*at_once=*/false);
}

void HttpServer::wait_idle(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (state_->answering > 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void HttpServer::stop() {
  State& s = *state_;
  if (s.threads.empty()) return;
  stop_accepting();
  for (const auto& c : s.open_connections()) c->shut(/*at_once=*/true);
  s.work.reset();
  // What still holds a connection (an answer in the making) keeps it from ending by itself: the loop is
  // stopped.
  const auto end = Clock::now() + std::chrono::seconds(2);
  while (Clock::now() < end && !s.io.stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  s.io.stop();
  for (std::thread& t : s.threads) t.join();
  s.threads.clear();
}

HttpCounters HttpServer::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

}  // namespace millrace::server
