#include "models/config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "core/error.h"
#include "models/model.h"

namespace millrace::models {
namespace {

/// What older families call a setting in config.json.
struct OlderNames {
  std::string_view usual;
  std::array<std::string_view, 4> others;
};
constexpr OlderNames kOlderNames[] = {
    {"hidden_size", {"n_embd", "d_model", "dim", "n_embed"}},
    {"num_hidden_layers", {"n_layer", "num_layers", "n_layers", ""}},
    {"num_attention_heads", {"n_head", "num_heads", "n_heads", ""}},
    {"max_position_embeddings", {"n_positions", "max_seq_len", "n_ctx", "max_sequence_length"}},
    {"num_experts", {"num_local_experts", "n_routed_experts", "", ""}},
    {"intermediate_size", {"n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"}},
};

/// The text model's own class, for a multi-modal checkpoint whose wrapper no family answers to: "mistral"
/// below text_config is what MistralForCausalLM loads. Empty when there is none.
std::string text_class(const loaders::Metadata& metadata) {
  const auto* type = metadata.find_string("text_config.model_type");
  if (!type) return "";
  const auto plain = [](std::string name) {
    for (const std::string_view end : {"ForCausalLM", "_text"})
      if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0)
        name.resize(name.size() - end.size());
    std::string out;
    for (const char c : name)
      if (c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  for (const Family& family : families())
    for (const std::string& name : family.hf_names)
      if (plain(name) == plain(*type)) return name;
  return "";
}

bool answers_to(const std::string& name) {
  for (const Family& family : families())
    if (std::find(family.hf_names.begin(), family.hf_names.end(), name) != family.hf_names.end()) return true;
  return false;
}

}  // namespace

Config::Config(const loaders::Checkpoint& checkpoint)
    : metadata_(checkpoint.metadata),
      assumed_(checkpoint.metadata.origin()),
      gguf_(checkpoint.format == loaders::Format::kGguf) {
  if (gguf_) {
    architecture_ = metadata_.get_string("general.architecture");
  } else {
    const auto* names = metadata_.find_strings("architectures");
    require(names && !names->empty(), ErrorCode::kInvalidFile,
            "{}: 'architectures' is missing: expected a list with the model's class name",
            metadata_.origin());
    architecture_ = names->front();
    if (!answers_to(architecture_))
      if (std::string text = text_class(metadata_); !text.empty()) architecture_ = std::move(text);
  }
}

std::string Config::resolve(Key key) const {
  if (gguf_) {
    if (!key.gguf) return "";
    return key.gguf[0] == '/' ? std::string(key.gguf + 1) : architecture_ + "." + key.gguf;
  }
  if (!key.hf) return "";
  // Multi-modal checkpoints keep the language model's settings in a part of their own.
  if (metadata_.has(key.hf)) return key.hf;
  if (metadata_.has(std::string("text_config.") + key.hf)) return std::string("text_config.") + key.hf;
  for (const auto& [usual, others] : kOlderNames)
    if (usual == key.hf)
      for (const std::string_view other : others)
        if (!other.empty() && metadata_.has(other)) return std::string(other);
  return key.hf;
}

void Config::assume(const char* hf_key, loaders::Value value) {
  if (!gguf_ && !has({nullptr, hf_key})) assumed_.set(hf_key, std::move(value));
}

const loaders::Metadata& Config::holder(const std::string& name) const {
  return !metadata_.has(name) && assumed_.has(name) ? assumed_ : metadata_;
}

std::string Config::name_of(Key key) const {
  const std::string name = resolve(key);
  return name.empty() ? std::string(gguf_ ? key.hf : key.gguf) : name;
}

void Config::refuse(Key key, const std::string& sentence) const {
  fail(ErrorCode::kInvalidFile, "{}: '{}' {}", origin(), name_of(key), sentence);
}

bool Config::has(Key key) const {
  const std::string name = resolve(key);
  return !name.empty() && holder(name).has(name);
}

int32_t Config::integer(Key key, int64_t low, int64_t high) const {
  const auto value = find_integer(key, low, high);
  if (!value) refuse(key, "is missing: expected an integer");
  return *value;
}

float Config::number(Key key) const {
  const auto value = find_number(key);
  if (!value) refuse(key, "is missing: expected a number");
  return *value;
}

std::optional<int32_t> Config::find_integer(Key key, int64_t low, int64_t high) const {
  if (!has(key)) return std::nullopt;
  const auto value = holder(resolve(key)).find_int(resolve(key));
  if (!value) return std::nullopt;
  if (*value < low || *value > high) refuse(key, fmt::format("is {}: expected {} to {}", *value, low, high));
  return static_cast<int32_t>(*value);
}

std::optional<float> Config::find_number(Key key) const {
  if (!has(key)) return std::nullopt;
  const auto value = holder(resolve(key)).find_float(resolve(key));
  if (!value) return std::nullopt;
  if (!std::isfinite(*value)) refuse(key, "is not a finite number");
  return static_cast<float>(*value);
}

bool Config::flag(Key key, bool fallback) const {
  if (!has(key)) return fallback;
  return holder(resolve(key)).find_bool(resolve(key)).value_or(fallback);
}

std::string Config::text(Key key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  const std::string* value = holder(resolve(key)).find_string(resolve(key));
  return value ? *value : fallback;
}

std::vector<int64_t> Config::integers(Key key) const {
  if (!has(key)) return {};
  const std::string name = resolve(key);
  const loaders::Value* value = holder(name).find(name);
  const bool scalar = std::holds_alternative<int64_t>(*value) || std::holds_alternative<uint64_t>(*value) ||
                      std::holds_alternative<bool>(*value) || std::holds_alternative<std::string>(*value) ||
                      std::holds_alternative<double>(*value);
  if (scalar) return {holder(name).get_int(name)};
  return holder(name).find_ints(name).value_or(std::vector<int64_t>{});
}

std::vector<float> Config::numbers(Key key) const {
  if (!has(key)) return {};
  return holder(resolve(key)).find_floats(resolve(key)).value_or(std::vector<float>{});
}

std::vector<std::string> Config::texts(Key key) const {
  if (!has(key)) return {};
  const auto* value = holder(resolve(key)).find_strings(resolve(key));
  return value ? *value : std::vector<std::string>{};
}

}  // namespace millrace::models
