// millrace eval perplexity: how well a model predicts a text.
#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "core/config.h"
#include "core/error.h"
#include "models/sequence_runner.h"

namespace millrace::cli {
namespace {

struct PerplexityOptions {
  std::string text_path;
  int32_t window = 0;
  int32_t max_tokens = 0;
  bool json = false;
};

/// -log p(target) under softmax(logits).
double negative_log_likelihood(const float* logits, int32_t vocab, int32_t target) {
  const float top = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int32_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i]) - top);
  return std::log(sum) + top - logits[target];
}

std::string read_text(const std::string& path) {
  if (path == "-") {
    std::ostringstream all;
    all << std::cin.rdbuf();
    return all.str();
  }
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ErrorCode::kNotFound, "cannot open {}: expected a text file", path);
  std::ostringstream all;
  all << in.rdbuf();
  require(!in.bad(), ErrorCode::kIo, "cannot read {}", path);
  return all.str();
}

int perplexity(const ModelArguments& arguments, const PerplexityOptions& options) {
  LoadedModel loaded = load(arguments);
  const models::ModelInfo& info = loaded.model->info();
  const std::string text = read_text(options.text_path);
  // The text's tokens are cut into windows; each begins with BOS where the vocabulary has it in front, so
  // that every window is a context the model was trained to see. All tokens but the first of a window are
  // scored.
  text::EncodeOptions plain;
  plain.add_special = false;
  plain.parse_special = false;
  std::vector<int32_t> ids = loaded.tokenizer->encode(text, plain);
  if (options.max_tokens > 0 && static_cast<int32_t>(ids.size()) > options.max_tokens)
    ids.resize(static_cast<size_t>(options.max_tokens));
  const bool bos = loaded.tokenizer->adds_bos() && loaded.tokenizer->bos();
  const int32_t limit = info.context_length > 0 ? info.context_length : 2048;
  const int32_t window = options.window > 0 ? options.window : std::min(limit, 512);
  if (window < 2 || (info.context_length > 0 && window > info.context_length))
    throw UsageError(fmt::format("a window of {} tokens does not fit: expected 2 to {}", window, limit));
  const int32_t step = window - (bos ? 1 : 0);
  require(ids.size() >= 2, ErrorCode::kInvalidArgument, "{} has {} tokens: expected at least 2",
          options.text_path, ids.size());
  models::SequenceRunner runner(*loaded.model, *loaded.pool, loaded.isa,
                                resolve_kv_type(arguments.kv_type, info), window);
  Progress progress("scoring", !arguments.quiet && config::interactive_stderr());
  double total = 0;
  int64_t scored = 0;
  const auto begin_time = std::chrono::steady_clock::now();
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(step)) {
    std::vector<int32_t> part;
    if (bos) part.push_back(*loaded.tokenizer->bos());
    const size_t end = std::min(ids.size(), begin + static_cast<size_t>(step));
    part.insert(part.end(), ids.begin() + static_cast<ptrdiff_t>(begin),
                ids.begin() + static_cast<ptrdiff_t>(end));
    if (part.size() < 2) break;
    runner.reset();
    auto score = [&](int32_t first, int32_t rows, const float* logits) {
      for (int32_t r = 0; r < rows; ++r) {
        const auto next = static_cast<size_t>(first + r + 1);
        if (next >= part.size()) break;
        total += negative_log_likelihood(logits + int64_t{r} * info.vocab_size, info.vocab_size, part[next]);
        ++scored;
      }
    };
    const models::SequenceRunner::LogitsVisitor visitor(score);
    runner.append(part, &visitor);
    progress.update(end, ids.size(), "tokens");
  }
  progress.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_time).count();
  const double value = std::exp(total / static_cast<double>(scored));
  if (options.json) {
    const nlohmann::json out = {{"perplexity", value},
                                {"tokens", scored},
                                {"window", window},
                                {"mean_negative_log_likelihood", total / static_cast<double>(scored)},
                                {"seconds", seconds}};
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("perplexity {:.4f} over {} tokens (windows of {}), {:.0f} tokens/s\n", value, scored, window,
               static_cast<double>(scored) / seconds);
  }
  return 0;
}

int run_eval(int argc, char** argv) {
  CLI::App app("Measures a model's quality.", "millrace eval");
  app.require_subcommand(1);
  CLI::App* sub =
      app.add_subcommand("perplexity", "exp of the mean negative log likelihood of a text's tokens");
  ModelArguments arguments;
  PerplexityOptions options;
  add_model_options(*sub, arguments);
  sub->add_option("TEXT", options.text_path, "text file, - for standard input")->required();
  sub->add_option("--window", options.window,
                  "tokens of a window, BOS included (default 512, at most the context)")
      ->check(CLI::Range(2, 1 << 24));
  sub->add_option("--max-tokens", options.max_tokens, "score only the beginning of the text")
      ->check(CLI::Range(2, 1 << 30));
  sub->add_flag("--json", options.json, "print a JSON object");
  if (parse_arguments(app, argc, argv)) return 0;
  return perplexity(arguments, options);
}

MILLRACE_SUBCOMMAND("eval", 50, "measure perplexity on a text", run_eval);

}  // namespace
}  // namespace millrace::cli
