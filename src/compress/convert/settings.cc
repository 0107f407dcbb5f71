#include "compress/convert/settings.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "core/error.h"

namespace millrace::convert {
namespace {

using models::Config;

models::Key hf(const std::string& name) { return {nullptr, name.c_str()}; }

/// The rotary settings, which lie below rope_parameters (perhaps once more by layer type), below
/// rope_scaling, or at the top, by the age of the file.
class RopeSettings {
 public:
  explicit RopeSettings(const Config& config) : config_(config) {}
  std::optional<float> number(const std::string& name) const {
    for (const char* prefix : kPrefixes)
      if (const std::string key = prefix + name; const auto v = config_.find_number(hf(key))) return v;
    return std::nullopt;
  }
  std::vector<float> numbers(const std::string& name) const {
    for (const char* prefix : kPrefixes)
      if (const std::string key = prefix + name; config_.has(hf(key))) return config_.numbers(hf(key));
    return {};
  }
  std::string text(const std::string& name) const {
    for (const char* prefix : kPrefixes)
      if (const std::string key = prefix + name; config_.has(hf(key))) return config_.text(hf(key));
    return "";
  }

 private:
  static constexpr const char* kPrefixes[] = {"rope_parameters.full_attention.", "rope_parameters.",
                                              "rope_scaling.", ""};
  const Config& config_;
};

/// Divisors of Llama 3.1's rule: long waves are stretched by the factor, short ones kept, those between
/// blended.
std::vector<float> llama3_factors(const RopeSettings& rope, int32_t dim, double base) {
  const double factor = rope.number("factor").value_or(8), low = rope.number("low_freq_factor").value_or(1);
  const double high = rope.number("high_freq_factor").value_or(4);
  const double old = rope.number("original_max_position_embeddings").value_or(8192);
  std::vector<float> factors;
  for (int32_t i = 0; i < dim / 2; ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(base, 2.0 * i / dim);
    double divisor = factor;
    if (wave < old / high)
      divisor = 1;
    else if (wave <= old / low) {
      const double smooth = (old / wave - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    factors.push_back(static_cast<float>(divisor));
  }
  return factors;
}

RopeFactors write_rope(const Config& config, const Recipe& recipe, const Sizes& sizes,
                       loaders::GgufWriter& out) {
  const std::string arch = recipe.architecture;
  const RopeSettings rope(config);
  float base = rope.number("rope_theta").value_or(0);
  if (base == 0) base = config.find_number(hf("rotary_emb_base")).value_or(0);
  if (base == 0) base = 10000;
  if (recipe.heads == Recipe::Heads::kNone || recipe.heads == Recipe::Heads::kSome) return {};
  out.set_f32(arch + ".rope.freq_base", base);
  out.set_u32(arch + ".rope.dimension_count", static_cast<uint32_t>(sizes.rotary_dim));
  std::string type = rope.text("rope_type");
  if (type.empty()) type = rope.text("type");
  RopeFactors factors;
  const float factor = rope.number("factor").value_or(1);
  const auto original = rope.number("original_max_position_embeddings");
  if (type.empty() || type == "default" || type == "mrope") return factors;
  if (type == "dynamic") {
    // The base grows with texts longer than the trained context only: up to there nothing is lost.
    factors.note =
        "the rotary base that grows beyond the trained context (type 'dynamic') has no form in GGUF: the "
        "file is "
        "exact up to that context";
    return factors;
  }
  if (type == "llama3") {
    factors.both = llama3_factors(rope, sizes.rotary_dim, base);
  } else if (type == "linear") {
    out.set_string(arch + ".rope.scaling.type", "linear");
    out.set_f32(arch + ".rope.scaling.factor", factor);
  } else if (type == "yarn") {
    out.set_string(arch + ".rope.scaling.type", "yarn");
    out.set_f32(arch + ".rope.scaling.factor", factor);
    const float context = config.find_number(hf("max_position_embeddings")).value_or(0);
    out.set_u32(arch + ".rope.scaling.original_context_length",
                static_cast<uint32_t>(original.value_or(context)));
    if (const auto fast = rope.number("beta_fast")) out.set_f32(arch + ".rope.scaling.yarn_beta_fast", *fast);
    if (const auto slow = rope.number("beta_slow")) out.set_f32(arch + ".rope.scaling.yarn_beta_slow", *slow);
  } else if (type == "longrope" || type == "su") {
    factors.longer = rope.numbers("long_factor");
    factors.shorter = rope.numbers("short_factor");
    const auto half = static_cast<size_t>(sizes.rotary_dim / 2);
    if (factors.longer.size() != half || factors.shorter.size() != half)
      config.refuse({nullptr, "rope_scaling"},
                    fmt::format("has {} long and {} short factors: expected {} each", factors.longer.size(),
                                factors.shorter.size(), half));
    const float context = config.find_number(hf("max_position_embeddings")).value_or(0);
    const float old = original.value_or(context);
    out.set_u32(arch + ".rope.scaling.original_context_length", static_cast<uint32_t>(old));
    const float ratio = old > 0 ? context / old : 1;
    const float magnitude = ratio > 1 ? std::sqrt(1 + std::log(ratio) / std::log(old)) : 1;
    out.set_f32(arch + ".rope.scaling.attn_factor", rope.number("attention_factor").value_or(magnitude));
  } else {
    config.refuse(
        {nullptr, "rope_scaling"},
        fmt::format("is of type '{}', which GGUF has no form for: expected linear, yarn, llama3 or longrope",
                    type));
  }
  return factors;
}

}  // namespace

Sizes read_sizes(const Config& config, const Recipe& recipe) {
  Sizes s;
  s.layers = config.integer({nullptr, "num_hidden_layers"}, 1, 4096);
  s.hidden = config.integer({nullptr, "hidden_size"}, 1, 1 << 20);
  if (recipe.heads == Recipe::Heads::kNone) return s;
  s.heads = config.integer({nullptr, "num_attention_heads"}, 1, 1 << 16);
  if (recipe.heads == Recipe::Heads::kLatent) {
    // What the cache holds: one latent and one rotated key, read by all heads.
    s.kv_heads = 1;
    s.rotary_dim = config.integer({nullptr, "qk_rope_head_dim"}, 2, 1 << 12);
    s.value_dim = config.integer({nullptr, "kv_lora_rank"}, 1, 1 << 16);
    s.head_dim = s.value_dim + s.rotary_dim;
    return s;
  }
  s.kv_heads = config.find_integer({nullptr, "num_key_value_heads"}, 1, s.heads).value_or(s.heads);
  if (config.has({nullptr, "new_decoder_architecture"})) {
    // Falcon: grouped heads in the newer decoder, one key head for all in the first.
    const bool grouped = config.flag({nullptr, "new_decoder_architecture"}, false);
    s.kv_heads = grouped ? config.find_integer({nullptr, "num_kv_heads"}, 1, s.heads).value_or(s.heads)
                 : config.flag({nullptr, "multi_query"}, true) ? 1
                                                               : s.heads;
  }
  if (recipe.plain_heads) s.kv_heads = s.heads;
  s.head_dim = config.find_integer({nullptr, "head_dim"}, 1, 1 << 14).value_or(0);
  if (s.head_dim == 0) {
    if (s.hidden % s.heads)
      config.refuse({nullptr, "num_attention_heads"},
                    fmt::format("is {}: expected a divisor of the width {}", s.heads, s.hidden));
    s.head_dim = s.hidden / s.heads;
  }
  if (s.heads % s.kv_heads)
    config.refuse({nullptr, "num_key_value_heads"},
                  fmt::format("is {}: expected a divisor of the {} heads", s.kv_heads, s.heads));
  float fraction = RopeSettings(config).number("partial_rotary_factor").value_or(0);
  if (fraction == 0) fraction = config.find_number({nullptr, "rotary_pct"}).value_or(1);
  s.rotary_dim = static_cast<int32_t>(static_cast<float>(s.head_dim) * fraction);
  s.value_dim = s.head_dim;
  if (recipe.heads == Recipe::Heads::kSome) {
    const int32_t period = config.integer({nullptr, "attn_layer_period"}, 1, 4096);
    const int32_t offset = config.integer({nullptr, "attn_layer_offset"}, 0, 4096);
    for (int32_t i = 0; i < s.layers; ++i)
      s.kv_heads_of_layer.push_back(i % period == offset ? static_cast<uint32_t>(s.kv_heads) : 0u);
  }
  return s;
}

namespace {

/// Settings that no key of GGUF holds: a reader of the file would take the usual one.
void refuse_what_gguf_lacks(const Config& config, std::string_view architecture) {
  const auto needs = [&](const char* key, bool usual) {
    if (config.flag(hf(key), usual) != usual)
      config.refuse(hf(key), fmt::format("is {}: GGUF has no form for it", !usual));
  };
  if (architecture == "gpt2") {
    needs("scale_attn_weights", true);
    needs("scale_attn_by_inverse_layer_idx", false);
  }
  if (architecture == "phi2") needs("qk_layernorm", false);
  if (architecture == "deepseek2") needs("rope_interleave", true);
  if (architecture == "deepseek2" && config.architecture() == "DeepseekV2ForCausalLM")
    needs("norm_topk_prob", false);
  if (architecture == "falcon") {
    needs("alibi", false);
    if (!config.flag(hf("new_decoder_architecture"), false)) needs("parallel_attn", true);
  }
  if (architecture == "olmoe" || architecture == "qwen2moe") needs("norm_topk_prob", false);
  if (architecture == "qwen3moe" || architecture == "qwen3next") needs("norm_topk_prob", true);
  const bool all_sparse = config.integers(hf("mlp_only_layers")).empty() &&
                          config.find_integer(hf("decoder_sparse_step")).value_or(1) == 1;
  if (architecture.substr(0, 4) == "qwen" && !all_sparse && config.has(hf("num_experts")))
    config.refuse(
        hf(config.integers(hf("mlp_only_layers")).empty() ? "decoder_sparse_step" : "mlp_only_layers"),
        "leaves layers without experts: GGUF has no form for it");
  const auto local = config.find_number(hf("rope_parameters.sliding_attention.rope_theta"));
  const auto full = config.find_number(hf("rope_parameters.full_attention.rope_theta"));
  if (architecture == "olmo2" && local && full && *local != *full)
    config.refuse(hf("rope_parameters.sliding_attention.rope_theta"),
                  fmt::format("is {} beside {}: GGUF has one base for all layers", *local, *full));
  if (config.find_number(hf("attn_config.softmax_scale")))
    config.refuse(hf("attn_config.softmax_scale"), "is set: GGUF has no form for it");
  constexpr std::string_view kSilu[] = {
      "llama",     "qwen2", "qwen3",     "qwen2moe",  "qwen3moe", "olmoe",   "phi3",    "stablelm",
      "olmo",      "olmo2", "granite",   "command-r", "cohere2",  "smollm3", "chatglm", "glm4",
      "deepseek2", "jamba", "qwen3next", "exaone4",   "seed_oss", "ernie4_5"};
  const std::string act = config.text(hf("hidden_act"), "silu");
  if (std::find(std::begin(kSilu), std::end(kSilu), architecture) != std::end(kSilu) && act != "silu" &&
      act != "swish")
    config.refuse(hf("hidden_act"),
                  fmt::format("is '{}': GGUF has no form for it, its readers take silu", act));
}

}  // namespace

RopeFactors write_settings(const Config& config, const Recipe& recipe, const Sizes& sizes, int64_t ffn_width,
                           loaders::GgufWriter& out) {
  const std::string arch = recipe.architecture;
  refuse_what_gguf_lacks(config, arch);
  const auto u32 = [&](const char* key, int64_t value) {
    out.set_u32(arch + key, static_cast<uint32_t>(value));
  };
  out.set_string("general.architecture", arch);
  const std::string name = config.text({nullptr, "_name_or_path"});
  if (!name.empty()) out.set_string("general.name", name);
  const int32_t context = config.find_integer({nullptr, "max_position_embeddings"}, 1)
                              .value_or(config.find_integer({nullptr, "seq_length"}, 1)
                                            .value_or(recipe.heads == Recipe::Heads::kNone ? 1 << 20 : 2048));
  u32(".context_length", context);
  u32(".embedding_length", sizes.hidden);
  u32(".block_count", sizes.layers);
  u32(".feed_forward_length", ffn_width);
  u32(".attention.head_count", sizes.heads);
  if (sizes.kv_heads_of_layer.empty())
    u32(".attention.head_count_kv", sizes.kv_heads);
  else
    out.set_u32s(arch + ".attention.head_count_kv", sizes.kv_heads_of_layer);
  if (sizes.head_dim > 0) {
    u32(".attention.key_length", sizes.head_dim);
    u32(".attention.value_length", sizes.value_dim);
  }
  float epsilon = 1e-5f;
  for (const char* key : {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"})
    if (const auto value = config.find_number(hf(key))) {
      epsilon = *value;
      break;
    }
  const bool rms = recipe.norm == Recipe::Norm::kRms;
  out.set_f32(arch + (rms ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon"), epsilon);
  for (const Setting& setting : recipe.settings) {
    const models::Key key{nullptr, setting.hf};
    const std::string to = arch + "." + setting.gguf;
    if (!config.has(key)) continue;
    if (setting.kind == Setting::Kind::kBool)
      out.set_bool(to, config.flag(key, false));
    else if (setting.kind == Setting::Kind::kFloat)
      out.set_f32(to, config.number(key));
    else
      u32(("." + std::string(setting.gguf)).c_str(), config.integer(key, 0));
  }
  if (recipe.more_settings) recipe.more_settings(config, sizes, arch, out);
  return write_rope(config, recipe, sizes, out);
}

}  // namespace millrace::convert
