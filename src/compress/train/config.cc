#include "compress/train/config.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"

namespace millrace::train {
namespace {

using nlohmann::json;

/// Reads the keys of one object and refuses those nobody asked for.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    require(object.is_object(), ErrorCode::kInvalidArgument, "training config: {} must be an object", where_);
  }

  template <typename T>
  void number(const char* key, T& value, double low, double high) {
    seen_.insert(key);
    const auto at = object_.find(key);
    if (at == object_.end()) return;
    const bool whole = std::is_integral_v<T>;
    require(whole ? at->is_number_integer() : at->is_number(), ErrorCode::kInvalidArgument,
            "training config: {}.{} must be {}", where_, key, whole ? "a whole number" : "a number");
    const double given = at->get<double>();
    require(given >= low && given <= high, ErrorCode::kInvalidArgument,
            "training config: {}.{} is {}, expected {} to {}", where_, key, given, low, high);
    value = at->get<T>();
  }

  void boolean(const char* key, bool& value) {
    seen_.insert(key);
    const auto at = object_.find(key);
    if (at == object_.end()) return;
    require(at->is_boolean(), ErrorCode::kInvalidArgument, "training config: {}.{} must be true or false",
            where_, key);
    value = at->get<bool>();
  }

  std::string text(const char* key) {
    seen_.insert(key);
    const auto at = object_.find(key);
    if (at == object_.end()) return {};
    require(at->is_string(), ErrorCode::kInvalidArgument, "training config: {}.{} must be a string", where_,
            key);
    return at->get<std::string>();
  }

  void skip(const char* key) { seen_.insert(key); }

  void finish() const {
    for (const auto& item : object_.items())
      require(seen_.count(item.key()) == 1, ErrorCode::kInvalidArgument,
              "training config: {} has no key '{}'", where_, item.key());
  }

 private:
  const json& object_;
  std::string where_;
  std::set<std::string> seen_;
};

ModelShape parse_shape(const json& object) {
  ModelShape m;
  Reader r(object, "model");
  r.number("vocab_size", m.vocab_size, 32, 1 << 20);
  r.number("dim", m.dim, 32, 8192);
  r.number("layers", m.num_layers, 1, 256);
  r.number("heads", m.num_heads, 1, 256);
  m.num_kv_heads = m.num_heads;
  r.number("kv_heads", m.num_kv_heads, 1, 256);
  r.number("head_dim", m.head_dim, 32, 256);
  r.number("feed_forward", m.feed_forward, 32, 65536);
  r.number("experts", m.num_experts, 0, 256);
  r.number("experts_per_token", m.experts_per_token, 0, 256);
  r.number("rope_theta", m.rope_theta, 1, 1e9);
  r.number("norm_epsilon", m.norm_epsilon, 0, 1);
  r.finish();
  const auto panels = [](const char* key, int value) {
    require(value > 0 && value % kPanelColumns == 0, ErrorCode::kInvalidArgument,
            "training config: model.{} is {}, expected a multiple of {}", key, value, kPanelColumns);
  };
  panels("vocab_size", m.vocab_size);
  panels("dim", m.dim);
  panels("head_dim", m.head_dim);
  panels("feed_forward", m.feed_forward);
  require(m.num_layers > 0 && m.num_heads > 0, ErrorCode::kInvalidArgument,
          "training config: model.layers and model.heads are missing");
  require(m.num_heads % m.num_kv_heads == 0, ErrorCode::kInvalidArgument,
          "training config: model.heads ({}) must be a multiple of model.kv_heads ({})", m.num_heads,
          m.num_kv_heads);
  require(m.num_experts == 0 ? m.experts_per_token == 0
                             : m.experts_per_token > 0 && m.experts_per_token <= m.num_experts,
          ErrorCode::kInvalidArgument,
          "training config: model.experts_per_token is {}, expected 1 to model.experts ({}), or 0 for a "
          "dense model",
          m.experts_per_token, m.num_experts);
  return m;
}

void parse_schedule(Reader& r, TrainConfig& c) {
  r.number("steps", c.steps, 1, 1e9);
  require(c.steps > 0, ErrorCode::kInvalidArgument, "training config: steps is missing");
  r.number("context", c.context, 8, 1 << 16);
  r.number("batch_tokens", c.batch_tokens, 16, 1 << 24);
  c.micro_batch_tokens = c.batch_tokens < 1024 ? c.batch_tokens : 1024;
  r.number("micro_batch_tokens", c.micro_batch_tokens, 16, 1 << 20);
  require(c.micro_batch_tokens >= c.context, ErrorCode::kInvalidArgument,
          "training config: micro_batch_tokens ({}) must not be less than context ({})", c.micro_batch_tokens,
          c.context);
  r.number("prompt_weight", c.prompt_weight, 0, 1);
  r.number("learning_rate", c.learning_rate, 0, 10);
  r.number("final_rate", c.final_rate, 0, 1);
  r.number("warmup_steps", c.warmup_steps, 0, 1e9);
  r.number("beta1", c.beta1, 0, 0.99999);
  r.number("beta2", c.beta2, 0, 0.9999999);
  r.number("epsilon", c.epsilon, 1e-20, 1);
  r.number("weight_decay", c.weight_decay, 0, 10);
  r.number("clip", c.clip, 0, 1e9);
  r.number("balance", c.balance, 0, 10);
  r.number("init_std", c.init_std, 1e-6, 10);
  r.number("save_every_minutes", c.save_every_minutes, 0.001, 1e6);
  r.number("validate_every_steps", c.validate_every_steps, 0, 1e9);
  r.number("validation_tokens", c.validation_tokens, 16, 1e9);
}

}  // namespace

TrainConfig parse_config(const std::string& text, const std::filesystem::path& folder) {
  json root;
  try {
    root = json::parse(text, nullptr, true, /*ignore_comments=*/true);
  } catch (const json::exception& e) {
    fail(ErrorCode::kInvalidArgument, "training config is not valid JSON: {}", e.what());
  }
  TrainConfig c;
  Reader r(root, "config");
  const std::string arithmetic = r.text("arithmetic");
  require(arithmetic.empty() || arithmetic == "fp32" || arithmetic == "bf16", ErrorCode::kInvalidArgument,
          "training config: arithmetic is '{}', expected \"fp32\" or \"bf16\"", arithmetic);
  c.arithmetic = arithmetic == "bf16" ? Arithmetic::kBfloat16 : Arithmetic::kFloat32;
  const auto path = [&](const char* key) {
    const std::string given = r.text(key);
    return given.empty() ? std::filesystem::path() : folder / given;
  };
  c.data = path("data");
  c.validation = path("validation");
  c.output = path("output");
  c.metadata = path("metadata");
  c.start_from = path("start_from");
  require(!c.data.empty() && !c.output.empty(), ErrorCode::kInvalidArgument,
          "training config: 'data' and 'output' must name the token file and the folder for results");
  r.boolean("recompute_activations", c.recompute_activations);
  r.boolean("similar_attention_start", c.similar_attention_start);
  r.boolean("orthogonal_attention", c.orthogonal_attention);
  r.number("threads", c.threads, 0, 1024);
  r.number("seed", c.seed, 0, 9e15);
  parse_schedule(r, c);
  const auto shape = root.find("model");
  require(shape != root.end(), ErrorCode::kInvalidArgument, "training config: 'model' is missing");
  c.model = parse_shape(*shape);
  r.text("comment");
  r.skip("model");
  r.finish();
  return c;
}

TrainConfig load_config(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ErrorCode::kNotFound, "training config '{}' cannot be opened", path.string());
  std::stringstream text;
  text << in.rdbuf();
  return parse_config(text.str(), path.parent_path());
}

}  // namespace millrace::train
