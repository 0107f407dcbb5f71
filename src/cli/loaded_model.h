// What most subcommands begin with: a checkpoint opened, its tokenizer, its model packed by a pool of
// workers, with progress on standard error while that takes a while.
#pragma once

#include <memory>
#include <string>

#include "core/thread_pool.h"
#include "layers/cache_spec.h"
#include "loaders/checkpoint.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace millrace::cli {

struct ModelArguments {
  std::string path;
  int threads = 0;
  std::string isa = "auto";
  std::string kv_type = "auto";
  std::string quantize;
  bool quiet = false;
};

/// -m/--model, --threads, --isa, --kv-type, --quantize.
void add_model_options(CLI::App& app, ModelArguments& arguments);

struct LoadedModel {
  std::shared_ptr<loaders::Checkpoint> checkpoint;
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null when the checkpoint has none
  std::shared_ptr<ThreadPool> pool;
  std::unique_ptr<models::Model> model;
  IsaLevel isa = IsaLevel::kScalar;
  double load_seconds = 0;
};

enum class NeedTokenizer { kYes, kIfThere };

/// Opens, checks and packs. Errors are one sentence with the path.
LoadedModel load(const ModelArguments& arguments, NeedTokenizer need = NeedTokenizer::kYes);

/// The tokenizer of a checkpoint: from GGUF metadata, or from a Hugging Face directory's files.
std::unique_ptr<text::Tokenizer> open_tokenizer(const loaders::Checkpoint& checkpoint);

/// "auto" by the model's weights, or the named type; UsageError for another word.
layers::KvType resolve_kv_type(const std::string& name, const models::ModelInfo& info);

/// Parses with exit status 2 for wrong usage; true when --help was asked for and printed.
bool parse_arguments(CLI::App& app, int argc, char** argv);

}  // namespace millrace::cli
