// The service: which path does what, who may, and how it all ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/call.h"
#include "server/http.h"

namespace millrace::server {

struct AppOptions {
  HttpOptions http;
  RequestBounds bounds;
  ServiceLevel level;
  std::string api_key_file;  ///< one key a line, '#' begins a comment; empty: everybody may
  std::string allow_origin;  ///< Access-Control-Allow-Origin; empty: none
  std::string version;
  int worker_threads = 1;  ///< read requests: parse, render templates, tokenise
  int slow_threads = 2;    ///< the same for long bodies, and for requests that wait for a grammar
  int max_reading = 4096;  ///< requests waiting to be read; more get 503
};

class App {
 public:
  /// Binds the port; requests are answered from start() on, /ready with 503 until set_model(). Errors: those
  /// of HttpServer, kNotFound and kInvalidFile for the key file.
  explicit App(AppOptions options);
  ~App();

  void start();
  void set_model(ServedModel model);
  int port() const;
  /// No new requests; waits for those at work, at most so long; then closes everything. After it, as after
  /// the destructor, only the engine still uses what set_model() was given.
  void drain(double seconds);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace::server
