// millrace synth: a checkpoint of a real shape with random weights.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "core/config.h"
#include "core/error.h"
#include "loaders/synthetic.h"

namespace millrace::cli {
namespace {

std::string describe() {
  std::string text =
      "Writes a GGUF file with the real shape of a named model, random weights and a synthetic vocabulary of "
      "the\n"
      "real size, for timing where no weights are at hand. Every GGUF program can load it.\n\n"
      "TYPE is f32, f16, bf16, q8_0, q4_0, q4_k, q6_k, iq4_xs, mxfp4, ... All matrices get it, but with K- "
      "and\n"
      "i-quants below 6 bits the embedding and output are q6_k; vectors and expert routers are "
      "f32.\n\nShapes:";
  int on_line = 0;
  for (const loaders::SyntheticShape& shape : loaders::synthetic_shapes())
    text += fmt::format("{}{:<16}", on_line++ % 6 == 0 ? "\n  " : "", shape.name);
  return text;
}

int synth(int argc, char** argv) {
  CLI::App app(describe(), "millrace synth");
  std::string shape_name, type_name, path;
  int threads = 0;
  loaders::SyntheticOptions options;
  app.add_option("SHAPE", shape_name, "one of the shapes above")->required();
  app.add_option("TYPE", type_name, "storage type of the matrices")->required();
  app.add_option("OUT", path, "the .gguf file to write")->required();
  app.add_option("--layers", options.layers, "keep only the first N layers")->type_name("N");
  app.add_option("--seed", options.seed, "seed of the random weights (default 1)")->type_name("N");
  app.add_option("-t,--threads", threads, "threads (default: all usable)")->type_name("N");
  if (parse_arguments(app, argc, argv)) return 0;

  const auto type = dtype_from_name(type_name);
  if (!type)
    throw UsageError(fmt::format("'{}' is no storage type: expected f16, q8_0, q4_k, ...", type_name));
  options.type = *type;
  const auto start = std::chrono::steady_clock::now();
  ThreadPool pool(threads);
  uint64_t bytes = 0;
  {
    Progress progress("writing", config::interactive_stderr());
    options.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total, "B"); };
    bytes = loaders::write_synthetic(loaders::find_synthetic_shape(shape_name), options, path, pool);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print(stderr, "{}: {} in {:.1f} s\n", path, human_bytes(bytes), seconds);
  return 0;
}

MILLRACE_SUBCOMMAND("synth", 70, "write a checkpoint of a real shape with random weights", synth);

}  // namespace
}  // namespace millrace::cli
