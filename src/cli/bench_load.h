// Load on a server that speaks OpenAI's API: requests sent as a plan says, and what became of each. One
// thread, as many connections as are needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::cli {

struct ServerAddress {
  std::string host, port, path;  ///< path: what stands before /v1
};
/// "http://HOST[:PORT][/PATH]"; UsageError for anything else (https among it).
ServerAddress parse_address(const std::string& url);

struct PlannedRequest {
  double at = 0;       ///< seconds after the start; with clients, the least
  int32_t prompt = 0;  ///< tokens, beside the shared ones
  int32_t output = 0;
  bool intruder = false;  ///< sent at its time whatever the clients do, and reported by itself
};

struct LoadOptions {
  ServerAddress server;
  std::string api_key, model;
  int32_t clients = 0;  ///< closed loop: so many, each sends when its last is answered; 0: open loop, by time
  int32_t shared_prompt = 0;  ///< tokens that all prompts begin with
  int32_t vocabulary = 256;   ///< prompts are of random ids from 3 to below
  uint64_t seed = 1;
  double duration = 0;   ///< no request is begun after so many seconds; 0: no bound
  double timeout = 600;  ///< seconds without a byte
  int32_t max_connections = 2048;
};

struct RequestOutcome {
  double start = 0, end = 0;                                        ///< seconds after the start of the run
  std::vector<double> tokens;                                       ///< times at which text came
  int32_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  ///< as the server counts
  bool intruder = false;
  std::string error;  ///< empty: answered whole

  double first_token() const { return tokens.front() - start; }
  /// Seconds for each token after the first.
  double per_token() const { return (tokens.back() - tokens.front()) / (output_tokens - 1); }
};

struct LoadRun {
  std::vector<RequestOutcome> outcomes;
  double seconds = 0;
};

/// Asks the server for the name of its first model. Error(kIo, kUnavailable).
std::string first_model(const LoadOptions& options);

/// Runs the plan (ordered by time) to its end.
LoadRun run_load(const LoadOptions& options, const std::vector<PlannedRequest>& plan);

/// Takes Server-Sent Events apart: the data of each event, as they come.
class EventStream {
 public:
  void push(std::string_view bytes) { text_.append(bytes); }
  /// The next whole event's data; false: more bytes are needed.
  bool next(std::string& data);

 private:
  std::string text_;
};

}  // namespace millrace::cli
