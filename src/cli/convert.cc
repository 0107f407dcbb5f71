// millrace convert: a Hugging Face directory as one GGUF file.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "compress/convert/gguf_export.h"
#include "core/config.h"
#include "core/error.h"
#include "text/tokenizer.h"

namespace millrace::cli {
namespace {

constexpr int32_t kUnusedToken = 5;

bool has_tokenizer(const std::filesystem::path& directory) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"})
    if (std::filesystem::exists(directory / name)) return true;
  return false;
}

/// "tokenizer.*" of a vocabulary, filled up with unused tokens to the embedding's rows.
void write_vocabulary(text::VocabularyData v, const std::string& directory, int64_t rows,
                      loaders::GgufWriter& out) {
  require(static_cast<int64_t>(v.tokens.size()) <= rows, ErrorCode::kInvalidFile,
          "{}: the tokenizer has {} tokens: expected at most the {} rows of the embedding", directory,
          v.tokens.size(), rows);
  if (v.types.empty()) v.types.assign(v.tokens.size(), 1);
  while (static_cast<int64_t>(v.tokens.size()) < rows) {
    v.tokens.push_back(fmt::format("[PAD{}]", v.tokens.size()));
    v.types.push_back(kUnusedToken);
  }
  const std::string prefix = "tokenizer.ggml.";
  out.set_string(prefix + "model", v.model);
  if (!v.pre.empty()) out.set_string(prefix + "pre", v.pre);
  out.set_strings(prefix + "tokens", v.tokens);
  out.set_i32s(prefix + "token_type", v.types);
  if (!v.scores.empty()) {
    v.scores.resize(v.tokens.size(), -1000.0f);
    out.set_f32s(prefix + "scores", v.scores);
  }
  if (!v.merges.empty()) out.set_strings(prefix + "merges", v.merges);
  const auto id = [&](const char* key, std::optional<text::TokenId> token) {
    if (token) out.set_u32(prefix + key, static_cast<uint32_t>(*token));
  };
  id("bos_token_id", v.bos);
  id("eos_token_id", v.eos);
  id("eot_token_id", v.eot);
  id("eom_token_id", v.eom);
  id("unknown_token_id", v.unknown);
  id("seperator_token_id", v.separator);  // misspelt so in the format
  id("padding_token_id", v.padding);
  id("mask_token_id", v.mask);
  id("cls_token_id", v.cls);
  const auto flag = [&](const char* key, std::optional<bool> value) {
    if (value) out.set_bool(prefix + key, *value);
  };
  flag("add_bos_token", v.add_bos);
  flag("add_eos_token", v.add_eos);
  flag("add_space_prefix", v.add_space_prefix);
  flag("remove_extra_whitespaces", v.remove_extra_whitespaces);
  if (!v.precompiled_charsmap.empty()) {
    const std::vector<uint64_t> bytes(v.precompiled_charsmap.begin(), v.precompiled_charsmap.end());
    out.set(prefix + "precompiled_charsmap", bytes);
  }
  if (const auto source = text::hugging_face_chat_template(directory))
    out.set_string("tokenizer.chat_template", *source);
}

int convert(int argc, char** argv) {
  CLI::App app(
      "Writes a Hugging Face directory as one GGUF file that llama.cpp loads too.\n"
      "Without --type the matrices keep their own type (FP8 becomes bf16). K- and i-quants below 6 bits keep "
      "the\n"
      "embedding and output at q6_k; rows that do not fit a type's blocks get one of like size that does.",
      "millrace convert");
  std::string directory, path, type_name;
  int threads = 0;
  app.add_option("DIR", directory, "Hugging Face model directory")->required();
  app.add_option("OUT", path, "the .gguf file to write")->required();
  app.add_option("--type", type_name, "storage type of the matrices: f32, f16, bf16, q8_0, q4_k, ...")
      ->type_name("T");
  app.add_option("-t,--threads", threads, "threads (default: all usable)")->type_name("N");
  if (parse_arguments(app, argc, argv)) return 0;

  convert::ExportOptions options;
  if (!type_name.empty()) {
    options.type = dtype_from_name(type_name);
    if (!options.type)
      throw UsageError(fmt::format("'{}' is no storage type: expected f16, q8_0, q4_k, ...", type_name));
  }
  const auto start = std::chrono::steady_clock::now();
  const loaders::Checkpoint checkpoint = loaders::open_checkpoint(directory);
  const bool tokenizer = has_tokenizer(directory);
  options.write_vocabulary = [&](loaders::GgufWriter& out, int64_t rows) {
    if (tokenizer)
      write_vocabulary(text::hugging_face_vocabulary(directory), directory, rows, out);
    else
      out.set_string("tokenizer.ggml.model", "none");
  };
  ThreadPool pool(threads);
  convert::ExportResult result;
  {
    Progress progress("converting", config::interactive_stderr());
    options.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total, "B"); };
    result = convert::export_gguf(checkpoint, options, path, pool);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!tokenizer) fmt::print(stderr, "{} has no tokenizer: the file has no vocabulary\n", directory);
  if (!result.left_out.empty())
    fmt::print(stderr, "{} tensors have no place in GGUF and were left out, '{}' first\n",
               result.left_out.size(), result.left_out[0]);
  if (!result.note.empty()) fmt::print(stderr, "{}\n", result.note);
  fmt::print(stderr, "{}: {} tensors, {} in {:.1f} s\n", path, result.tensors, human_bytes(result.file_bytes),
             seconds);
  return 0;
}

MILLRACE_SUBCOMMAND("convert", 60, "write a Hugging Face directory as a GGUF file", convert);

}  // namespace
}  // namespace millrace::cli
