#include "loaders/synthetic.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>

#include "core/error.h"
#include "core/random.h"
#include "loaders/ggml_types.h"
#include "loaders/gguf_writer.h"
#include "quant/traits.h"

namespace millrace::loaders {
namespace {

// Encoding is the slow part, so rows are cut from a pool of encoded normal values, each at a place of its
// own.
constexpr int64_t kPoolValues = int64_t{1} << 19;
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

constexpr const char* kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor "
    "%}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// How a tensor is filled: normal values around `mean`.
struct Plan {
  size_t id = 0;
  DType type = DType::kF32;
  int64_t rows = 0, columns = 0;
  float mean = 0, deviation = 0;
  std::vector<float> values;  ///< exact contents instead, when not empty
};

class Builder {
 public:
  Builder(const SyntheticShape& shape, const SyntheticOptions& options, GgufWriter& out)
      : s_(shape),
        options_(options),
        out_(out),
        layers_(options.layers > 0 ? options.layers : shape.layers) {}

  void metadata() {
    const std::string arch = s_.architecture;
    out_.set_string("general.architecture", arch);
    out_.set_string("general.name", std::string(s_.name) + " (random weights)");
    if (const auto file_type = gguf_file_type(options_.type)) out_.set_u32("general.file_type", *file_type);
    out_.set_u32("general.quantization_version", 2);
    const auto u32 = [&](const char* key, int32_t value) {
      out_.set_u32(arch + key, static_cast<uint32_t>(value));
    };
    u32(".context_length", s_.context);
    u32(".embedding_length", s_.hidden);
    u32(".block_count", layers_);
    u32(".feed_forward_length", s_.ffn);
    u32(".attention.head_count", s_.heads);
    u32(".attention.head_count_kv", s_.kv_heads);
    u32(".attention.key_length", s_.head_dim);
    u32(".attention.value_length", s_.head_dim);
    u32(".rope.dimension_count", s_.head_dim);
    u32(".vocab_size", s_.vocabulary);
    out_.set_f32(arch + ".attention.layer_norm_rms_epsilon", s_.norm_epsilon);
    out_.set_f32(arch + ".rope.freq_base", s_.rope_base);
    if (s_.window) u32(".attention.sliding_window", s_.window);
    if (s_.linear_factor != 0) {
      out_.set_string(arch + ".rope.scaling.type", "linear");
      out_.set_f32(arch + ".rope.scaling.factor", s_.linear_factor);
    }
    if (s_.experts) {
      u32(".expert_count", s_.experts);
      u32(".expert_used_count", s_.experts_used);
      if (is("qwen3moe")) u32(".expert_feed_forward_length", s_.expert_ffn);
    }
    vocabulary();
  }

  std::vector<Plan> tensors() {
    const auto h = s_.hidden, q = s_.heads * s_.head_dim, kv = s_.kv_heads * s_.head_dim;
    const DType output_type = type_for_output(options_.type);
    const float in = 1.0f / std::sqrt(static_cast<float>(h));
    // What adds to the residual stream is scaled down by depth, so that its size stays near one.
    const float depth = 1.0f / std::sqrt(2.0f * static_cast<float>(layers_));
    const float attention_out = depth / std::sqrt(static_cast<float>(q));
    matrix("token_embd.weight", s_.vocabulary, h, in, output_type);
    if (s_.llama3_factor != 0) exact("rope_freqs.weight", llama3_factors());
    for (int32_t layer = 0; layer < layers_; ++layer) {
      const std::string block = fmt::format("blk.{}.", layer);
      vector(block + "attn_norm.weight", h, 1);
      matrix(block + "attn_q.weight", q, h, in, options_.type);
      matrix(block + "attn_k.weight", kv, h, in, options_.type);
      matrix(block + "attn_v.weight", kv, h, in, options_.type);
      matrix(block + "attn_output.weight", h, q, attention_out, options_.type);
      if (is("qwen2")) {
        vector(block + "attn_q.bias", q, 0);
        vector(block + "attn_k.bias", kv, 0);
        vector(block + "attn_v.bias", kv, 0);
      }
      if (is("qwen3") || is("qwen3moe") || is("gemma3")) {
        vector(block + "attn_q_norm.weight", s_.head_dim, 1);
        vector(block + "attn_k_norm.weight", s_.head_dim, 1);
      }
      if (is("gemma3")) {
        vector(block + "post_attention_norm.weight", h, 1);
        vector(block + "post_ffw_norm.weight", h, 1);
      }
      vector(block + "ffn_norm.weight", h, 1);
      feed_forward(block, in, depth);
    }
    vector("output_norm.weight", h, 1);
    if (!s_.tied) matrix("output.weight", s_.vocabulary, h, in, output_type);
    return std::move(plans_);
  }

 private:
  bool is(std::string_view architecture) const { return architecture == s_.architecture; }

  void vocabulary() {
    const SyntheticVocabulary v = make_synthetic_vocabulary(s_.vocabulary);
    const bool qwen = is("qwen2") || is("qwen3") || is("qwen3moe");
    out_.set_string("tokenizer.ggml.model", "gpt2");
    out_.set_string("tokenizer.ggml.pre", qwen ? "qwen2" : "llama-bpe");
    out_.set_strings("tokenizer.ggml.tokens", v.tokens);
    out_.set_i32s("tokenizer.ggml.token_type", v.types);
    out_.set_strings("tokenizer.ggml.merges", v.merges);
    out_.set_u32("tokenizer.ggml.bos_token_id", v.bos);
    out_.set_u32("tokenizer.ggml.eos_token_id", v.eos);
    out_.set_u32("tokenizer.ggml.eot_token_id", v.turn_end);
    out_.set_u32("tokenizer.ggml.padding_token_id", v.eos);
    out_.set_bool("tokenizer.ggml.add_bos_token", !qwen);
    out_.set_string("tokenizer.chat_template", kChatTemplate);
  }

  void feed_forward(const std::string& block, float in, float depth) {
    const auto h = s_.hidden;
    const int32_t ffn = s_.experts ? s_.expert_ffn : s_.ffn;
    const float down = depth / std::sqrt(static_cast<float>(ffn));
    if (!s_.experts) {
      matrix(block + "ffn_gate.weight", ffn, h, in, options_.type);
      matrix(block + "ffn_up.weight", ffn, h, in, options_.type);
      matrix(block + "ffn_down.weight", h, ffn, down, options_.type);
      return;
    }
    matrix(block + "ffn_gate_inp.weight", s_.experts, h, in, DType::kF32);
    experts(block + "ffn_gate_exps.weight", ffn, h, in);
    experts(block + "ffn_up_exps.weight", ffn, h, in);
    experts(block + "ffn_down_exps.weight", h, ffn, down);
  }

  void add(const std::string& name, DType type, const Shape& shape, float mean, float deviation) {
    type = type_for_columns(type, shape.back());
    plans_.push_back(
        {out_.add_tensor(name, type, shape), type, shape.rows(), shape.back(), mean, deviation, {}});
  }
  void matrix(const std::string& name, int64_t rows, int64_t columns, float deviation, DType type) {
    add(name, type, {rows, columns}, 0, deviation);
  }
  void experts(const std::string& name, int64_t rows, int64_t columns, float deviation) {
    add(name, options_.type, {s_.experts, rows, columns}, 0, deviation);
  }
  void vector(const std::string& name, int64_t count, float mean) {
    add(name, DType::kF32, {count}, mean, 0.05f);
  }
  void exact(const std::string& name, std::vector<float> values) {
    add(name, DType::kF32, {static_cast<int64_t>(values.size())}, 0, 0);
    plans_.back().values = std::move(values);
  }

  /// Divisors of the rotary frequencies: long waves are stretched by the factor, short ones kept, those
  /// between blended (Llama 3.1's rule for a context of 8,192 extended).
  std::vector<float> llama3_factors() const {
    constexpr double kLow = 1, kHigh = 4, kOldContext = 8192;
    std::vector<float> factors;
    for (int32_t i = 0; i < s_.head_dim / 2; ++i) {
      const double wave =
          2 * std::numbers::pi * std::pow(static_cast<double>(s_.rope_base), 2.0 * i / s_.head_dim);
      double factor = s_.llama3_factor;
      if (wave < kOldContext / kHigh) {
        factor = 1;
      } else if (wave <= kOldContext / kLow) {
        const double smooth = (kOldContext / wave - kLow) / (kHigh - kLow);
        factor = 1 / ((1 - smooth) / s_.llama3_factor + smooth);
      }
      factors.push_back(static_cast<float>(factor));
    }
    return factors;
  }

  const SyntheticShape& s_;
  const SyntheticOptions& options_;
  GgufWriter& out_;
  int32_t layers_;
  std::vector<Plan> plans_;
};

/// Encoded normal values from which rows are cut.
using Pool = std::vector<std::byte>;
using PoolKey = std::tuple<DType, float, float>;

Pool make_pool(const PoolKey& key, uint64_t seed) {
  const auto [type, mean, deviation] = key;
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(kPoolValues));
  for (float& v : values) v = mean + deviation * random.normal();
  Pool pool(*quant::row_bytes(type, values.size()));
  quant::traits(type).encode(values.data(), pool.data(), kPoolValues, nullptr);
  return pool;
}

/// Rows [begin, end) of a tensor into `buffer`.
void fill_rows(const Pool& pool, const Plan& plan, uint64_t seed, int64_t begin, int64_t end,
               std::byte* buffer) {
  const auto block = static_cast<uint64_t>(quant::traits(plan.type).block_bytes);
  const uint64_t row_bytes = *quant::row_bytes(plan.type, static_cast<uint64_t>(plan.columns));
  for (int64_t row = begin; row < end; ++row) {
    Random random(seed + plan.id, static_cast<uint64_t>(row));
    uint64_t at = random.next64() % (pool.size() / block) * block;
    for (uint64_t done = 0; done < row_bytes;) {
      const uint64_t n = std::min(row_bytes - done, pool.size() - at);
      std::memcpy(buffer, pool.data() + at, n);
      buffer += n;
      done += n;
      at = 0;
    }
  }
}

}  // namespace

DType type_for_columns(DType type, int64_t columns) {
  if (columns % quant::traits(type).block_elements == 0) return type;
  DType stand_in = DType::kF16;
  switch (type) {
    case DType::kQ6_K:
    case DType::kQ8_K:
      stand_in = DType::kQ8_0;
      break;
    case DType::kQ5_K:
      stand_in = DType::kQ5_1;
      break;
    case DType::kQ4_K:
    case DType::kNVFP4:
      stand_in = DType::kQ5_0;
      break;
    default:
      stand_in = quant::traits(type).block_elements == 256 ? DType::kIQ4_NL : DType::kF16;
  }
  return columns % quant::traits(stand_in).block_elements == 0 ? stand_in : DType::kF16;
}

DType type_for_output(DType type) {
  const quant::Traits& t = quant::traits(type);
  const bool below_six_bits = t.block_elements == 256 && t.block_bytes < 210;
  return below_six_bits ? DType::kQ6_K : type;
}

uint64_t write_synthetic(const SyntheticShape& shape, const SyntheticOptions& options,
                         const std::filesystem::path& path, ThreadPool& pool) {
  require(ggml_from_dtype(options.type) && quant::traits(options.type).encode, ErrorCode::kInvalidArgument,
          "storage type {}: expected one that GGUF files hold weights in", dtype_name(options.type));
  require(options.layers >= 0 && options.layers <= shape.layers, ErrorCode::kInvalidArgument,
          "{} layers: expected 1 to the {} of {}", options.layers, shape.layers, shape.name);
  GgufWriter out(path);
  Builder builder(shape, options, out);
  builder.metadata();
  const std::vector<Plan> plans = builder.tensors();
  const uint64_t total = out.file_bytes();
  std::error_code ignored;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const auto space = std::filesystem::space(folder, ignored);
  require(ignored || space.available >= total, ErrorCode::kIo,
          "{}: the file takes {} bytes, but only {} are free there", path.string(), total,
          ignored ? 0 : space.available);
  out.write_header();

  std::map<PoolKey, Pool> pools;
  for (const Plan& plan : plans)
    if (plan.values.empty()) pools.try_emplace({plan.type, plan.mean, plan.deviation});
  std::vector<std::pair<const PoolKey, Pool>*> order;
  order.reserve(pools.size());
  for (auto& entry : pools) order.push_back(&entry);
  pool.parallel_for(static_cast<int64_t>(order.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      order[static_cast<size_t>(i)]->second =
          make_pool(order[static_cast<size_t>(i)]->first, options.seed * 1000003 + static_cast<uint64_t>(i));
  });

  std::atomic<uint64_t> written{0};
  for (const Plan& plan : plans) {
    if (!plan.values.empty()) {
      out.write(plan.id, 0, plan.values.data(), plan.values.size() * sizeof(float));
      continue;
    }
    const Pool& source = pools.at({plan.type, plan.mean, plan.deviation});
    const uint64_t row_bytes = *quant::row_bytes(plan.type, static_cast<uint64_t>(plan.columns));
    const auto grain = static_cast<int64_t>(std::max<uint64_t>(1, kPieceBytes / row_bytes));
    pool.parallel_for(plan.rows, grain, [&](int64_t begin, int64_t end, int thread) {
      std::vector<std::byte> buffer(static_cast<size_t>(std::min(grain, end - begin)) * row_bytes);
      for (int64_t row = begin; row < end; row += grain) {
        const int64_t last = std::min(end, row + grain);
        fill_rows(source, plan, options.seed, row, last, buffer.data());
        const uint64_t bytes = static_cast<uint64_t>(last - row) * row_bytes;
        out.write(plan.id, static_cast<uint64_t>(row) * row_bytes, buffer.data(), bytes);
        const uint64_t done = written.fetch_add(bytes) + bytes;
        if (thread == 0 && options.progress) options.progress(done, total);
      }
    });
  }
  out.finish();
  return total;
}

}  // namespace millrace::loaders
