// millrace bench: how fast a model runs here, as a share of what this machine allows.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/bench_machine.h"
#include "cli/bench_report.h"
#include "cli/bench_run.h"
#include "cli/bench_serve.h"
#include "cli/loaded_model.h"
#include "cli/subcommand.h"
#include "core/cpu.h"
#include "core/error.h"

namespace millrace::cli {
namespace {

struct BenchArguments {
  ModelArguments model;
  std::vector<int32_t> prompt = {512};
  int32_t decode = 32;
  std::vector<int32_t> depth = {0};
  std::vector<int32_t> sequences = {1, 8, 32};
  int32_t chunk = 512;
  int repeat = 3;
  bool json = false;
  std::string plot, profile;
};

double prompt_seconds(BenchSequences& sequences, int32_t tokens, int32_t chunk,
                      ops::Profiler* profiler = nullptr) {
  sequences.rewind();
  double seconds = 0;
  for (int32_t done = 0; done < tokens; done += chunk)
    seconds += sequences.step(std::min(chunk, tokens - done), profiler, std::max(0, tokens - done - chunk));
  return seconds;
}

/// Runs `sample` so often, the machine measured after each.
template <typename Sample>
BenchResult timed(BenchResult result, OperationRecorder& recorder, int times, MachineLimits& limits,
                  Sample sample) {
  result.operations = recorder.take();
  for (const TimedOperation& o : result.operations)
    result.work.add(o.name, o.bytes, o.operations, limits.isa());
  for (int i = 0; i < times; ++i) {
    result.samples.push_back(sample());
    result.rates.push_back(limits.measure());
  }
  return result;
}

BenchResult run_prompt(const LoadedModel& loaded, layers::KvType kv_type, const BenchArguments& a,
                       int32_t tokens, int32_t depth, MachineLimits& limits) {
  BenchSequences sequences(*loaded.model, *loaded.pool, loaded.isa, kv_type, 1, depth, tokens);
  OperationRecorder recorder;
  // The first pass sizes the step's memory; the profiled one is not timed.
  prompt_seconds(sequences, std::min(tokens, a.chunk), a.chunk);
  prompt_seconds(sequences, tokens, a.chunk, &recorder);
  BenchResult result;
  result.prompt = true;
  result.tokens = tokens;
  result.depth = depth;
  return timed(std::move(result), recorder, a.repeat, limits,
               [&] { return prompt_seconds(sequences, tokens, a.chunk); });
}

BenchResult run_decode(const LoadedModel& loaded, layers::KvType kv_type, const BenchArguments& a,
                       int32_t depth, int32_t count, MachineLimits& limits) {
  BenchSequences sequences(*loaded.model, *loaded.pool, loaded.isa, kv_type, count, depth, a.decode + 2);
  OperationRecorder recorder;
  sequences.step(1);
  sequences.step(1, &recorder);
  BenchResult result;
  result.tokens = a.decode;
  result.depth = depth;
  result.sequences = count;
  return timed(std::move(result), recorder, a.decode, limits, [&] { return sequences.step(1); });
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.flush();
  require(out.good(), ErrorCode::kIo, "cannot write {}", path);
}

uint64_t bytes_of(const loaders::Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const auto& tensor : checkpoint.tensors) bytes += tensor.bytes;
  return bytes;
}

void check_arguments(const BenchArguments& a) {
  for (int32_t n : a.prompt)
    if (n < 0) throw UsageError(fmt::format("--prompt {}: expected a number of tokens", n));
  for (int32_t n : a.depth)
    if (n < 0) throw UsageError(fmt::format("--depth {}: expected a number of tokens", n));
  for (int32_t n : a.sequences)
    if (n < 1 || n > 4096) throw UsageError(fmt::format("--sequences {}: expected 1 to 4096", n));
  if (a.decode < 0 || a.chunk < 1 || a.repeat < 1)
    throw UsageError("--decode must not be negative; --chunk and --repeat are at least 1");
}

int bench(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "serve") {
    std::string name = "bench serve";
    argv[1] = name.data();
    return bench_serve(argc - 1, argv + 1);
  }
  CLI::App app(
      "Measures prompt and decode speed, and this machine's limits in the same run.\n`millrace bench serve "
      "URL` puts load on a server.",
      "millrace bench");
  BenchArguments a;
  add_model_options(app, a.model);
  app.add_option("--prompt", a.prompt, "prompt lengths (0: none)")->delimiter(',')->type_name("N,...");
  app.add_option("--decode", a.decode, "decode steps timed (0: none)")->type_name("N");
  app.add_option("--depth", a.depth, "tokens in the cache before")->delimiter(',')->type_name("N,...");
  app.add_option("--sequences", a.sequences, "sequences decoded together")
      ->delimiter(',')
      ->type_name("N,...");
  app.add_option("--chunk", a.chunk, "prompt tokens in one step")->type_name("N");
  app.add_option("--repeat", a.repeat, "runs of each prompt, of which the median counts")->type_name("N");
  app.add_flag("--json", a.json, "print the documented JSON array");
  app.add_option("--plot", a.plot, "write a chart")->type_name("FILE.svg");
  app.add_option("--profile", a.profile, "write a timeline (Chrome trace) and print where time goes")
      ->type_name("FILE");
  if (parse_arguments(app, argc, argv)) return 0;
  check_arguments(a);

  const LoadedModel loaded = load(a.model, NeedTokenizer::kIfThere);
  const layers::KvType kv_type = resolve_kv_type(a.model.kv_type, loaded.model->info());
  BenchReport report;
  report.model = std::filesystem::path(a.model.path).filename().string();
  report.isa = isa_name(loaded.isa);
  report.cpu = cpu_model_name();
  report.threads = loaded.pool->num_threads();
  report.load_seconds = loaded.load_seconds;
  report.file_bytes = bytes_of(*loaded.checkpoint);
  report.weight_bytes = loaded.model->info().weight_bytes;
  report.resident_bytes = resident_bytes();
  report.peak_resident_bytes = peak_resident_bytes();

  MachineLimits limits(*loaded.pool, loaded.isa);
  for (int32_t depth : a.depth) {
    for (int32_t tokens : a.prompt) {
      if (tokens == 0) continue;
      report.results.push_back(run_prompt(loaded, kv_type, a, tokens, depth, limits));
    }
    for (int32_t sequences : a.sequences) {
      if (a.decode == 0) break;
      report.results.push_back(run_decode(loaded, kv_type, a, depth, sequences, limits));
    }
  }
  for (BenchResult& result : report.results) result.best = limits.best();

  fmt::print("{}", a.json ? bench_json(report, limits) : bench_table(report, limits));
  if (!a.plot.empty()) write_file(a.plot, bench_svg(report, limits));
  if (!a.profile.empty()) {
    write_file(a.profile, bench_trace(report, limits));
    fmt::print(a.json ? stderr : stdout, "{}", bench_profile(report, limits));
  }
  return 0;
}

}  // namespace

MILLRACE_SUBCOMMAND("bench", 60, "measure speed against this machine's limits", bench);

}  // namespace millrace::cli
