// millrace inspect: what a checkpoint holds and what running it takes, read from its header alone.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/embedded_model.h"
#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "core/error.h"
#include "core/utf8.h"
#include "engine/engine.h"
#include "loaders/checkpoint.h"
#include "models/config.h"
#include "quant/traits.h"

namespace millrace::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kShownElements = 8;
constexpr size_t kShownText = 100;

struct TypeTotal {
  uint64_t tensors = 0, parameters = 0, bytes = 0;
};

/// What running takes, in bytes.
struct Memory {
  uint64_t weights = 0, cache = 0, activations = 0;
  uint64_t cache_per_token = 0;
  int64_t context = 0;
  bool float_cache = false;
  uint64_t total() const { return weights + cache + activations; }
};

struct Summary {
  std::string architecture;  ///< empty when the file does not say
  std::map<DType, TypeTotal> types;
  uint64_t parameters = 0, bytes = 0, file_bytes = 0;
  std::optional<Memory> memory;  ///< none for a vocabulary alone
};

/// Heads, widths and depth, as far as the configuration gives them.
struct Sizes {
  int64_t layers = 0, hidden = 0, heads = 0, ffn = 0, vocabulary = 0, context = 0;
  std::vector<int64_t> kv_heads;  ///< one a layer
  int64_t key = 0, value = 0;
  int64_t latent = 0;  ///< cached values a token and layer under latent attention; 0: none
};

int64_t find_size(const models::Config& config, models::Key key, int64_t fallback = 0) {
  // Some files give a list with one value a layer; the largest bounds them all.
  const std::vector<int64_t> values = config.has(key) ? config.integers(key) : std::vector<int64_t>();
  const int64_t size = values.empty() ? fallback : *std::max_element(values.begin(), values.end());
  return std::clamp<int64_t>(size, 0, int64_t{1} << 30);
}

Sizes read_sizes(const models::Config& config, const loaders::Checkpoint& checkpoint) {
  Sizes s;
  s.layers = std::min<int64_t>(find_size(config, {"block_count", "num_hidden_layers"}), 1 << 16);
  s.hidden = find_size(config, {"embedding_length", "hidden_size"});
  s.heads = find_size(config, {"attention.head_count", "num_attention_heads"});
  s.ffn = find_size(config, {"feed_forward_length", "intermediate_size"});
  s.context = find_size(config, {"context_length", "max_position_embeddings"});
  const int64_t head_dim = s.heads ? s.hidden / s.heads : 0;
  s.key = find_size(config, {"attention.key_length", "head_dim"}, head_dim);
  s.value = find_size(config, {"attention.value_length", "head_dim"}, head_dim);
  const models::Key kv_key{"attention.head_count_kv", "num_key_value_heads"};
  s.kv_heads = config.has(kv_key) ? config.integers(kv_key) : std::vector<int64_t>{s.heads};
  if (s.kv_heads.size() == 1) s.kv_heads.assign(static_cast<size_t>(s.layers), s.kv_heads.front());
  const int64_t rank = find_size(config, {"attention.kv_lora_rank", "kv_lora_rank"});
  if (rank) s.latent = rank + find_size(config, {"rope.dimension_count", "qk_rope_head_dim"});
  for (const char* name : {"token_embd.weight", "model.embed_tokens.weight"})
    if (const auto* t = checkpoint.find(name)) s.vocabulary = t->shape[0];
  return s;
}

Memory estimate_memory(const models::Config& config, const loaders::Checkpoint& checkpoint,
                       uint64_t weights) {
  const Sizes s = read_sizes(config, checkpoint);
  Memory m;
  m.weights = weights;
  m.context = s.context;
  // As `run` chooses: FP32 models keep an FP32 cache, all others BF16.
  m.float_cache = std::all_of(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                              [](const auto& t) { return t.dtype == DType::kF32; });
  const uint64_t element = m.float_cache ? 4 : 2;
  for (const int64_t heads : s.kv_heads)
    m.cache_per_token +=
        element * static_cast<uint64_t>(
                      s.latent ? s.latent : std::clamp<int64_t>(heads, 0, 1 << 16) * (s.key + s.value));
  m.cache = m.cache_per_token * static_cast<uint64_t>(s.context);
  // One step: the residual stream, a norm's output, Q with the attention's output, K, V, gate and up, in
  // FP32.
  const int64_t kv = s.kv_heads.empty() ? 0 : *std::max_element(s.kv_heads.begin(), s.kv_heads.end());
  const int64_t per_token = 3 * s.hidden + 2 * s.heads * s.key +
                            std::clamp<int64_t>(kv, 0, 1 << 16) * (s.key + s.value) + 2 * s.ffn;
  const engine::EngineOptions defaults;
  const auto tokens = static_cast<uint64_t>(std::max<int64_t>(defaults.token_budget, 1));
  m.activations = 4 * (tokens * static_cast<uint64_t>(per_token) + static_cast<uint64_t>(s.vocabulary));
  return m;
}

Summary summarise(const loaders::Checkpoint& checkpoint) {
  Summary s;
  std::vector<const MappedFile*> files;
  for (const loaders::TensorEntry& t : checkpoint.tensors) {
    TypeTotal& total = s.types[t.dtype];
    const auto elements = static_cast<uint64_t>(t.shape.elements());
    ++total.tensors;
    total.parameters += elements;
    total.bytes += t.bytes;
    s.parameters += elements;
    s.bytes += t.bytes;
    if (std::find(files.begin(), files.end(), t.file.get()) == files.end()) {
      files.push_back(t.file.get());
      s.file_bytes += t.file->bytes().size();
    }
  }
  if (files.empty() && std::filesystem::is_regular_file(checkpoint.path))
    s.file_bytes = std::filesystem::file_size(checkpoint.path);
  const bool gguf = checkpoint.format == loaders::Format::kGguf;
  if (!checkpoint.metadata.has(gguf ? "general.architecture" : "architectures")) return s;
  const models::Config config(checkpoint);
  s.architecture = config.architecture();
  if (checkpoint.tensors.empty()) return s;
  try {
    s.memory = estimate_memory(config, checkpoint, s.bytes);
  } catch (const Error&) {
    // A configuration that cannot be run can still be looked at; the estimate is left out.
  }
  return s;
}

/// Where a tensor begins in its file.
uint64_t file_offset(const loaders::TensorEntry& t) {
  return static_cast<uint64_t>(t.data - t.file->bytes().data());
}

template <typename List>
constexpr bool kIsArray = !std::is_same_v<List, std::string> && requires(const List& l) {
  l.size();
};

/// A metadata value as JSON; a long array becomes its length and first elements unless `full`.
ordered_json to_json(const loaders::Value& value, bool full) {
  return std::visit(
      [&](const auto& v) -> ordered_json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (kIsArray<T>) {
          constexpr size_t kWhole = 64;
          const bool whole = full || v.size() <= kWhole;
          ordered_json list = ordered_json::array();
          for (size_t i = 0; i < (whole ? v.size() : kShownElements); ++i)
            list.push_back(static_cast<typename T::value_type>(v[i]));
          if (whole) return list;
          return {{"length", v.size()}, {"first", list}};
        } else {
          return v;
        }
      },
      value);
}

/// One line of at most kShownText bytes or so.
std::string shorten(const std::string& text) {
  const size_t end = utf8::complete_prefix(std::string_view(text).substr(0, kShownText));
  std::string line = utf8::replace_invalid(std::string_view(text).substr(0, end));
  std::string out;
  for (const char c : line) {
    if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) < 32 || c == 127)
      out += ' ';
    else
      out += c;
  }
  return end < text.size() ? fmt::format("{}... ({} bytes)", out, text.size()) : out;
}

std::string to_text(const loaders::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return shorten(v);
        } else if constexpr (kIsArray<T>) {
          std::string text = "[";
          for (size_t i = 0; i < std::min(v.size(), kShownElements); ++i) {
            if constexpr (std::is_same_v<typename T::value_type, std::string>)
              text += fmt::format("{}\"{}\"", i ? ", " : "", shorten(v[i]));
            else
              text += fmt::format("{}{}", i ? ", " : "", static_cast<typename T::value_type>(v[i]));
          }
          return v.size() > kShownElements ? fmt::format("{}, ...] ({} elements)", text, v.size())
                                           : text + "]";
        } else {
          return fmt::format("{}", v);
        }
      },
      value);
}

const char* format_name(const loaders::Checkpoint& checkpoint) {
  return checkpoint.format == loaders::Format::kGguf ? "gguf" : "hugging-face";
}

std::string model_name(const loaders::Checkpoint& checkpoint) {
  for (const char* key : {"general.name", "_name_or_path"})
    if (const auto* v = checkpoint.metadata.find(key))
      if (const auto* text = std::get_if<std::string>(v)) return *text;
  return "";
}

void print_json(const loaders::Checkpoint& checkpoint, const Summary& s, bool full) {
  ordered_json out;
  out["path"] = checkpoint.path.string();
  out["format"] = format_name(checkpoint);
  out["file_bytes"] = s.file_bytes;
  out["architecture"] = s.architecture;
  out["name"] = model_name(checkpoint);
  out["parameters"] = s.parameters;
  out["weight_bytes"] = s.bytes;
  ordered_json& types = out["types"] = ordered_json::object();
  for (const auto& [type, total] : s.types)
    types[std::string(dtype_name(type))] = {
        {"tensors", total.tensors}, {"parameters", total.parameters}, {"bytes", total.bytes}};
  if (s.memory) {
    const Memory& m = *s.memory;
    out["memory"] = {{"weights_bytes", m.weights},
                     {"kv_cache_bytes", m.cache},
                     {"kv_cache_bytes_per_token", m.cache_per_token},
                     {"kv_cache_type", m.float_cache ? "f32" : "bf16"},
                     {"context", m.context},
                     {"activation_bytes", m.activations},
                     {"total_bytes", m.total()}};
  }
  ordered_json& metadata = out["metadata"] = ordered_json::object();
  for (const auto& [key, value] : checkpoint.metadata.entries()) metadata[key] = to_json(value, full);
  ordered_json& tensors = out["tensors"] = ordered_json::array();
  for (const loaders::TensorEntry& t : checkpoint.tensors)
    tensors.push_back(
        {{"name", t.name},
         {"type", std::string(dtype_name(t.dtype))},
         {"shape", std::vector<int64_t>(t.shape.dims.begin(), t.shape.dims.begin() + t.shape.ndim)},
         {"bytes", t.bytes},
         {"offset", file_offset(t)}});
  const std::string text = out.dump(2, ' ', false, ordered_json::error_handler_t::replace);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

void print_text(const loaders::Checkpoint& checkpoint, const Summary& s, bool with_tensors) {
  fmt::print("{}: {}, {}{}\n", checkpoint.path.string(), format_name(checkpoint), human_bytes(s.file_bytes),
             s.architecture.empty() ? "" : ", architecture " + shorten(s.architecture));
  fmt::print("\nmetadata ({})\n", checkpoint.metadata.entries().size());
  for (const auto& [key, value] : checkpoint.metadata.entries())
    fmt::print("  {:<42} {}\n", shorten(key), to_text(value));
  if (with_tensors) {
    fmt::print("\ntensors ({}; shapes outermost first)\n", checkpoint.tensors.size());
    for (const loaders::TensorEntry& t : checkpoint.tensors)
      fmt::print("  {:<42} {:<8} {:<22} {}\n", shorten(t.name), dtype_name(t.dtype), t.shape.to_string(),
                 human_bytes(t.bytes));
  }
  if (checkpoint.tensors.empty()) return;
  fmt::print("\ntypes\n");
  for (const auto& [type, total] : s.types)
    fmt::print("  {:<8} {:>6} tensors {:>16} parameters {:>12}\n", dtype_name(type), total.tensors,
               total.parameters, human_bytes(total.bytes));
  fmt::print("  all      {:>6} tensors {:>16} parameters {:>12}\n", checkpoint.tensors.size(), s.parameters,
             human_bytes(s.bytes));
  if (!s.memory) return;
  const Memory& m = *s.memory;
  fmt::print("\nmemory to run (estimated)\n  weights      {:>12}\n", human_bytes(m.weights));
  fmt::print("  KV cache     {:>12}  at most, for one sequence of {} tokens in {}; {} a token\n",
             human_bytes(m.cache), m.context, m.float_cache ? "FP32" : "BF16",
             human_bytes(m.cache_per_token));
  fmt::print("  activations  {:>12}\n  together     {:>12}\n", human_bytes(m.activations),
             human_bytes(m.total()));
}

int inspect(int argc, char** argv) {
  CLI::App app(
      "Shows what a checkpoint holds: metadata, tensors, sizes by storage type, parameters, and an estimate "
      "of\n"
      "the memory that running it takes. Reads the header only; weights are not touched.",
      "millrace inspect");
  std::string path;
  bool json = false, full = false, brief = false;
  app.add_option("FILE", path,
                 "GGUF file (any part of a split) or Hugging Face directory (default: the embedded model)");
  app.add_flag("--json", json, "one JSON object on standard output");
  app.add_flag("--full", full, "with --json: long arrays in full");
  app.add_flag("--brief", brief, "leave out the list of tensors (text only)");
  if (parse_arguments(app, argc, argv)) return 0;
  const loaders::Checkpoint checkpoint =
      path.empty() ? open_embedded_model() : loaders::open_checkpoint(path);
  const Summary summary = summarise(checkpoint);
  if (json)
    print_json(checkpoint, summary, full);
  else
    print_text(checkpoint, summary, !brief);
  return 0;
}

MILLRACE_SUBCOMMAND("inspect", 40, "show metadata, tensors, sizes and memory needs of a checkpoint", inspect);

}  // namespace
}  // namespace millrace::cli
