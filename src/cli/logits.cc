// millrace logits: FP32 logits for given token ids, for comparing with other programs.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/loaded_model.h"
#include "cli/subcommand.h"
#include "core/error.h"
#include "models/sequence_runner.h"

namespace millrace::cli {
namespace {

void print_row(const float* row, int32_t vocab, bool first) {
  std::fputs(first ? "[" : ",\n[", stdout);
  std::string line;
  for (int32_t i = 0; i < vocab; ++i) {
    if (i) line += ',';
    // JSON has no infinities; a logit that is none is null.
    line += std::isfinite(row[i]) ? fmt::format("{:.9g}", row[i]) : "null";
  }
  std::fputs(line.c_str(), stdout);
  std::fputs("]", stdout);
}

int run_logits(int argc, char** argv) {
  CLI::App app("Prints the logits after each of the given token ids, as a JSON array of rows.",
               "millrace logits");
  ModelArguments arguments;
  add_model_options(app, arguments);
  std::vector<int32_t> ids;
  bool last = false, json = false;
  int32_t chunk = 256;
  app.add_option("--ids", ids, "token ids, separated by commas")
      ->delimiter(',')
      ->required()
      ->type_name("1,2,3");
  app.add_flag("--last", last, "only the row of the last id");
  app.add_flag("--json", json, "print JSON (the only form there is)");
  app.add_option("--chunk", chunk, "rows computed together")->check(CLI::Range(1, 1 << 20))->type_name("N");
  if (parse_arguments(app, argc, argv)) return 0;
  LoadedModel loaded = load(arguments, NeedTokenizer::kIfThere);
  models::SequenceRunner runner(*loaded.model, *loaded.pool, loaded.isa,
                                resolve_kv_type(arguments.kv_type, loaded.model->info()),
                                static_cast<int32_t>(ids.size()));
  const int32_t vocab = loaded.model->info().vocab_size;
  std::fputs("[", stdout);
  if (last) {
    print_row(runner.append(ids, nullptr, chunk), vocab, true);
  } else {
    auto print_chunk = [&](int32_t first, int32_t rows, const float* logits) {
      for (int32_t r = 0; r < rows; ++r) print_row(logits + int64_t{r} * vocab, vocab, first + r == 0);
    };
    const models::SequenceRunner::LogitsVisitor visitor(print_chunk);
    runner.append(ids, &visitor, chunk);
  }
  std::fputs("]\n", stdout);
  return 0;
}

MILLRACE_SUBCOMMAND("logits", 70, "print raw logits for token ids", run_logits);

}  // namespace
}  // namespace millrace::cli
