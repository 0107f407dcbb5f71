// millrace serve: the model behind OpenAI's API.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "api/grammar_service.h"
#include "cli/loaded_model.h"
#include "cli/model_template.h"
#include "cli/subcommand.h"
#include "core/error.h"
#include "core/log.h"
#include "server/app.h"

namespace millrace::cli {
namespace {

volatile std::sig_atomic_t g_signal = 0;

/// Of the cache, in memory ahead of its use: 8,192 tokens of a 1B model, cleared in a fraction of a second.
constexpr uint64_t kKvAheadBytes = uint64_t{256} << 20;

uint64_t parse_bytes(const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(std::min(used, text.size()));
  const std::pair<const char*, double> units[] = {
      {"", 1},          {"B", 1},           {"K", 1024.0},       {"KiB", 1024.0},
      {"M", 1048576.0}, {"MiB", 1048576.0}, {"G", 1073741824.0}, {"GiB", 1073741824.0},
      {"KB", 1e3},      {"MB", 1e6},        {"GB", 1e9}};
  for (const auto& [name, factor] : units)
    if (unit == name && value > 0 && value * factor < 9e18) return static_cast<uint64_t>(value * factor);
  throw UsageError(fmt::format("'{}' is no size: expected a number with KiB, MiB or GiB, as in 2GiB", text));
}

struct ServeArguments {
  ModelArguments model;
  server::AppOptions app;
  engine::EngineOptions engine;
  std::string kv_memory, swap_memory = "256MiB", cache_dir_size = "1GiB", policy = "fcfs", name,
                         body = "32MiB", all_bodies = "256MiB";
  bool no_prefix_cache = false, log_json = false, quiet = false;
  double drain_seconds = 30;
  std::string chat_template, tool_format, reasoning_format, grammar_memory = "30MiB";
  api::GrammarService::Options grammars;
};

void add_options(CLI::App& app, ServeArguments& a) {
  add_model_options(app, a.model);
  app.add_option("--host", a.app.http.host, "address to listen on (default 127.0.0.1)")->type_name("H");
  app.add_option("--port", a.app.http.port, "port (default 8000; 0: any free one)")
      ->check(CLI::Range(0, 65535))
      ->type_name("P");
  app.add_option("--name", a.name, "the model's name in the API (default: its file's)")->type_name("NAME");
  app.add_option("--chat-template", a.chat_template, "file that stands for the model's own")
      ->type_name("FILE");
  app.add_option("--api-key-file", a.app.api_key_file, "who may: one key a line")->type_name("F");
  app.add_option("--tls-cert", a.app.http.tls_certificate, "PEM file; with --tls-key")->type_name("F");
  app.add_option("--tls-key", a.app.http.tls_key, "PEM file")->type_name("F");
  const std::string e = "Engine";
  app.add_option("--policy", a.policy,
                 "fcfs, sjf, priority, deadline, max-batch; static, dynamic, one-by-one")
      ->type_name("NAME")
      ->group(e);
  app.add_option("--kv-memory", a.kv_memory, "cache (default: half of what is free), as 2GiB")
      ->type_name("SIZE")
      ->group(e);
  app.add_option("--max-sequences", a.engine.max_sequences, "computed together (default 256)")
      ->type_name("N")
      ->group(e);
  app.add_option("--max-context", a.engine.max_context, "tokens of one sequence (default: the model's)")
      ->type_name("N")
      ->group(e);
  app.add_option("--token-budget", a.engine.token_budget, "tokens of one step (default 512)")
      ->type_name("N")
      ->group(e);
  app.add_option("--mixed-step-factor", a.engine.mixed_step_factor,
                 "how much prefill may lengthen a step (default 1.7)")
      ->type_name("X")
      ->group(e);
  app.add_option("--block-size", a.engine.block_size, "tokens of a cache block (default 16)")
      ->type_name("N")
      ->group(e);
  app.add_option("--static-batch", a.engine.static_batch, "")->group("");
  app.add_option("--batch-wait", a.engine.batch_wait_seconds, "")->group("");
  app.add_option("--swap-memory", a.swap_memory, "for preempted sequences (default 256MiB)")
      ->type_name("SIZE")
      ->group(e);
  app.add_option("--cache-dir", a.engine.cache_dir, "folder that keeps the prefix cache over restarts")
      ->type_name("DIR")
      ->group(e);
  app.add_option("--cache-dir-size", a.cache_dir_size, "")->group("");
  app.add_flag("--no-prefix-cache", a.no_prefix_cache, "compute every prompt whole")->group(e);
  const std::string l = "Limits";
  app.add_option("--max-waiting", a.engine.max_waiting, "requests in the queue (default 4096)")
      ->type_name("N")
      ->group(l);
  app.add_option("--max-connections", a.app.http.limits.connections, "default 4096")
      ->type_name("N")
      ->group(l);
  app.add_option("--max-body", a.body, "bytes of a request (default 32MiB)")->type_name("SIZE")->group(l);
  app.add_option("--max-bodies", a.all_bodies, "bytes of all that are being received (default 256MiB)")
      ->type_name("SIZE")
      ->group(l);
  app.add_option("--max-headers", a.app.http.limits.header_bytes, "bytes (default 16384)")
      ->type_name("N")
      ->group(l);
  app.add_option("--max-tokens", a.app.bounds.max_tokens, "a request may ask for (default: the context)")
      ->type_name("N")
      ->group(l);
  app.add_option("--max-n", a.engine.limits.max_n, "answers of a request (default 128)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N")
      ->group(l);
  app.add_option("--max-logprobs", a.engine.limits.max_logprobs, "default 100")
      ->check(CLI::Range(0, 100000))
      ->type_name("N")
      ->group(l);
  api::SchemaLimits& schema = a.app.bounds.schema;
  app.add_option("--max-logit-bias", a.engine.limits.max_logit_bias, "entries (default 4096)")
      ->check(CLI::Range(0, 10000000))
      ->type_name("N")
      ->group(l);
  const auto count = [&](const char* name, size_t& target, const char* help) {
    app.add_option(name, target, help)->type_name("N")->group(l);
  };
  count("--max-stop-strings", schema.max_stop_strings, "default 16");
  count("--max-stop-bytes", schema.max_stop_bytes, "of a stop string (default 1024)");
  count("--max-prompts", schema.max_prompts, "of a completion or embedding (default 128)");
  count("--max-messages", schema.max_messages, "of a chat (default 10000)");
  count("--max-tools", schema.max_tools, "default 512");
  const auto seconds = [&](const char* name, double& target, const char* help) {
    app.add_option(name, target, help)->check(CLI::Range(0.0, 1e9))->type_name("S")->group(l);
  };
  seconds("--max-seconds", a.app.bounds.seconds, "of a request (default: no bound)");
  seconds("--header-seconds", a.app.http.limits.header_seconds,
          "for a request's headers to come (default 10)");
  seconds("--body-seconds", a.app.http.limits.body_seconds, "for its body (default 60)");
  seconds("--idle-seconds", a.app.http.limits.idle_seconds, "between requests (default 75)");
  seconds("--write-seconds", a.app.http.limits.write_seconds, "a client may take nothing (default 30)");
  seconds("--stall-seconds", a.engine.stall_seconds, "an answer may wait for its client (default 30)");
  seconds("--grammar-seconds", a.grammars.compiler.limits.seconds,
          "of one grammar's compilation (default 0.9)");
  seconds("--drain-seconds", a.drain_seconds, "at most, on SIGTERM (default 30)");
  app.add_option("--grammar-memory", a.grammar_memory, "of one grammar's compilation (default 30MiB)")
      ->type_name("SIZE")
      ->group(l);
  app.add_option("--sla-ttft", a.app.level.first_token_seconds,
                 "for goodput: seconds to the first token (default 2)")
      ->type_name("S");
  app.add_option("--sla-tpot", a.app.level.token_seconds, "... and for each token after it (default 0.2)")
      ->type_name("S");
  app.add_option("--http-threads", a.app.http.threads, "default 2")->type_name("N");
  app.add_option("--allow-origin", a.app.allow_origin, "Access-Control-Allow-Origin of answers")
      ->type_name("O");
  app.add_option("--tool-format", a.tool_format, "how the model writes tool calls (default: by its template)")
      ->type_name("NAME");
  app.add_option("--reasoning-format", a.reasoning_format, "... and its reasoning")->type_name("NAME");
  app.add_flag("--log-json", a.log_json, "log as JSON lines");
  app.add_flag("--quiet", a.quiet, "no line for each request");
}

void finish_options(ServeArguments& a) {
  if (!a.kv_memory.empty()) a.engine.kv_memory_bytes = parse_bytes(a.kv_memory);
  a.engine.swap_bytes = a.swap_memory == "0" ? 0 : parse_bytes(a.swap_memory);
  a.engine.cache_dir_bytes = parse_bytes(a.cache_dir_size);
  a.app.http.limits.body_bytes = parse_bytes(a.body);
  a.app.http.limits.all_body_bytes = std::max(parse_bytes(a.all_bodies), parse_bytes(a.body));
  a.engine.prefix_cache = !a.no_prefix_cache;
  try {
    a.engine.policy = engine::parse_policy(a.policy);
    // Before the model is loaded, which takes its time.
    if (!a.tool_format.empty()) api::parse_tool_format(a.tool_format);
    if (!a.reasoning_format.empty()) api::parse_reasoning_format(a.reasoning_format);
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
  if (a.app.http.tls_certificate.empty() != a.app.http.tls_key.empty())
    throw UsageError("--tls-cert and --tls-key belong together");
  if (a.app.http.threads < 1 || a.app.http.threads > 64) throw UsageError("--http-threads must be 1 to 64");
  api::SchemaLimits& schema = a.app.bounds.schema;
  schema.max_n = a.engine.limits.max_n;
  schema.max_logprobs = a.engine.limits.max_logprobs;
  schema.max_logit_bias = static_cast<size_t>(a.engine.limits.max_logit_bias);
  if (a.app.bounds.max_tokens > 0) schema.max_tokens = a.app.bounds.max_tokens;
  a.grammars.compiler.limits.memory_bytes = parse_bytes(a.grammar_memory);
  a.app.version = MILLRACE_VERSION;
}

/// Every connection is a descriptor, and what a process may have at first is often only 1,024 of them.
void raise_descriptor_limit(int connections) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(connections) + 256;
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < wanted)
    log::warn("fewer descriptors than connections",
              {{"descriptors", static_cast<uint64_t>(files.rlim_max)}, {"connections", connections}});
}

int run_serve(int argc, char** argv) {
  ServeArguments a;
  CLI::App app{
      "Serves a model through OpenAI's API.\n`docs/serving.md` explains every option, the limits of time "
      "among them."};
  add_options(app, a);
  if (parse_arguments(app, argc, argv)) return 0;
  finish_options(a);
  log::set_json(a.log_json);
  log::set_level(a.quiet ? log::Level::kWarn : log::Level::kInfo);
  raise_descriptor_limit(a.app.http.limits.connections);
  std::signal(SIGTERM, [](int) { g_signal = 1; });
  std::signal(SIGINT, [](int) { g_signal = 1; });

  // The port is bound before the model is loaded: a port in use is told at once, and /health answers while it
  // loads.
  server::App service(a.app);
  service.start();
  LoadedModel loaded = load(a.model);
  server::ServedModel served;
  served.id = !a.name.empty()        ? a.name
              : a.model.path.empty() ? "millrace-demo"
                                     : std::filesystem::path(a.model.path).lexically_normal().stem().string();
  served.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  served.tokenizer = loaded.tokenizer.get();
  if (a.chat_template.empty() && a.model.path.empty())
    served.chat = template_from_metadata(loaded.checkpoint->metadata);
  else
    served.chat = open_template_source(a.chat_template.empty() ? a.model.path : a.chat_template);
  if (const std::string* source = served.chat.choose(true))
    served.format = api::detect_output_format(*source);
  if (!a.tool_format.empty()) served.format.tools = api::parse_tool_format(a.tool_format);
  if (!a.reasoning_format.empty()) served.format.reasoning = api::parse_reasoning_format(a.reasoning_format);

  served.grammars = std::make_shared<api::GrammarService>(*served.tokenizer, served.format, a.grammars);

  a.engine.pool = loaded.pool;
  a.engine.isa = loaded.isa;
  a.engine.kv_type = resolve_kv_type(a.model.kv_type, loaded.model->info());
  a.engine.kv_ahead_bytes = kKvAheadBytes;
  engine::Engine engine(std::move(loaded.model), a.engine);
  engine.warm_up();
  served.engine = &engine;
  const std::string id = served.id;
  service.set_model(std::move(served));
  log::info("ready", {{"model", id},
                      {"host", a.app.http.host},
                      {"port", service.port()},
                      {"threads", engine.options().threads},
                      {"policy", a.policy},
                      {"context", engine.max_context()},
                      {"kv_type", engine::kv_type_name(*engine.options().kv_type)},
                      {"kv_bytes", engine.options().kv_memory_bytes}});
  fmt::print(stderr, "millrace: {} is served on {}://{}:{}\n", id,
             a.app.http.tls_certificate.empty() ? "http" : "https", a.app.http.host, service.port());
  while (!g_signal) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  log::info("draining", {{"seconds", a.drain_seconds}});
  service.drain(a.drain_seconds);
  return 0;
}

MILLRACE_SUBCOMMAND("serve", 30, "serve a model through OpenAI's API", run_serve);

}  // namespace
}  // namespace millrace::cli
