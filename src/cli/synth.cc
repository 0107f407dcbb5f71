// millrace synth: a checkpoint of a real shape with random weights.
#include <CLI/CLI.hpp>
#include <cctype>
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
      "SHAPE and TYPE may be in any case. TYPE is f32, f16, bf16, q8_0, q4_0, q4_k (or q4_k_m), q6_k, "
      "iq4_xs, mxfp4, ... All matrices get it, but with K- "
      "and\n"
      "i-quants below 6 bits the embedding and output are q6_k; vectors and expert routers are "
      "f32.\n\nShapes:";
  int on_line = 0;
  for (const loaders::SyntheticShape& shape : loaders::synthetic_shapes())
    text += fmt::format("{}{:<16}", on_line++ % 6 == 0 ? "\n  " : "", shape.name);
  return text;
}

std::string lower(std::string_view text) {
  std::string out;
  for (char c : text) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// A shape as people write it: any case, '_' or a blank for '-', and without the family where the size alone
/// names one ("3.1-8B").
const loaders::SyntheticShape& shape_named(std::string_view text) {
  std::string name = lower(text);
  for (char& c : name)
    if (c == '_' || c == ' ') c = '-';
  const loaders::SyntheticShape* by_ending = nullptr;
  int endings = 0;
  for (const loaders::SyntheticShape& shape : loaders::synthetic_shapes()) {
    const std::string_view known = shape.name;
    if (known == name) return shape;
    if (known.ends_with("-" + name)) by_ending = &shape, ++endings;
  }
  return endings == 1 ? *by_ending : loaders::find_synthetic_shape(text);
}

/// A storage type in any case. A recipe ("Q4_K_M") mixes types by tensor; its name without the last part is
/// the type of most of its matrices.
std::optional<DType> type_named(std::string_view text) {
  if (const auto type = dtype_from_name(text)) return type;
  const std::string name = lower(text);
  for (std::string_view size : {"_s", "_m", "_l", "_xl", "-s", "-m", "-l"})
    if (name.size() > size.size() && name.ends_with(size) && name.find("_k") != std::string::npos)
      return dtype_from_name(std::string_view(name).substr(0, name.size() - size.size()));
  return std::nullopt;
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

  const auto type = type_named(type_name);
  if (!type)
    throw UsageError(fmt::format("'{}' is no storage type: expected f16, q8_0, q4_k, ...", type_name));
  options.type = *type;
  const loaders::SyntheticShape& shape = shape_named(shape_name);
  const auto start = std::chrono::steady_clock::now();
  ThreadPool pool(threads);
  uint64_t bytes = 0;
  {
    Progress progress("writing", config::interactive_stderr());
    options.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total, "B"); };
    bytes = loaders::write_synthetic(shape, options, path, pool);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print(stderr, "{}: {} in {:.1f} s\n", path, human_bytes(bytes), seconds);
  return 0;
}

MILLRACE_SUBCOMMAND("synth", 70, "write a checkpoint of a real shape with random weights", synth);

}  // namespace
}  // namespace millrace::cli
