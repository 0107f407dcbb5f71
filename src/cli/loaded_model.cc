#include "cli/loaded_model.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>

#include "cli/embedded_model.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "core/config.h"
#include "core/error.h"
#include "text/vocabulary_data.h"

namespace millrace::cli {

void add_model_options(CLI::App& app, ModelArguments& a) {
  app.add_option("-m,--model", a.path, "GGUF file or Hugging Face directory (default: the embedded model)")
      ->type_name("PATH");
  app.add_option("-t,--threads", a.threads, "compute threads (default: what the machine gives this process)")
      ->check(CLI::Range(0, 1024))
      ->type_name("T");
  app.add_option(
         "--isa", a.isa,
         "instruction set: auto (fastest), exact (fastest that computes prompts as answers, so that a "
         "found prefix changes no bit), amx-fp16, amx, amx-int8, avx512, avx2, scalar")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option("--kv-type", a.kv_type, "cache element: auto, f32, bf16, int8, int4")->type_name("TYPE");
  app.add_option("--quantize", a.quantize, "quantise 16- and 32-bit weights while loading (q8_0, q4_k, ...)")
      ->type_name("TYPE");
}

std::unique_ptr<text::Tokenizer> open_tokenizer(const loaders::Checkpoint& checkpoint) {
  if (checkpoint.format == loaders::Format::kGguf)
    return text::make_tokenizer(text::vocabulary_from(text::metadata_reader(checkpoint.metadata)));
  return text::open_hugging_face_tokenizer(checkpoint.path.string());
}

layers::KvType resolve_kv_type(const std::string& name, const models::ModelInfo& info) {
  if (name == "auto") return info.wants_float_cache() ? layers::KvType::kF32 : layers::KvType::kBF16;
  if (name == "f32") return layers::KvType::kF32;
  if (name == "bf16") return layers::KvType::kBF16;
  if (name == "int8") return layers::KvType::kInt8;
  if (name == "int4") return layers::KvType::kInt4;
  throw UsageError(fmt::format("unknown cache type '{}': expected auto, f32, bf16, int8 or int4", name));
}

namespace {

uint64_t tensor_bytes(const loaders::Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const loaders::TensorEntry& tensor : checkpoint.tensors) bytes += tensor.bytes;
  return bytes;
}

}  // namespace

LoadedModel load(const ModelArguments& a, NeedTokenizer need) {
  const auto begin = std::chrono::steady_clock::now();
  LoadedModel loaded;
  try {
    loaded.isa = parse_isa(a.isa);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInvalidArgument) throw UsageError(e.what());
    throw;
  }
  models::LoadOptions options;
  options.isa = loaded.isa;
  if (!a.quantize.empty()) {
    const auto type = dtype_from_name(a.quantize);
    if (!type)
      throw UsageError(fmt::format("unknown type '{}' for --quantize: expected q8_0, q4_k, ...", a.quantize));
    options.quantize = *type;
  }
  loaded.checkpoint = std::make_shared<loaders::Checkpoint>(
      a.path.empty() ? open_embedded_model() : loaders::open_checkpoint(a.path));
  // A small model gains nothing from BF16 activations on the matrix unit; without them the same text comes of
  // every machine.
  if (a.isa == "auto" && models::is_small(tensor_bytes(*loaded.checkpoint)))
    options.isa = loaded.isa = best_isa();
  try {
    loaded.tokenizer = open_tokenizer(*loaded.checkpoint);
  } catch (const Error&) {
    if (need == NeedTokenizer::kYes) throw;
  }
  loaded.pool = std::make_shared<ThreadPool>(a.threads);
  Progress progress("loading", !a.quiet && config::interactive_stderr());
  options.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total, "B"); };
  loaded.model = models::load_model(*loaded.checkpoint, options, *loaded.pool);
  progress.finish();
  loaded.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return loaded;
}

bool parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return true;
  } catch (const CLI::ParseError& e) {
    throw UsageError(fmt::format("{} (`millrace {} --help` tells more)", e.what(), argv[0]));
  }
  return false;
}

}  // namespace millrace::cli
