// An asynchronous HTTP/1.1 server (Boost.Asio, with Beast's parser): keep-alive, chunked streaming, TLS, and
// a limit on everything a client could use up. This header knows no Boost, so that handlers compile without
// it.
//
// One strand a connection, a few threads for all. Requests of a connection are answered one after the other.
// A client that goes away while its answer is made is noticed at once (on_close). Output a client does not
// take is bounded by whoever writes (pending(), on_room); when it takes nothing for write_seconds the
// connection is closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpLimits {
  size_t header_bytes = 16 << 10;
  size_t body_bytes = 32 << 20;
  size_t all_body_bytes = 256 << 20;  ///< of all requests that are being received or read
  int connections = 4096;
  double header_seconds = 10;  ///< from a request's first byte to the end of its headers
  double body_seconds = 60;    ///< ... to the end of its body
  double idle_seconds = 75;    ///< between requests
  double write_seconds = 30;   ///< without the client taking anything
  int requests_per_connection = 100000;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  ///< 0: any free one
  int threads = 2;
  HttpLimits limits;
  std::string tls_certificate;  ///< PEM files; empty: no TLS
  std::string tls_key;
};

struct HttpRequest {
  std::string method;
  std::string path;  ///< as sent, without the query
  std::string query;
  std::string body;
  std::string peer;                  ///< address
  Headers headers;                   ///< names in lower case
  std::shared_ptr<void> body_share;  ///< of all_body_bytes, given back with the last copy
  /// First header of that (lower-case) name, or null.
  const std::string* header(std::string_view name) const;
};

/// The answer to one request. Members may be called from any thread unless they say otherwise; after the end,
/// or when the client is gone, they do nothing.
class HttpResponse {
 public:
  virtual ~HttpResponse() = default;
  /// A whole answer.
  virtual void send(int status, std::string content_type, std::string body, Headers headers = {}) = 0;
  /// An answer in pieces: begin, write..., end.
  virtual void begin(int status, std::string content_type, Headers headers = {}) = 0;
  virtual void write(std::string chunk) = 0;
  virtual void end() = 0;
  /// Runs `work` on the connection's strand (also when the client is gone).
  virtual void post(std::function<void()> work) = 0;
  /// For the access log.
  virtual void note(std::string key, std::string value) = 0;

  // On the strand only.
  virtual size_t pending() const = 0;  ///< bytes written but not taken yet
  virtual bool closed() const = 0;
  virtual void on_room(std::function<void()> callback) = 0;   ///< pending() went down
  virtual void on_close(std::function<void()> callback) = 0;  ///< the client is gone before the end
};

/// Called on the connection's strand; must not block.
using HttpHandler = std::function<void(std::shared_ptr<HttpRequest>, std::shared_ptr<HttpResponse>)>;
/// Makes the body of an error that the server itself answers (malformed or oversized requests).
using HttpErrorBody = std::function<std::string(int status, const std::string& sentence)>;

struct HttpCounters {
  int64_t connections = 0;  ///< open now
  uint64_t accepted = 0, refused = 0, requests = 0, timeouts = 0;
};

class HttpServer {
 public:
  /// Binds and listens, but does not accept yet. Error(kIo) with address and reason; kInvalidArgument for a
  /// bad host or certificate.
  HttpServer(HttpOptions options, HttpHandler handler, HttpErrorBody error_body);
  ~HttpServer();

  int port() const;
  void start();
  /// No new connections; those that are open end after the request they are at.
  void stop_accepting();
  /// Waits until no connection has an answer in the making, at most so long.
  void wait_idle(double seconds);
  /// Closes what is open and ends the threads.
  void stop();
  HttpCounters counters() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace millrace::server
