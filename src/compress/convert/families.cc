#include "compress/convert/families.h"

#include <cmath>
#include <memory>

#include "compress/convert/settings.h"
#include "core/error.h"
#include "loaders/dequant.h"

namespace millrace::convert {
namespace {

using loaders::GgufWriter;
using loaders::TensorEntry;
using models::Config;

constexpr int32_t kSoftmax = 1, kSigmoid = 2;  // of expert_gating_func

int32_t whole(const Config& config, const char* key) { return config.integer({nullptr, key}, 1, 1 << 24); }

void set(GgufWriter& out, const std::string& arch, const char* key, int64_t value) {
  out.set_u32(arch + "." + key, static_cast<uint32_t>(value));
}

std::vector<float> all_values(const loaders::Checkpoint& checkpoint, const TensorEntry& entry) {
  const loaders::RowReader reader(checkpoint, entry);
  std::vector<float> values(static_cast<size_t>(entry.shape.elements()));
  reader.read(0, reader.rows(), values.data());
  return values;
}

DType stored_type(const TensorEntry& entry) {
  return entry.dtype == DType::kF8E4M3 || entry.dtype == DType::kF8E5M2 ? DType::kBF16 : entry.dtype;
}

}  // namespace

std::vector<MadeTensor> latent_tensors(const Source& source, int64_t layer) {
  const auto* entry = source.find(fmt::format("model.layers.{}.self_attn.kv_b_proj.weight", layer));
  if (!entry) return {};
  const int64_t heads = whole(source.config, "num_attention_heads"),
                nope = whole(source.config, "qk_nope_head_dim");
  const int64_t value = whole(source.config, "v_head_dim"), latent = whole(source.config, "kv_lora_rank");
  require(entry->shape.ndim == 2 && entry->shape[0] == heads * (nope + value) && entry->shape[1] == latent,
          ErrorCode::kInvalidFile, "{}: tensor '{}' has shape {}: expected [{}, {}]",
          source.checkpoint.path.string(), entry->name, entry->shape.to_string(), heads * (nope + value),
          latent);
  MadeTensor keys, values;
  keys.name = fmt::format("blk.{}.attn_k_b.weight", layer);
  values.name = fmt::format("blk.{}.attn_v_b.weight", layer);
  keys.from = values.from = {entry};
  keys.type = values.type = stored_type(*entry);
  keys.shape = Shape{heads, latent, nope};
  values.shape = Shape{heads, value, latent};
  const auto* checkpoint = &source.checkpoint;
  keys.values = [=] {
    const std::vector<float> both = all_values(*checkpoint, *entry);
    std::vector<float> result(static_cast<size_t>(heads * latent * nope));
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t n = 0; n < nope; ++n)
        for (int64_t l = 0; l < latent; ++l)
          result[static_cast<size_t>((h * latent + l) * nope + n)] =
              both[static_cast<size_t>((h * (nope + value) + n) * latent + l)];
    return result;
  };
  values.values = [=] {
    const std::vector<float> both = all_values(*checkpoint, *entry);
    std::vector<float> result;
    for (int64_t h = 0; h < heads; ++h) {
      const auto begin = both.begin() + (h * (nope + value) + nope) * latent;
      result.insert(result.end(), begin, begin + value * latent);
    }
    return result;
  };
  return {keys, values};
}

void latent_settings(const Config& config, const Sizes&, const std::string& arch, GgufWriter& out) {
  const bool third = config.architecture() == "DeepseekV3ForCausalLM";
  const int32_t latent = whole(config, "kv_lora_rank"), rope = whole(config, "qk_rope_head_dim");
  set(out, arch, "attention.key_length_mla", whole(config, "qk_nope_head_dim") + rope);
  set(out, arch, "attention.value_length_mla", whole(config, "v_head_dim"));
  set(out, arch, "attention.kv_lora_rank", latent);
  if (const auto rank = config.find_integer({nullptr, "q_lora_rank"}, 0); rank && *rank > 0)
    set(out, arch, "attention.q_lora_rank", *rank);
  set(out, arch, "expert_gating_func", third ? kSigmoid : kSoftmax);
  if (third || config.text({nullptr, "topk_method"}) == "group_limited_greedy") {
    set(out, arch, "expert_group_count", config.find_integer({nullptr, "n_group"}, 1).value_or(1));
    set(out, arch, "expert_group_used_count", config.find_integer({nullptr, "topk_group"}, 1).value_or(1));
  }
  if (third && !config.has({nullptr, "norm_topk_prob"})) out.set_bool(arch + ".expert_weights_norm", true);
  for (const char* prefix : {"rope_parameters.", "rope_scaling."}) {
    const std::string p = prefix, all_key = p + "mscale_all_dim", key = p + "mscale";
    const float all_dim = config.find_number({nullptr, all_key.c_str()}).value_or(0);
    if (all_dim == 0) continue;
    const float mscale = config.find_number({nullptr, key.c_str()}).value_or(all_dim);
    if (mscale != all_dim)
      config.refuse({nullptr, key.c_str()},
                    fmt::format("is {} beside mscale_all_dim {}: GGUF has a form for equal ones only", mscale,
                                all_dim));
    out.set_f32(arch + ".rope.scaling.yarn_log_multiplier", 0.1f * all_dim);
    break;
  }
}

namespace {

/// blocks [rows, cols / 32, 16] with neighbours in one byte and scales [rows, cols / 32] as GGUF's MXFP4: the
/// scale first, elements i and i + 16 in one byte. Takes every `step`-th row from `first` on.
std::vector<std::byte> mxfp4_rows(const TensorEntry& blocks, const TensorEntry& scales, int64_t per_row,
                                  int64_t first, int64_t step) {
  const auto* codes = reinterpret_cast<const uint8_t*>(blocks.data);
  const auto* exponents = reinterpret_cast<const uint8_t*>(scales.data);
  const int64_t rows = static_cast<int64_t>(scales.bytes) / per_row;
  std::vector<std::byte> out;
  out.reserve(static_cast<size_t>((rows / step + 1) * per_row * 17));
  for (int64_t row = first; row < rows; row += step)
    for (int64_t b = row * per_row; b < (row + 1) * per_row; ++b) {
      const uint8_t* in = codes + b * 16;
      const auto element = [&](int i) { return i % 2 ? in[i / 2] >> 4 : in[i / 2] & 15; };
      out.push_back(static_cast<std::byte>(exponents[b]));
      for (int i = 0; i < 16; ++i) out.push_back(static_cast<std::byte>(element(i) | (element(i + 16) << 4)));
    }
  return out;
}

/// One of the matrices that transformers keeps as [experts, in, out] (or out rows of MXFP4 blocks): output
/// rows first, first + step, ... of each expert.
MadeTensor gpt_oss_matrix(const Source& source, const std::string& hf, const std::string& name,
                          int64_t experts, int64_t in, int64_t out, int64_t first, int64_t step) {
  MadeTensor made;
  made.name = name;
  made.shape = Shape{experts, out / step, in};
  const auto *blocks = source.find(hf + "_blocks"), *scales = source.find(hf + "_scales");
  const auto wrong = [&](const TensorEntry& entry) {
    fail(ErrorCode::kInvalidFile, "{}: tensor '{}' has shape {}: expected {} experts of [{}, {}]",
         source.checkpoint.path.string(), entry.name, entry.shape.to_string(), experts, in, out);
  };
  if (blocks && scales) {
    if (in % 32 != 0 || static_cast<int64_t>(blocks->bytes) != experts * out * in / 2 ||
        static_cast<int64_t>(scales->bytes) != experts * out * in / 32)
      wrong(*blocks);
    made.from = {blocks, scales};
    made.type = DType::kMXFP4;
    made.encoded = [=] { return mxfp4_rows(*blocks, *scales, in / 32, first, step); };
    return made;
  }
  const auto* entry = source.find(hf);
  require(entry, ErrorCode::kInvalidFile,
          "{}: tensor '{}' is missing: expected it, or its _blocks and _scales",
          source.checkpoint.path.string(), hf);
  if (entry->shape.elements() != experts * in * out) wrong(*entry);
  made.from = {entry};
  made.type = stored_type(*entry);
  const auto* checkpoint = &source.checkpoint;
  made.values = [=] {
    const std::vector<float> all = all_values(*checkpoint, *entry);
    std::vector<float> result;
    result.reserve(all.size() / static_cast<size_t>(step));
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t o = first; o < out; o += step)
        for (int64_t i = 0; i < in; ++i) result.push_back(all[static_cast<size_t>((e * in + i) * out + o)]);
    return result;
  };
  return made;
}

MadeTensor gpt_oss_bias(const Source& source, const std::string& hf, const std::string& name, int64_t experts,
                        int64_t out, int64_t first, int64_t step) {
  const auto* entry = source.find(hf);
  require(entry && entry->shape.elements() == experts * out, ErrorCode::kInvalidFile,
          "{}: tensor '{}' is missing or not of {} values", source.checkpoint.path.string(), hf,
          experts * out);
  MadeTensor made;
  made.name = name;
  made.shape = Shape{experts, out / step};
  made.from = {entry};
  const auto* checkpoint = &source.checkpoint;
  made.values = [=] {
    const std::vector<float> all = all_values(*checkpoint, *entry);
    std::vector<float> result;
    for (int64_t i = first; i < experts * out; i += step) result.push_back(all[static_cast<size_t>(i)]);
    return result;
  };
  return made;
}

}  // namespace

std::vector<MadeTensor> gpt_oss_tensors(const Source& source, int64_t layer) {
  const int64_t experts = whole(source.config, "num_local_experts"),
                hidden = whole(source.config, "hidden_size");
  const int64_t width = whole(source.config, "intermediate_size");
  const std::string hf = fmt::format("model.layers.{}.mlp.experts.", layer),
                    gguf = fmt::format("blk.{}.", layer);
  const std::string both = hf + "gate_up_proj", down = hf + "down_proj";
  // Columns of gate and up alternate.
  return {gpt_oss_matrix(source, both, gguf + "ffn_gate_exps.weight", experts, hidden, 2 * width, 0, 2),
          gpt_oss_matrix(source, both, gguf + "ffn_up_exps.weight", experts, hidden, 2 * width, 1, 2),
          gpt_oss_matrix(source, down, gguf + "ffn_down_exps.weight", experts, width, hidden, 0, 1),
          gpt_oss_bias(source, both + "_bias", gguf + "ffn_gate_exps.bias", experts, 2 * width, 0, 2),
          gpt_oss_bias(source, both + "_bias", gguf + "ffn_up_exps.bias", experts, 2 * width, 1, 2),
          gpt_oss_bias(source, down + "_bias", gguf + "ffn_down_exps.bias", experts, hidden, 0, 1)};
}

void mamba_settings(const Config& config, const Sizes& sizes, const std::string& arch, GgufWriter& out) {
  const auto inner = config.find_integer({nullptr, "intermediate_size"}, 1);
  set(out, arch, "ssm.conv_kernel", whole(config, "conv_kernel"));
  set(out, arch, "ssm.inner_size", inner ? *inner : int64_t{sizes.hidden} * whole(config, "expand"));
  set(out, arch, "ssm.state_size", whole(config, "state_size"));
  set(out, arch, "ssm.time_step_rank", whole(config, "time_step_rank"));
}

void mamba2_settings(const Config& config, const Sizes& sizes, const std::string& arch, GgufWriter& out) {
  set(out, arch, "ssm.conv_kernel", whole(config, "conv_kernel"));
  set(out, arch, "ssm.inner_size",
      int64_t{sizes.hidden} * config.find_integer({nullptr, "expand"}, 1).value_or(2));
  set(out, arch, "ssm.state_size", whole(config, "state_size"));
  set(out, arch, "ssm.time_step_rank", whole(config, "num_heads"));
  set(out, arch, "ssm.group_count", whole(config, "n_groups"));
}

void jamba_settings(const Config& config, const Sizes& sizes, const std::string& arch, GgufWriter& out) {
  set(out, arch, "ssm.conv_kernel", whole(config, "mamba_d_conv"));
  set(out, arch, "ssm.inner_size", int64_t{sizes.hidden} * whole(config, "mamba_expand"));
  set(out, arch, "ssm.state_size", whole(config, "mamba_d_state"));
  set(out, arch, "ssm.time_step_rank", whole(config, "mamba_dt_rank"));
}

void qwen3_next_settings(const Config& config, const Sizes&, const std::string& arch, GgufWriter& out) {
  const int32_t heads = whole(config, "linear_num_value_heads");
  set(out, arch, "ssm.conv_kernel", whole(config, "linear_conv_kernel_dim"));
  set(out, arch, "ssm.inner_size", int64_t{heads} * whole(config, "linear_value_head_dim"));
  set(out, arch, "ssm.state_size", whole(config, "linear_key_head_dim"));
  set(out, arch, "ssm.time_step_rank", heads);
  set(out, arch, "ssm.group_count", whole(config, "linear_num_key_heads"));
  set(out, arch, "full_attention_interval",
      config.find_integer({nullptr, "full_attention_interval"}, 1).value_or(4));
}

}  // namespace millrace::convert
