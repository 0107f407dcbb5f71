// millrace train: learns the weights of a small decoder from a token file, as a JSON config says.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "cli/subcommand.h"
#include "compress/train/export.h"
#include "compress/train/trainer.h"
#include "core/error.h"

namespace millrace::cli {
namespace {

void stop(int) { train::Trainer::request_stop(); }

int run_train(int argc, char** argv) {
  CLI::App app(
      "Train a small decoder from scratch: forward, backward and AdamW on this machine's CPU.\n"
      "CONFIG is a JSON file; docs/training.md lists its keys. Results go to its 'output' folder:\n"
      "checkpoint.bin (to go on from), loss.svg (the curve) and model.gguf.",
      "millrace train");
  std::string config_path, export_path;
  bool resume = false, evaluate = false, export_only = false;
  int64_t until = INT64_MAX;
  int threads = -1;
  app.add_option("CONFIG", config_path, "Training config (JSON)")->required();
  app.add_flag("--resume", resume, "Go on from the checkpoint in the output folder");
  app.add_option("--until", until, "Stop after this step and save, as if interrupted")
      ->check(CLI::PositiveNumber);
  app.add_option("-t,--threads", threads, "Threads (default: the config's, or all usable CPUs)")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--evaluate", evaluate,
               "Only print loss and perplexity of the checkpoint on the validation data");
  app.add_flag("--export-only", export_only, "Only write model.gguf from the checkpoint");
  app.add_option("--export", export_path, "Where to write the model (default: OUTPUT/model.gguf)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
  train::TrainConfig config = train::load_config(config_path);
  if (threads > 0) config.threads = threads;
  ThreadPool pool(config.threads);
  train::Trainer trainer(config, pool, resume || evaluate || export_only);
  if (evaluate) {
    require(!config.validation.empty(), ErrorCode::kInvalidArgument,
            "training config: 'validation' is missing");
    const double loss = trainer.validate();
    fmt::print("step {}: held-out loss {:.4f}, perplexity {:.3f}\n", trainer.step(), loss, std::exp(loss));
    return 0;
  }
  if (!export_only) {
    std::signal(SIGINT, stop);
    std::signal(SIGTERM, stop);
    trainer.run(until);
  }
  if (!config.metadata.empty()) {
    const std::filesystem::path to =
        export_path.empty() ? config.output / "model.gguf" : std::filesystem::path(export_path);
    const uint64_t bytes = train::export_gguf(trainer.model(), config.metadata, to);
    fmt::print("{}: {:.2f} MiB\n", to.string(), static_cast<double>(bytes) / (1 << 20));
  }
  return 0;
}

MILLRACE_SUBCOMMAND("train", 70, "train a small model from a token file", run_train);

}  // namespace
}  // namespace millrace::cli
