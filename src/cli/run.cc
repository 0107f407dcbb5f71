// millrace run: continues a prompt and says how fast that was.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/generation_options.h"
#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "core/cpu.h"
#include "core/error.h"
#include "core/utf8.h"
#include "engine/engine.h"
#include "text/stop_strings.h"

namespace millrace::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

struct RunOptions {
  std::string prompt;
  bool json = false;
  bool ids = false;
  int32_t context = 0;
};

struct Answer {
  std::string text;
  std::vector<int32_t> ids;
  nlohmann::json logprobs = nlohmann::json::array();
  engine::FinishReason reason = engine::FinishReason::kNone;
};

/// Receives the events of one request: shows the text of choice 0 as it comes, keeps all answers.
class Collector {
 public:
  Collector(const text::Tokenizer& tokenizer, const std::vector<std::string>& stops, bool show, bool at_start)
      : tokenizer_(tokenizer), decoder_(tokenizer), stops_(stops), show_(show) {
    decoder_.set_at_start(at_start);
  }

  /// False ends the request.
  bool take(const engine::Event& e) {
    if (e.kind == engine::Event::Kind::kToken) {
      answer.ids.push_back(e.token);
      if (!e.top.empty()) {
        nlohmann::json top = nlohmann::json::array();
        for (const auto& t : e.top)
          top.push_back({{"id", t.token},
                         {"token", utf8::replace_invalid(tokenizer_.piece(t.token, true))},
                         {"logprob", t.logprob}});
        answer.logprobs.push_back({{"id", e.token}, {"logprob", e.logprob}, {"top", top}});
      }
      emit(stops_.push(decoder_.push(e.token)));
    } else if (e.kind == engine::Event::Kind::kFinish) {
      answer.reason = e.finish_reason;
    }
    return stops_.matched() < 0 && !g_interrupted;
  }

  void finish() {
    if (stops_.matched() < 0) {
      emit(stops_.push(decoder_.finish()));
      emit(stops_.finish());
    } else {
      answer.reason = engine::FinishReason::kStop;
    }
  }

  Answer answer;

 private:
  void emit(const std::string& piece) {
    answer.text += piece;
    if (!show_ || piece.empty()) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  }

  const text::Tokenizer& tokenizer_;
  text::StreamDecoder decoder_;
  text::StopStrings stops_;
  bool show_;
};

void print_summary(const engine::Event& done, size_t tokens, double load_seconds) {
  const auto& t = done.timing;
  const double prompt_seconds = t.first_token - t.queued, decode_seconds = t.total - t.first_token;
  const int computed = done.usage.prompt_tokens - done.usage.cached_tokens;
  fmt::print(stderr,
             "\nprompt: {} tokens, {:.1f} tokens/s · generated: {} tokens, {:.1f} tokens/s · first token "
             "after {:.0f} ms · "
             "loaded in {:.2f} s · peak memory {}\n",
             done.usage.prompt_tokens, prompt_seconds > 0 ? computed / prompt_seconds : 0.0, tokens,
             decode_seconds > 0 && tokens > 1 ? static_cast<double>(tokens - 1) / decode_seconds : 0.0,
             t.first_token * 1000, load_seconds, human_bytes(peak_resident_bytes()));
}

/// The context to run with: as asked, or the model's own, or what --max-tokens needs beyond it (with a
/// warning: the text gets worse where the model was not trained). A prompt that is too long by itself is
/// refused by the engine.
int32_t context_for(const models::ModelInfo& info, const RunOptions& options,
                    const engine::Request& request) {
  const int64_t needed =
      static_cast<int64_t>(request.prompt.size()) + std::max(0, request.generation.max_tokens);
  if (options.context > 0 || info.context_length == 0 || info.fixed_context ||
      needed <= info.context_length || static_cast<int64_t>(request.prompt.size()) >= info.context_length ||
      needed > (1 << 27))
    return options.context;
  fmt::print(stderr, "note: the model was made for {} tokens, the {} asked for go beyond\n",
             info.context_length, needed);
  return static_cast<int32_t>(needed);
}

int generate_text(LoadedModel& loaded, const ModelArguments& arguments, GenerationArguments& generation,
                  const RunOptions& options) {
  const text::Tokenizer& tokenizer = *loaded.tokenizer;
  engine::Request request;
  request.prompt = tokenizer.encode(options.prompt);
  require(!request.prompt.empty(), ErrorCode::kInvalidArgument,
          "the prompt is empty and this vocabulary has no token to begin with: give a prompt");
  request.sampling = generation.sampling;
  request.generation = generation.generation;
  request.generation.end_tokens = tokenizer.end_of_generation();
  engine::EngineOptions engine_options;
  engine_options.pool = loaded.pool;
  engine_options.isa = loaded.isa;
  engine_options.kv_type = resolve_kv_type(arguments.kv_type, loaded.model->info());
  engine_options.max_context = context_for(loaded.model->info(), options, request);
  engine_options.max_sequences = std::max(1, generation.generation.beam_width);
  engine_options.prefix_cache = false;
  engine::Engine engine(std::move(loaded.model), engine_options);

  const bool show = !options.json;
  if (show) {
    std::fwrite(options.prompt.data(), 1, options.prompt.size(), stdout);
    std::fflush(stdout);
  }
  Collector collector(tokenizer, generation.stop, show, options.prompt.empty());
  std::signal(SIGINT, [](int) { g_interrupted = 1; });
  const engine::Event done =
      engine::generate(engine, std::move(request), [&](const engine::Event& e) { return collector.take(e); });
  collector.finish();
  const Answer& answer = collector.answer;
  if (show) {
    std::fputc('\n', stdout);
    std::fflush(stdout);
    print_summary(done, answer.ids.size(), loaded.load_seconds);
    return g_interrupted ? 1 : 0;
  }
  nlohmann::json out = {
      {"prompt", utf8::replace_invalid(options.prompt)},
      {"text", utf8::replace_invalid(answer.text)},
      {"finish_reason", g_interrupted ? "interrupted" : engine::finish_reason_name(answer.reason)},
      {"usage", {{"prompt_tokens", done.usage.prompt_tokens}, {"completion_tokens", answer.ids.size()}}},
      {"timing",
       {{"load_seconds", loaded.load_seconds},
        {"first_token_seconds", done.timing.first_token},
        {"total_seconds", done.timing.total}}},
      {"peak_memory_bytes", peak_resident_bytes()}};
  if (options.ids) out["ids"] = answer.ids;
  if (!answer.logprobs.empty()) out["logprobs"] = answer.logprobs;
  fmt::print("{}\n", out.dump());
  return g_interrupted ? 1 : 0;
}

int run(int argc, char** argv) {
  CLI::App app("Continues a prompt. Prompt and text go to standard output, all else to standard error.",
               "millrace run");
  ModelArguments arguments;
  GenerationArguments generation;
  RunOptions options;
  add_model_options(app, arguments);
  auto* prompt = app.add_option("PROMPT", options.prompt, "the text to continue (default: standard input)");
  app.add_option("-c,--context", options.context, "longest context (default: the model's)")
      ->check(CLI::Range(0, 1 << 27));
  app.add_flag("--json", options.json, "print one JSON object at the end instead of streaming text");
  app.add_flag("--ids", options.ids, "with --json: the generated ids too");
  add_generation_options(app, generation);
  if (parse_arguments(app, argc, argv)) return 0;
  finish_generation_options(generation);
  if (prompt->count() == 0 && !isatty(STDIN_FILENO)) options.prompt = read_standard_input();
  require(options.prompt.size() < (size_t{1} << 31), ErrorCode::kLimitExceeded,
          "the prompt has {} bytes: expected less than 2 GiB", options.prompt.size());
  // Field errors come before minutes of loading.
  try {
    engine::validate(generation.sampling, std::numeric_limits<int32_t>::max());
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
  const size_t bad = utf8::find_invalid(options.prompt);
  require(bad == std::string::npos, ErrorCode::kInvalidArgument,
          "the prompt is not UTF-8: byte {} (0x{:02x}) is ill-formed", bad,
          bad == std::string::npos ? 0 : static_cast<unsigned char>(options.prompt[bad]));
  LoadedModel loaded = load(arguments);
  return generate_text(loaded, arguments, generation, options);
}

MILLRACE_SUBCOMMAND("run", 10, "continue a prompt", run);

}  // namespace
}  // namespace millrace::cli
