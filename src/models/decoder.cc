#include "models/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "layers/attention.h"
#include "layers/mlp.h"
#include "ops/elementwise.h"

namespace millrace::models {
namespace {

using layers::Linear;
using layers::Norm;
using layers::Step;

/// One transformer block: x += mixer(norm(x)); x += ffn(norm(x)), with the variations of BlockSpec.
struct Block {
  Norm attn_norm, post_attn_norm, ffn_norm, post_ffn_norm;
  std::unique_ptr<layers::Mixer> mixer;
  std::unique_ptr<layers::FeedForward> ffn;
  bool parallel = false;
  float residual_scale = 1;
  std::vector<ops::InputForm> mixer_forms, ffn_forms;

  void forward(const Step& s, int layer, float* x, int64_t hidden) const;

  /// Whether what the mixer leaves behind is all that the rest needs of a row: then feed() of some rows may
  /// follow mix() of all.
  bool separable() const { return !parallel || !ffn || !mixer; }
  void mix(const Step& s, int layer, float* x, int64_t hidden) const {
    if (!mixer) return;
    const layers::ScratchScope scratch(s);
    ops::MatmulInput h = input(s, attn_norm, x, hidden, mixer_forms);
    add_part(s, layer, *mixer, post_attn_norm, h, x, hidden);
  }
  void feed(const Step& s, int layer, float* x, int64_t hidden) const {
    if (!ffn) return;
    const layers::ScratchScope scratch(s);
    ops::MatmulInput h = input(s, ffn_norm, x, hidden, ffn_forms);
    add_part(s, layer, *ffn, post_ffn_norm, h, x, hidden);
  }

 private:
  ops::MatmulInput input(const Step& s, const Norm& norm, const float* x, int64_t hidden,
                         const std::vector<ops::InputForm>& forms) const {
    return norm ? ops::norm_input(s.context(), x, s.rows(), hidden, norm.spec(), forms, s.batch().prompt_rows)
                : s.input(x, hidden);
  }
  /// y += scale * part(input), with a norm on the part's result when the block has one.
  template <typename Part>
  void add_part(const Step& s, int layer, const Part& part, const Norm& post, ops::MatmulInput& in, float* y,
                int64_t hidden) const {
    ops::Epilogue epilogue;
    if (!post) {
      epilogue.kind = ops::Epilogue::Kind::kAdd;
      epilogue.scale = residual_scale;
      part.forward(s, layer, in, y, epilogue);
      return;
    }
    float* result = s.floats(s.rows() * hidden);
    part.forward(s, layer, in, result, epilogue);
    ops::norm_rows(s.context(), post.spec(), result, hidden, result, hidden, s.rows(), hidden);
    ops::add_rows(s.context(), y, result, s.rows() * hidden, residual_scale);
  }
};

void Block::forward(const Step& s, int layer, float* x, int64_t hidden) const {
  if (separable()) {
    mix(s, layer, x, hidden);
    feed(s, layer, x, hidden);
    return;
  }
  const layers::ScratchScope scratch(s);
  // Both halves read x as it was. The mixer adds into a copy's place: its input is normalised before x
  // changes.
  ops::MatmulInput h = input(s, attn_norm, x, hidden, mixer_forms);
  if (ffn_norm) {
    ops::MatmulInput f = input(s, ffn_norm, x, hidden, ffn_forms);
    add_part(s, layer, *mixer, post_attn_norm, h, x, hidden);
    add_part(s, layer, *ffn, post_ffn_norm, f, x, hidden);
  } else {
    for (const ops::InputForm form : ffn_forms) ops::prepare_input(s.context(), h, form);
    add_part(s, layer, *mixer, post_attn_norm, h, x, hidden);
    add_part(s, layer, *ffn, post_ffn_norm, h, x, hidden);
  }
}

class Decoder final : public Model {
 public:
  std::vector<layers::CacheSpec> cache_specs() const override {
    std::vector<layers::CacheSpec> specs;
    for (const Block& b : blocks)
      specs.push_back(b.mixer ? b.mixer->cache_spec() : layers::CacheSpec::none());
    return specs;
  }

  void forward(const ops::Context& context, const layers::Batch& batch, layers::KvCache& cache,
               const Outputs& outputs) override {
    const Step s(context, batch, cache);
    const int64_t rows = s.rows(), hidden = spec.hidden_size;
    for (size_t i = 0; i < spec.ropes.size(); ++i)
      if (spec.ropes[i].dim > 0) rope_tables[i] = spec.ropes[i].table(s);
    float* x = embed(s);
    const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
    // Once its keys and values are written, nobody asks for a row whose logits are not wanted.
    const bool part = wanted != rows && !blocks.empty() && blocks.back().separable();
    const size_t whole = blocks.size() - (part ? 1 : 0);
    for (size_t layer = 0; layer < whole; ++layer)
      blocks[layer].forward(s, static_cast<int>(layer), x, hidden);
    if (part) blocks.back().mix(s, static_cast<int>(whole), x, hidden);
    if (wanted == 0) return;
    if (wanted == rows) return finish(s, x, rows, outputs);
    float* last = s.floats(wanted * hidden);
    for (int64_t i = 0; i < wanted; ++i)
      std::copy_n(x + int64_t{batch.logit_rows[static_cast<size_t>(i)]} * hidden, hidden, last + i * hidden);
    if (part) {
      const layers::Batch of_wanted = wanted_rows(s);
      blocks.back().feed(Step(context, of_wanted, cache), static_cast<int>(whole), last, hidden);
    }
    finish(s, last, wanted, outputs);
  }

  std::vector<std::vector<uint64_t>> expert_load() const override {
    std::vector<std::vector<uint64_t>> load;
    for (const Block& b : blocks) load.push_back(b.ffn ? b.ffn->expert_load() : std::vector<uint64_t>{});
    return load;
  }

  void set_info(const Config& config, const Weights& weights) {
    info_.architecture = config.architecture();
    info_.name = config.text({"/general.name", "_name_or_path"});
    info_.vocab_size = spec.vocab_size;
    info_.context_length = spec.context_length;
    info_.fixed_context = spec.learned_positions;
    for (const layers::Rope& rope : spec.ropes) {
      if (!rope.long_frequencies && rope.dynamic_factor <= 0) continue;
      info_.rope_switch = rope.original_context;
      info_.rope_by_length = rope.dynamic_factor > 0;
    }
    info_.hidden_size = spec.hidden_size;
    info_.num_layers = static_cast<int32_t>(blocks.size());
    info_.num_parameters = weights.parameters();
    info_.weight_bytes = weights.packed_bytes();
    info_.float_weights = weights.all_float();
  }

  DecoderSpec spec;
  TensorView embedding;
  std::shared_ptr<MappedFile> embedding_file;
  std::vector<float> positions;  // [context + offset, hidden]
  Norm embedding_norm, output_norm;
  std::vector<Block> blocks;
  Linear output;
  std::vector<ops::RopeTable> rope_tables;  // this step's; the attention layers hold pointers to them

 private:
  /// The rows whose logits are wanted, without their sequences, which layers behind the mixer do not read.
  static layers::Batch wanted_rows(const Step& s) {
    const layers::Batch& batch = s.batch();
    const size_t wanted = batch.logit_rows.size();
    Arena& arena = s.context().arena;
    const std::span tokens(arena.allocate<int32_t>(static_cast<int64_t>(wanted)), wanted);
    const std::span positions(arena.allocate<int32_t>(static_cast<int64_t>(wanted)), wanted);
    layers::Batch part;
    for (size_t i = 0; i < wanted; ++i) {
      const auto row = static_cast<size_t>(batch.logit_rows[i]);
      tokens[i] = batch.tokens[row];
      positions[i] = batch.positions[row];
      if (batch.logit_rows[i] < batch.prompt_rows) ++part.prompt_rows;
    }
    part.tokens = tokens;
    part.positions = positions;
    return part;
  }

  float* embed(const Step& s) const {
    const ops::Context& context = s.context();
    const int64_t rows = s.rows(), hidden = spec.hidden_size;
    float* x = s.floats(rows * hidden);
    ops::embedding_lookup(context, embedding, s.batch().tokens, x);
    if (spec.embedding_scale != 1.0f) ops::scale_rows(context, x, rows * hidden, spec.embedding_scale);
    if (!positions.empty()) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t p = s.batch().positions[static_cast<size_t>(r)] + spec.position_offset;
        require(p * hidden < static_cast<int64_t>(positions.size()), ErrorCode::kLimitExceeded,
                "position {} is beyond the model's table of {}", s.batch().positions[static_cast<size_t>(r)],
                spec.context_length);
        context.kernels.add(x + r * hidden, positions.data() + p * hidden, hidden);
      }
    }
    if (embedding_norm) ops::norm_rows(context, embedding_norm.spec(), x, hidden, x, hidden, rows, hidden);
    return x;
  }

  void finish(const Step& s, const float* x, int64_t rows, const Outputs& outputs) const {
    const ops::Context& context = s.context();
    const int64_t hidden = spec.hidden_size, vocab = spec.vocab_size;
    float* h = outputs.hidden ? outputs.hidden : s.floats(rows * hidden);
    if (output_norm)
      ops::norm_rows(context, output_norm.spec(), x, hidden, h, hidden, rows, hidden);
    else
      std::copy_n(x, rows * hidden, h);
    if (!outputs.logits) return;
    ops::MatmulInput input = ops::make_input(h, rows, hidden);
    ops::Epilogue epilogue;
    epilogue.scale = spec.logit_scale;
    output.forward(context, input, outputs.logits, vocab, epilogue);
    if (spec.logit_softcap > 0) ops::softcap_rows(context, outputs.logits, rows * vocab, spec.logit_softcap);
  }
};

std::unique_ptr<layers::Mixer> make_attention(Weights& weights, const DecoderSpec& spec, const BlockSpec& b,
                                              int layer, const layers::Rope* rope,
                                              const ops::RopeTable* table) {
  auto attention = std::make_unique<layers::Attention>();
  layers::AttentionConfig& c = attention->config;
  c.num_heads = b.num_heads;
  c.num_kv_heads = b.num_kv_heads;
  c.key_dim = b.key_dim;
  c.value_dim = b.value_dim;
  c.scale = b.attention_scale > 0 ? b.attention_scale : 1.0f / std::sqrt(static_cast<float>(b.key_dim));
  c.softcap = b.attention_softcap;
  c.window = b.window;
  c.chunk = b.chunk;
  c.clip_qkv = b.clip_qkv;
  c.rope = rope;
  c.rope_table = table;
  c.norm_after_rope = b.norm_after_rope;
  c.gated = b.gated_attention;
  const int64_t q_rows = int64_t{b.num_heads} * b.key_dim * (b.gated_attention ? 2 : 1);
  const int64_t k_rows = int64_t{b.num_kv_heads} * b.key_dim, v_rows = int64_t{b.num_kv_heads} * b.value_dim;
  weights.set_qkv_heads({b.num_heads, b.num_kv_heads, b.key_dim});
  if (weights.has("blk.{}.attn_qkv", layer)) {
    attention->qkv = weights.linear("blk.{}.attn_qkv", q_rows + k_rows + v_rows, spec.hidden_size, layer);
  } else {
    attention->qkv =
        weights.linear({{"blk.{}.attn_q", q_rows}, {"blk.{}.attn_k", k_rows}, {"blk.{}.attn_v", v_rows}},
                       spec.hidden_size, layer);
  }
  attention->output =
      weights.linear("blk.{}.attn_output", spec.hidden_size, int64_t{b.num_heads} * b.value_dim, layer);
  if (b.qk_norm != BlockSpec::QkNorm::kNone) {
    const bool shared = b.qk_norm == BlockSpec::QkNorm::kPerHead;
    attention->query_norm =
        weights.norm("blk.{}.attn_q_norm", int64_t{b.key_dim} * (shared ? 1 : b.num_heads), b.qk_norm_kind,
                     spec.norm_epsilon, layer);
    attention->key_norm =
        weights.norm("blk.{}.attn_k_norm", int64_t{b.key_dim} * (shared ? 1 : b.num_kv_heads), b.qk_norm_kind,
                     spec.norm_epsilon, layer);
  }
  if (b.sinks) {
    const auto suffix = weights.has_plain("blk.{}.attn_sinks", layer) ? "" : ".weight";
    attention->sinks =
        weights.values("blk.{}.attn_sinks", suffix, b.num_heads, Weights::Need::kRequired, layer);
  }
  if (b.alibi) attention->alibi_slopes = layers::alibi_slopes(b.num_heads, b.alibi_max_bias);
  if (b.alibi_scaled)
    for (float& slope : attention->alibi_slopes) slope *= c.scale;
  return attention;
}

std::unique_ptr<layers::FeedForward> make_mlp(Weights& weights, const DecoderSpec& spec, const BlockSpec& b,
                                              int layer) {
  auto mlp = std::make_unique<layers::Mlp>();
  mlp->activation = b.activation;
  mlp->gated = b.gated;
  const int64_t width = b.ffn_width, hidden = spec.hidden_size;
  if (b.gated && weights.has("blk.{}.ffn_gate", layer))
    mlp->up = weights.linear({{"blk.{}.ffn_gate", width}, {"blk.{}.ffn_up", width}}, hidden, layer);
  else
    mlp->up = weights.linear("blk.{}.ffn_up", b.gated ? 2 * width : width, hidden, layer);
  mlp->down = weights.linear("blk.{}.ffn_down", hidden, width, layer);
  return mlp;
}

Norm make_norm(Weights& weights, const DecoderSpec& spec, std::string_view name, int layer) {
  if (spec.norm_weights) return weights.norm(name, spec.hidden_size, spec.norm, spec.norm_epsilon, layer);
  Norm norm;
  norm.kind = spec.norm;
  norm.epsilon = spec.norm_epsilon;
  norm.present = true;
  return norm;
}

Block make_block(Weights& weights, const DecoderSpec& spec, int layer, const layers::Rope* rope,
                 const ops::RopeTable* table) {
  const BlockSpec& b = spec.blocks[static_cast<size_t>(layer)];
  Block block;
  block.parallel = b.parallel;
  block.residual_scale = spec.residual_scale;
  auto norm = [&](bool present, std::string_view name) {
    return present ? make_norm(weights, spec, name, layer) : Norm{};
  };
  block.attn_norm = norm(b.attn_norm, "blk.{}.attn_norm");
  block.post_attn_norm = norm(b.post_attn_norm, "blk.{}.post_attention_norm");
  block.ffn_norm = norm(b.ffn_norm && !b.no_ffn, "blk.{}.ffn_norm");
  block.post_ffn_norm = norm(b.post_ffn_norm, "blk.{}.post_ffw_norm");
  block.mixer = b.make_mixer ? b.make_mixer(weights, layer, rope, table)
                             : make_attention(weights, spec, b, layer, rope, table);
  if (!b.no_ffn) block.ffn = b.make_ffn ? b.make_ffn(weights, layer) : make_mlp(weights, spec, b, layer);
  if (block.mixer) block.mixer->add_forms(block.mixer_forms);
  if (block.ffn) block.ffn->add_forms(block.ffn_forms);
  return block;
}

}  // namespace

std::unique_ptr<Model> make_decoder(const Config& config, Weights& weights, DecoderSpec spec) {
  auto model = std::make_unique<Decoder>();
  model->spec = std::move(spec);
  const DecoderSpec& s = model->spec;
  model->embedding = weights.table("token_embd", s.vocab_size, s.hidden_size, &model->embedding_file);
  if (s.embedding_norm)
    model->embedding_norm = weights.norm("token_embd_norm", s.hidden_size, s.norm, s.norm_epsilon);
  if (s.learned_positions)
    model->positions = weights.values("position_embd", ".weight",
                                      (int64_t{s.context_length} + s.position_offset) * s.hidden_size,
                                      Weights::Need::kRequired);
  model->rope_tables.resize(s.ropes.size());
  for (size_t layer = 0; layer < s.blocks.size(); ++layer) {
    const int32_t rope = s.blocks[layer].rope;
    const bool rotated = rope >= 0 && rope < static_cast<int32_t>(s.ropes.size()) &&
                         s.ropes[static_cast<size_t>(rope)].dim > 0;
    model->blocks.push_back(make_block(weights, s, static_cast<int>(layer),
                                       rotated ? &s.ropes[static_cast<size_t>(rope)] : nullptr,
                                       rotated ? &model->rope_tables[static_cast<size_t>(rope)] : nullptr));
  }
  if (s.output_norm) model->output_norm = make_norm(weights, s, "output_norm", -1);
  // Without a matrix of its own the output reads the embedding (tied).
  constexpr Key kTied{nullptr, "tie_word_embeddings"};
  const bool tied = config.has(kTied) && config.flag(kTied, false);
  if (config.has(kTied) && !tied && !weights.has("output"))
    fail(ErrorCode::kInvalidFile,
         "{}: the output matrix is missing though '{}' in {} is false: expected '{}'",
         weights.checkpoint().path.string(), config.name_of(kTied), config.origin(),
         weights.file_name("output", -1, ".weight"));
  const char* head = !tied && weights.has("output") ? "output" : "token_embd";
  model->output = weights.linear(head, s.vocab_size, s.hidden_size);
  model->set_info(config, weights);
  return model;
}

}  // namespace millrace::models
