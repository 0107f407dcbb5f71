// Mamba, Mamba-2, and Jamba (Mamba with an attention layer in every few, and experts in every second).
#include "layers/state_space.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace millrace::models {
namespace {

struct MambaSpec {
  int32_t inner, state, kernel, rank;
  bool inner_norms;
  float epsilon;
};

std::unique_ptr<layers::Mixer> make_mamba(Weights& weights, const MambaSpec& s, int64_t hidden, int layer) {
  const auto need = Weights::Need::kRequired;
  auto m = std::make_unique<layers::Mamba>();
  m->inner = s.inner;
  m->state_size = s.state;
  m->kernel = s.kernel;
  m->dt_rank = s.rank;
  m->input = weights.linear("blk.{}.ssm_in", 2 * int64_t{s.inner}, hidden, layer);
  m->conv_weight = weights.transposed("blk.{}.ssm_conv1d", ".weight", s.inner, s.kernel, layer);
  m->conv_bias = weights.values("blk.{}.ssm_conv1d", ".bias", s.inner, Weights::Need::kOptional, layer);
  m->parameters = weights.linear("blk.{}.ssm_x", s.rank + 2 * int64_t{s.state}, s.inner, layer);
  if (s.inner_norms) {
    const auto rms = ops::NormSpec::Kind::kRms;
    m->dt_norm = weights.norm("blk.{}.ssm_dt_norm", s.rank, rms, s.epsilon, layer);
    m->b_norm = weights.norm("blk.{}.ssm_b_norm", s.state, rms, s.epsilon, layer);
    m->c_norm = weights.norm("blk.{}.ssm_c_norm", s.state, rms, s.epsilon, layer);
  }
  m->dt_bias = weights.values("blk.{}.ssm_dt", ".bias", s.inner, need, layer);
  m->dt = weights.linear_without_bias("blk.{}.ssm_dt", s.inner, s.rank, layer);
  m->a = weights.transposed("blk.{}.ssm_a", "", s.inner, s.state, layer);
  m->d = weights.values("blk.{}.ssm_d", "", s.inner, need, layer);
  m->output = weights.linear("blk.{}.ssm_out", hidden, s.inner, layer);
  return m;
}

MambaSpec read_mamba(const Config& config, int32_t hidden, const char* prefix) {
  const std::string p = prefix;
  const auto key = [&](const char* name) { return p + name; };
  const std::string expand = key("expand"), conv = p.empty() ? "conv_kernel" : "mamba_d_conv",
                    state = p.empty() ? "state_size" : "mamba_d_state",
                    rank = p.empty() ? "time_step_rank" : "mamba_dt_rank";
  MambaSpec s{};
  s.kernel = config.integer({"ssm.conv_kernel", conv.c_str()}, 2, 64);
  s.state = config.integer({"ssm.state_size", state.c_str()}, 1, 4096);
  s.rank = config.integer({"ssm.time_step_rank", rank.c_str()}, 1, 1 << 16);
  const auto inner = config.find_integer({"ssm.inner_size", p.empty() ? "intermediate_size" : nullptr}, 1);
  s.inner = inner ? *inner : hidden * config.integer({nullptr, expand.c_str()}, 1, 64);
  s.epsilon = 1e-6f;
  return s;
}

/// Settings of a stack of mixers alone: there are no heads and no feed-forward.
DecoderSpec read_stack(const Config& config, const Weights& weights) {
  DecoderSpec spec;
  spec.hidden_size = config.integer({"embedding_length", "hidden_size"}, 1, 1 << 20);
  spec.vocab_size = static_cast<int32_t>(weights.rows_of("token_embd"));
  spec.norm_epsilon =
      config.find_number({"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"}).value_or(1e-5f);
  spec.blocks.resize(static_cast<size_t>(config.integer({"block_count", "num_hidden_layers"}, 1, 4096)));
  for (BlockSpec& b : spec.blocks) {
    b.rope = -1;
    b.no_ffn = true;
  }
  return spec;
}

const NameTable& mamba_names() {
  static const NameTable table = {
      {"token_embd", "backbone.embeddings"},
      {"output_norm", "backbone.norm_f"},
      {"output", "lm_head"},
      {"blk.{}.attn_norm", "backbone.layers.{}.norm"},
      {"blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj"},
      {"blk.{}.ssm_conv1d", "backbone.layers.{}.mixer.conv1d"},
      {"blk.{}.ssm_x", "backbone.layers.{}.mixer.x_proj"},
      {"blk.{}.ssm_dt", "backbone.layers.{}.mixer.dt_proj"},
      {"blk.{}.ssm_dt_bias", "backbone.layers.{}.mixer.dt_bias", Transform::kNone, "blk.{}.ssm_dt.bias"},
      {"blk.{}.ssm_a", "backbone.layers.{}.mixer.A_log", Transform::kNegateExp},
      {"blk.{}.ssm_d", "backbone.layers.{}.mixer.D"},
      {"blk.{}.ssm_norm", "backbone.layers.{}.mixer.norm"},
      {"blk.{}.ssm_out", "backbone.layers.{}.mixer.out_proj"},
  };
  return table;
}

std::unique_ptr<Model> load_mamba(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                                  ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, mamba_names(), options, pool);
  DecoderSpec spec = read_stack(config, weights);
  const MambaSpec mamba = read_mamba(config, spec.hidden_size, "");
  const int64_t hidden = spec.hidden_size;
  for (BlockSpec& b : spec.blocks)
    b.make_mixer = [=](Weights& w, int layer, const layers::Rope*, const ops::RopeTable*) {
      return make_mamba(w, mamba, hidden, layer);
    };
  return make_decoder(config, weights, std::move(spec));
}

std::unique_ptr<Model> load_mamba2(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                                   ThreadPool& pool) {
  const Config config(checkpoint);
  Weights weights(checkpoint, mamba_names(), options, pool);
  DecoderSpec spec = read_stack(config, weights);
  const int64_t hidden = spec.hidden_size;
  const int32_t inner =
      config.find_integer({"ssm.inner_size", nullptr}, 1)
          .value_or(spec.hidden_size * config.find_integer({nullptr, "expand"}, 1).value_or(2));
  ops::HeadScanShape shape{};
  shape.heads = config.integer({"ssm.time_step_rank", "num_heads"}, 1, 1 << 16);
  shape.head_dim = inner / shape.heads;
  shape.state_size = config.integer({"ssm.state_size", "state_size"}, 1, 4096);
  shape.groups = config.integer({"ssm.group_count", "n_groups"}, 1, shape.heads);
  if (inner % shape.heads != 0 || shape.heads % shape.groups != 0)
    config.refuse(
        {"ssm.time_step_rank", "num_heads"},
        fmt::format("is {}: expected a divisor of {} and a multiple of the groups", shape.heads, inner));
  const int32_t kernel = config.integer({"ssm.conv_kernel", "conv_kernel"}, 2, 64);
  const std::vector<float> limits = config.numbers({nullptr, "time_step_limit"});
  const float epsilon = spec.norm_epsilon;
  for (BlockSpec& b : spec.blocks) {
    b.make_mixer = [=](Weights& w, int layer, const layers::Rope*,
                       const ops::RopeTable*) -> std::unique_ptr<layers::Mixer> {
      const auto need = Weights::Need::kRequired;
      auto m = std::make_unique<layers::Mamba2>();
      const int64_t channels = inner + 2 * int64_t{shape.groups} * shape.state_size;
      m->shape = shape;
      m->kernel = kernel;
      m->input = w.linear("blk.{}.ssm_in", inner + channels + shape.heads, hidden, layer);
      m->conv_weight = w.transposed("blk.{}.ssm_conv1d", ".weight", channels, kernel, layer);
      m->conv_bias = w.values("blk.{}.ssm_conv1d", ".bias", channels, Weights::Need::kOptional, layer);
      m->dt_bias = w.values("blk.{}.ssm_dt_bias", "", shape.heads, need, layer);
      m->a = w.values("blk.{}.ssm_a", "", shape.heads, need, layer);
      m->d = w.values("blk.{}.ssm_d", "", shape.heads, need, layer);
      if (limits.size() == 2) {
        m->dt_low = limits[0];
        m->dt_high = limits[1];
      }
      m->norm_weight = w.values("blk.{}.ssm_norm", ".weight", inner, need, layer);
      m->norm_epsilon = epsilon;
      m->norm_group = inner / shape.groups;
      m->output = w.linear("blk.{}.ssm_out", hidden, inner, layer);
      return m;
    };
  }
  return make_decoder(config, weights, std::move(spec));
}

std::unique_ptr<Model> load_jamba(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                                  ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"output_norm", "model.final_layernorm"},
      {"blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm"},
      {"blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"},
      {"blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"},
      {"blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"},
      {"blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router"},
      {"blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.{}.gate_proj"},
      {"blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.{}.up_proj"},
      {"blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.{}.down_proj"},
      {"blk.{}.ssm_in", "model.layers.{}.mamba.in_proj"},
      {"blk.{}.ssm_conv1d", "model.layers.{}.mamba.conv1d"},
      {"blk.{}.ssm_x", "model.layers.{}.mamba.x_proj"},
      {"blk.{}.ssm_dt", "model.layers.{}.mamba.dt_proj"},
      {"blk.{}.ssm_dt_norm", "model.layers.{}.mamba.dt_layernorm"},
      {"blk.{}.ssm_b_norm", "model.layers.{}.mamba.b_layernorm"},
      {"blk.{}.ssm_c_norm", "model.layers.{}.mamba.c_layernorm"},
      {"blk.{}.ssm_a", "model.layers.{}.mamba.A_log", Transform::kNegateExp},
      {"blk.{}.ssm_d", "model.layers.{}.mamba.D"},
      {"blk.{}.ssm_out", "model.layers.{}.mamba.out_proj"},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  MambaSpec mamba = read_mamba(config, spec.hidden_size, "mamba_");
  mamba.inner_norms = true;
  mamba.epsilon = spec.norm_epsilon;
  const int64_t hidden = spec.hidden_size;
  const bool gguf = config.gguf();
  const int32_t period = config.find_integer({nullptr, "attn_layer_period"}, 1).value_or(1);
  const int32_t offset = config.find_integer({nullptr, "attn_layer_offset"}).value_or(0);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    BlockSpec& b = spec.blocks[i];
    b.rope = -1;
    // What a layer is shows in what the file has for it (GGUF has no period).
    const bool attends =
        gguf ? weights.has("blk.{}.attn_q", static_cast<int>(i)) : static_cast<int32_t>(i) % period == offset;
    if (!attends)
      b.make_mixer = [=](Weights& w, int layer, const layers::Rope*, const ops::RopeTable*) {
        return make_mamba(w, mamba, hidden, layer);
      };
    if (!weights.has("blk.{}.ffn_gate_inp", static_cast<int>(i))) continue;
    const ExpertSpec experts =
        read_experts(config, {"expert_count", "num_experts"}, {"expert_used_count", "num_experts_per_tok"},
                     {"feed_forward_length", "intermediate_size"});
    b.make_ffn = [=](Weights& w, int layer) { return make_moe(w, experts, hidden, layer); };
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration mamba({{"mamba"}, {"MambaForCausalLM"}, load_mamba});
const FamilyRegistration mamba2({{"mamba2"}, {"Mamba2ForCausalLM"}, load_mamba2});
const FamilyRegistration jamba({{"jamba"}, {"JambaForCausalLM"}, load_jamba});

}  // namespace
}  // namespace millrace::models
