// gpt-oss: sinks, alternating windows, biases everywhere, experts with a clamped SwiGLU of their own, stored
// in MXFP4.
#include "core/error.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace millrace::models {
namespace {

/// transformers keeps experts as [experts, in, 2 x width] with gate and up columns alternating (or the same
/// rows in MXFP4 blocks); GGUF has them apart. Expert e's gate|up rows [2 x width, hidden] as floats.
std::vector<float> gate_up_rows(const float* block, int64_t hidden, int64_t width) {
  std::vector<float> rows(static_cast<size_t>(2 * width * hidden));
  for (int64_t i = 0; i < hidden; ++i)
    for (int64_t w = 0; w < width; ++w)
      for (int64_t part = 0; part < 2; ++part)
        rows[static_cast<size_t>((part * width + w) * hidden + i)] = block[i * 2 * width + 2 * w + part];
  return rows;
}

std::vector<float> transposed(const float* block, int64_t rows, int64_t cols) {
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) out[static_cast<size_t>(r * cols + c)] = block[c * rows + r];
  return out;
}

/// The checkpoint's MXFP4: blocks [rows, cols / 32, 16] with neighbours in one byte, scales [rows, cols /
/// 32]. Row r of the result is row order(r); a GGUF block has the scale first and elements i and i + 16 in
/// one byte.
std::vector<std::byte> repack_mxfp4(const uint8_t* blocks, const uint8_t* scales, int64_t rows, int64_t cols,
                                    bool alternate) {
  const int64_t per_row = cols / 32;
  std::vector<std::byte> out(static_cast<size_t>(rows * per_row * 17));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t from = alternate ? (r < rows / 2 ? 2 * r : 2 * (r - rows / 2) + 1) : r;
    for (int64_t b = 0; b < per_row; ++b) {
      const uint8_t* in = blocks + (from * per_row + b) * 16;
      auto* to = reinterpret_cast<uint8_t*>(out.data() + (r * per_row + b) * 17);
      to[0] = scales[from * per_row + b];
      auto element = [&](int i) { return static_cast<uint8_t>(i % 2 ? in[i / 2] >> 4 : in[i / 2] & 15); };
      for (int i = 0; i < 16; ++i) to[1 + i] = static_cast<uint8_t>(element(i) | (element(i + 16) << 4));
    }
  }
  return out;
}

/// Packs every expert's matrix [rows, cols] from transformers' arrangement under `name`.
std::vector<ops::PackedMatrix> hf_experts(Weights& weights, const std::string& name, int64_t experts,
                                          int64_t rows, int64_t cols, bool alternate, int layer) {
  std::vector<ops::PackedMatrix> packed;
  const auto* blocks = weights.find(name, layer, "_blocks");
  const auto* scales = weights.find(name, layer, "_scales");
  if (blocks && scales) {
    require(blocks->shape.elements() == experts * rows * cols / 2 &&
                scales->shape.elements() == experts * rows * cols / 32,
            ErrorCode::kInvalidFile, "{}: tensor '{}' has shape {}: expected {} experts of [{}, {}] in MXFP4",
            weights.checkpoint().path.string(), blocks->name, blocks->shape.to_string(), experts, rows, cols);
    for (int64_t e = 0; e < experts; ++e) {
      const auto data = repack_mxfp4(reinterpret_cast<const uint8_t*>(blocks->data) + e * rows * cols / 2,
                                     reinterpret_cast<const uint8_t*>(scales->data) + e * rows * cols / 32,
                                     rows, cols, alternate);
      packed.push_back(weights.pack_encoded(data, rows, cols, DType::kMXFP4));
    }
    return packed;
  }
  const std::vector<float> all =
      weights.values(name, "", experts * rows * cols, Weights::Need::kRequired, layer);
  for (int64_t e = 0; e < experts; ++e) {
    const float* block = all.data() + e * rows * cols;
    const std::vector<float> matrix =
        alternate ? gate_up_rows(block, cols, rows / 2) : transposed(block, rows, cols);
    packed.push_back(
        weights.pack_values(matrix, rows, cols, weights.all_float() ? DType::kF32 : DType::kBF16));
  }
  return packed;
}

std::unique_ptr<layers::Moe> make_experts(Weights& weights, const ExpertSpec& spec, int64_t hidden, bool gguf,
                                          int layer) {
  const int64_t n = spec.num_experts, width = spec.width;
  auto moe = std::make_unique<layers::Moe>(spec.num_experts);
  moe->routing.num_experts = spec.num_experts;
  moe->routing.top_k = spec.top_k;
  moe->routing.scoring = ops::RouterOptions::Scoring::kSoftmaxOfChosen;
  moe->clamp = 7.0f;  // "swiglu_limit" of the modelling code
  moe->alpha = 1.702f;
  moe->router = weights.linear("blk.{}.ffn_gate_inp", n, hidden, layer);
  moe->up_bias.resize(static_cast<size_t>(n * 2 * width));
  if (gguf) {
    moe->up =
        weights.experts({{"blk.{}.ffn_gate_exps", width}, {"blk.{}.ffn_up_exps", width}}, n, hidden, layer);
    moe->down = weights.experts({{"blk.{}.ffn_down_exps", hidden}}, n, width, layer);
    const auto need = Weights::Need::kRequired;
    const auto gate = weights.values("blk.{}.ffn_gate_exps", ".bias", n * width, need, layer);
    const auto up = weights.values("blk.{}.ffn_up_exps", ".bias", n * width, need, layer);
    for (int64_t e = 0; e < n; ++e) {
      std::copy_n(gate.data() + e * width, width, moe->up_bias.data() + e * 2 * width);
      std::copy_n(up.data() + e * width, width, moe->up_bias.data() + e * 2 * width + width);
    }
    moe->down_bias = weights.values("blk.{}.ffn_down_exps", ".bias", n * hidden, need, layer);
    return moe;
  }
  moe->up = hf_experts(weights, "blk.{}.ffn_gate_up_exps", n, 2 * width, hidden, true, layer);
  moe->down = hf_experts(weights, "blk.{}.ffn_down_exps", n, hidden, width, false, layer);
  const auto both =
      weights.values("blk.{}.ffn_gate_up_exps", "_bias", n * 2 * width, Weights::Need::kRequired, layer);
  for (int64_t e = 0; e < n; ++e)
    for (int64_t w = 0; w < width; ++w)
      for (int64_t part = 0; part < 2; ++part)
        moe->up_bias[static_cast<size_t>(e * 2 * width + part * width + w)] =
            both[static_cast<size_t>(e * 2 * width + 2 * w + part)];
  moe->down_bias =
      weights.values("blk.{}.ffn_down_exps", "_bias", n * hidden, Weights::Need::kRequired, layer);
  return moe;
}

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Transform::kNone,
       "blk.{}.post_attention_norm"},
      {"blk.{}.attn_sinks", "model.layers.{}.self_attn.sinks", Transform::kNone, "blk.{}.attn_sinks.weight"},
      {"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router"},
      {"blk.{}.ffn_gate_up_exps", "model.layers.{}.mlp.experts.gate_up_proj"},
      {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj"},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  // The bounds of YaRN's ramp are not rounded here, for which GGUF has no key.
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf, "",
                          {"rope.freq_base", "rope_theta"}, YarnRamp::kExact)};
  const Key width =
      config.gguf() ? Key{"expert_feed_forward_length", nullptr} : Key{nullptr, "intermediate_size"};
  const ExpertSpec experts = read_experts(config, {"expert_count", "num_local_experts"},
                                          {"expert_used_count", "num_experts_per_tok"}, width);
  const int32_t window = config.integer({"attention.sliding_window", "sliding_window"});
  const int64_t hidden = spec.hidden_size;
  const bool gguf = config.gguf();
  std::vector<bool> local = local_layers(config, spec.blocks.size(), 2);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    b.sinks = true;
    b.window = local[i] ? window : 0;
    b.make_ffn = [=](Weights& w, int layer) { return make_experts(w, experts, hidden, gguf, layer); };
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{"gpt-oss"}, {"GptOssForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
