// The settings that families share, under their usual names in GGUF and config.json.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/decoder.h"

namespace millrace::models {
namespace {

/// A setting that is one number for all layers or a list with one each.
std::vector<int32_t> per_layer(const Config& config, Key key, int32_t num_layers, int64_t low, int64_t high) {
  const std::vector<int64_t> values = config.integers(key);
  if (values.empty()) config.refuse(key, "is missing: expected an integer");
  if (values.size() != 1 && static_cast<int32_t>(values.size()) != num_layers)
    config.refuse(key, fmt::format("has {} values: expected one, or one for each of {} layers", values.size(),
                                   num_layers));
  std::vector<int32_t> result;
  for (int32_t i = 0; i < num_layers; ++i) {
    const int64_t v = values.size() == 1 ? values[0] : values[static_cast<size_t>(i)];
    if (v < low || v > high) config.refuse(key, fmt::format("is {}: expected {} to {}", v, low, high));
    result.push_back(static_cast<int32_t>(v));
  }
  return result;
}

constexpr Key kHeads{"attention.head_count", "num_attention_heads"};
constexpr Key kKvHeads{"attention.head_count_kv", "num_key_value_heads"};
constexpr Key kHidden{"embedding_length", "hidden_size"};
constexpr Key kKeyDim{"attention.key_length", "head_dim"};
constexpr Key kFfn{"feed_forward_length", "intermediate_size"};

}  // namespace

DecoderSpec read_common(const Config& config, const Weights& weights) {
  DecoderSpec spec;
  spec.hidden_size = config.integer(kHidden, 1, 1 << 20);
  const int32_t num_layers = config.integer({"block_count", "num_hidden_layers"}, 1, 4096);
  spec.context_length = config.find_integer({"context_length", "max_position_embeddings"}, 1).value_or(0);
  spec.vocab_size = static_cast<int32_t>(weights.rows_of("token_embd"));
  if (const auto rms = config.find_number({"attention.layer_norm_rms_epsilon", "rms_norm_eps"})) {
    spec.norm_epsilon = *rms;
  } else {
    for (const char* hf : {"layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"}) {
      const auto layer = config.find_number({"attention.layer_norm_epsilon", hf});
      if (!layer) continue;
      spec.norm_epsilon = *layer;
      spec.norm = ops::NormSpec::Kind::kLayer;
      break;
    }
  }
  const auto heads = per_layer(config, kHeads, num_layers, 1, 1 << 16);
  const auto kv_heads = config.has(kKvHeads) ? per_layer(config, kKvHeads, num_layers, 0, 1 << 16) : heads;
  const auto ffn = config.has(kFfn) ? per_layer(config, kFfn, num_layers, 0, 1 << 24)
                                    : std::vector<int32_t>(static_cast<size_t>(num_layers), 0);
  const int32_t key_dim = config.find_integer(kKeyDim, 1, 1 << 14).value_or(0);
  const ops::Activation activation = read_activation(config, ops::Activation::kSilu);
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    BlockSpec b;
    const auto i = static_cast<size_t>(layer);
    b.num_heads = heads[i];
    b.num_kv_heads = kv_heads[i] ? kv_heads[i] : heads[i];  // 0: a layer that does not attend
    if (b.num_heads % b.num_kv_heads != 0)
      config.refuse(kKvHeads,
                    fmt::format("is {}: expected a divisor of the {} heads", b.num_kv_heads, b.num_heads));
    if (key_dim == 0 && spec.hidden_size % b.num_heads != 0)
      config.refuse(kHeads,
                    fmt::format("is {}: expected a divisor of the width {}", b.num_heads, spec.hidden_size));
    b.key_dim = key_dim ? key_dim : spec.hidden_size / b.num_heads;
    b.value_dim = config.find_integer({"attention.value_length", nullptr}, 1, 1 << 14).value_or(b.key_dim);
    b.ffn_width = ffn[i];
    b.activation = activation;
    spec.blocks.push_back(b);
  }
  return spec;
}

void use_plain_blocks(DecoderSpec& spec, const Weights& weights) {
  const auto width = static_cast<int32_t>(weights.rows_of("blk.{}.ffn_up", 0));
  for (BlockSpec& b : spec.blocks) {
    b.num_kv_heads = b.num_heads;
    b.gated = false;
    b.ffn_width = width;
  }
}

ops::Activation read_activation(const Config& config, ops::Activation fallback) {
  std::string name;
  for (const char* key : {"hidden_act", "hidden_activation", "activation_function", "activation"})
    if (name.empty()) name = config.text({nullptr, key});
  if (name.empty()) return fallback;
  if (name == "silu" || name == "swish") return ops::Activation::kSilu;
  if (name == "gelu" || name == "gelu_python") return ops::Activation::kGeluErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return ops::Activation::kGeluTanh;
  if (name == "quick_gelu") return ops::Activation::kGeluQuick;
  if (name == "relu") return ops::Activation::kRelu;
  if (name == "relu2") return ops::Activation::kReluSquared;
  fail(ErrorCode::kUnsupported,
       "{}: activation '{}' is unknown: expected silu, gelu, gelu_new, quick_gelu, relu or relu2",
       config.origin(), name);
}

std::vector<bool> local_layers(const Config& config, size_t num_layers, int32_t period) {
  const std::vector<std::string> types = config.texts({nullptr, "layer_types"});
  if (!types.empty() && types.size() != num_layers)
    config.refuse({nullptr, "layer_types"}, fmt::format("has {} entries: expected one for each of {} layers",
                                                        types.size(), num_layers));
  std::vector<bool> local;
  for (size_t i = 0; i < num_layers; ++i)
    local.push_back(types.empty() ? (static_cast<int32_t>(i) + 1) % period != 0
                                  : types[i] == "sliding_attention");
  return local;
}

namespace {

/// A rope setting of config.json: transformers 5 keeps them below rope_parameters (perhaps once more by layer
/// type), earlier ones below rope_scaling or at the top.
class HfRope {
 public:
  HfRope(const Config& config, const std::string& part) : config_(config) {
    const std::string own = "rope_parameters." + part + ".", type = own + "rope_type";
    if (!part.empty()) prefixes_.push_back(own);
    // A layer type with settings of its own has no others.
    if (!part.empty() && config.has({nullptr, type.c_str()})) return;
    prefixes_.push_back("rope_parameters.");
    prefixes_.push_back("rope_scaling.");
  }
  std::optional<float> number(const char* name) const {
    for (const std::string& p : prefixes_)
      if (const auto v = config_.find_number({nullptr, (p + name).c_str()})) return v;
    return std::nullopt;
  }
  std::vector<float> numbers(const char* name) const {
    for (const std::string& p : prefixes_)
      if (auto v = config_.numbers({nullptr, (p + name).c_str()}); !v.empty()) return v;
    return {};
  }
  std::string text(const char* name) const {
    for (const std::string& p : prefixes_)
      if (auto v = config_.text({nullptr, (p + name).c_str()}); !v.empty()) return v;
    return "";
  }
  bool flag(const char* name, bool fallback) const {
    for (const std::string& p : prefixes_) {
      const std::string full = p + name;
      if (config_.has({nullptr, full.c_str()})) return config_.flag({nullptr, full.c_str()}, fallback);
    }
    return fallback;
  }

 private:
  const Config& config_;
  std::vector<std::string> prefixes_;
};

void read_hf_scaling(const Config& config, const std::string& part, double base, YarnRamp ramp,
                     layers::Rope& rope) {
  const HfRope hf(config, part);
  std::string type = hf.text("rope_type");
  if (type.empty()) type = hf.text("type");
  const double factor = hf.number("factor").value_or(1.0f);
  const auto context =
      static_cast<double>(config.find_number({nullptr, "max_position_embeddings"}).value_or(0));
  double original = hf.number("original_max_position_embeddings").value_or(0);
  if (original == 0) original = config.find_number({nullptr, "original_max_position_embeddings"}).value_or(0);
  if (type.empty() || type == "default" || type == "mrope") {
    rope.frequencies = ops::rope_default(rope.dim, base);
  } else if (type == "linear") {
    rope.frequencies = ops::rope_linear(rope.dim, base, factor);
  } else if (type == "dynamic") {
    rope.frequencies = ops::rope_default(rope.dim, base);
    rope.dynamic_base = base;
    rope.dynamic_factor = factor;
    rope.original_context = static_cast<int32_t>(context);
  } else if (type == "yarn") {
    ops::YarnParameters y;
    y.factor = factor;
    y.beta_fast = hf.number("beta_fast").value_or(32);
    y.beta_slow = hf.number("beta_slow").value_or(1);
    y.original_context = original ? original : context;
    y.attention_factor = hf.number("attention_factor").value_or(0);
    y.mscale = hf.number("mscale").value_or(0);
    y.mscale_all_dim = hf.number("mscale_all_dim").value_or(0);
    y.truncate = hf.flag("truncate", ramp == YarnRamp::kWhole);
    rope.frequencies = ops::rope_yarn(rope.dim, base, y);
  } else if (type == "llama3") {
    ops::Llama3Parameters l;
    l.factor = factor;
    l.low_freq_factor = hf.number("low_freq_factor").value_or(1);
    l.high_freq_factor = hf.number("high_freq_factor").value_or(4);
    l.original_context = original ? original : 8192;
    rope.frequencies = ops::rope_llama3(rope.dim, base, l);
  } else if (type == "longrope" || type == "su") {
    const auto longer = hf.numbers("long_factor"), shorter = hf.numbers("short_factor");
    const auto half = static_cast<size_t>(rope.dim / 2);
    if (longer.size() != half || shorter.size() != half)
      config.refuse({nullptr, "rope_scaling"},
                    fmt::format("has {} long and {} short factors: expected {} each", longer.size(),
                                shorter.size(), half));
    double ratio = factor;
    if (hf.number("factor") == std::nullopt && original > 0) ratio = context / original;
    double magnitude = hf.number("attention_factor").value_or(0);
    if (magnitude == 0)
      magnitude = ratio <= 1 ? 1 : std::sqrt(1 + std::log(ratio) / std::log(original ? original : context));
    rope.frequencies = ops::rope_factors(rope.dim, base, shorter, static_cast<float>(magnitude));
    rope.long_frequencies = ops::rope_factors(rope.dim, base, longer, static_cast<float>(magnitude));
    rope.original_context = static_cast<int32_t>(original ? original : context);
  } else {
    fail(ErrorCode::kUnsupported,
         "{}: rope type '{}' is unknown: expected default, linear, dynamic, yarn, llama3 or longrope",
         config.origin(), type);
  }
}

void read_gguf_scaling(const Config& config, Weights& weights, double base, YarnRamp ramp,
                       layers::Rope& rope) {
  const std::string type = config.text({"rope.scaling.type", nullptr}, "none");
  const double factor = config.find_number({"rope.scaling.factor", nullptr})
                            .value_or(config.find_number({"rope.scale_linear", nullptr}).value_or(1.0f));
  const auto original = config.find_integer({"rope.scaling.original_context_length", nullptr}).value_or(0);
  const float attention_factor = config.find_number({"rope.scaling.attn_factor", nullptr}).value_or(0);
  const int64_t half = rope.dim / 2;
  // Factors are written once for the model, or with each layer by some converters.
  auto factors = [&](const char* name) {
    return weights.values(name, ".weight", half, Weights::Need::kOptional, 0);
  };
  std::vector<float> both = factors("rope_freqs");
  const std::vector<float> longer = factors("rope_factors_long"), shorter = factors("rope_factors_short");
  if (!longer.empty() && !shorter.empty()) {
    const double context = config.find_integer({"context_length", nullptr}).value_or(original);
    double magnitude = attention_factor;
    if (magnitude == 0)
      magnitude = original > 0 && context > original
                      ? std::sqrt(1 + std::log(context / original) / std::log(original))
                      : 1;
    rope.frequencies = ops::rope_factors(rope.dim, base, shorter, static_cast<float>(magnitude));
    rope.long_frequencies = ops::rope_factors(rope.dim, base, longer, static_cast<float>(magnitude));
    rope.original_context = original;
  } else if (!both.empty()) {
    rope.frequencies = ops::rope_factors(rope.dim, base, both, 1.0f);
  } else if (type == "linear" || (type == "none" && factor > 1)) {
    rope.frequencies = ops::rope_linear(rope.dim, base, factor);
  } else if (type == "yarn") {
    ops::YarnParameters y;
    y.factor = factor;
    y.original_context = original;
    y.beta_fast = config.find_number({"rope.scaling.yarn_beta_fast", nullptr}).value_or(32);
    y.beta_slow = config.find_number({"rope.scaling.yarn_beta_slow", nullptr}).value_or(1);
    y.truncate = ramp == YarnRamp::kWhole;
    if (attention_factor > 0) y.attention_factor = attention_factor * (0.1 * std::log(factor) + 1);
    // DeepSeek sharpens the softmax instead of stretching what is rotated.
    if (config.has({"rope.scaling.yarn_log_multiplier", nullptr})) y.attention_factor = 1;
    rope.frequencies = ops::rope_yarn(rope.dim, base, y);
  } else if (type == "none" || type.empty() || factor <= 1) {
    rope.frequencies = ops::rope_default(rope.dim, base);
  } else {
    fail(ErrorCode::kUnsupported,
         "{}: rope scaling type '{}' is unknown: expected none, linear, yarn or longrope", config.origin(),
         type);
  }
}

}  // namespace

layers::Rope read_rope(const Config& config, Weights& weights, int32_t head_dim, ops::RopeLayout layout,
                       const std::string& part, Key base_key, YarnRamp ramp) {
  layers::Rope rope;
  rope.layout = layout;
  double base = config.find_number(base_key).value_or(0);
  if (config.gguf()) {
    rope.dim = config.find_integer({"rope.dimension_count", nullptr}, 0, head_dim).value_or(head_dim);
    if (base == 0) base = 10000;
  } else {
    const HfRope hf(config, part);
    const float fraction =
        hf.number("partial_rotary_factor")
            .value_or(config.find_number({nullptr, "partial_rotary_factor"})
                          .value_or(config.find_number({nullptr, "rotary_pct"}).value_or(1.0f)));
    rope.dim = static_cast<int32_t>(static_cast<float>(head_dim) * fraction);
    if (const auto theta = hf.number("rope_theta")) base = *theta;
    if (base == 0) base = 10000;
  }
  if (rope.dim % 2 != 0 || rope.dim > head_dim)
    config.refuse({"rope.dimension_count", "partial_rotary_factor"},
                  fmt::format("makes {} rotated values of {}: expected an even number", rope.dim, head_dim));
  require(base > 0, ErrorCode::kInvalidFile, "{}: '{}' is {}: expected a positive number", config.origin(),
          config.name_of(base_key), base);
  if (rope.dim == 0) return rope;
  if (config.gguf())
    read_gguf_scaling(config, weights, base, ramp, rope);
  else
    read_hf_scaling(config, part, base, ramp, rope);
  return rope;
}

}  // namespace millrace::models
