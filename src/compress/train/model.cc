#include "compress/train/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/train/model_state.h"
#include "core/error.h"
#include "core/random.h"

namespace millrace::train {

int64_t TensorInfo::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// Hands out places in the flat buffers and writes the table of tensors.
struct LayoutBuilder {
  std::vector<TensorInfo>& tensors;
  int64_t parameters = 0;
  int64_t packed = 0;

  int64_t take(const std::string& name, std::vector<int64_t> shape) {
    TensorInfo info{name, parameters, std::move(shape), 0};
    if (info.shape.size() == 3) info.stride = info.shape[1] * info.shape[2];
    parameters += info.size();
    tensors.push_back(std::move(info));
    return tensors.back().offset;
  }
  Linear linear(const Compute& compute, int64_t offset, int64_t outputs, int64_t inputs) {
    Linear l{offset, outputs, inputs, packed};
    packed += 2 * compute.words(l.size());
    return l;
  }
};

void Model::lay_out() {
  LayoutBuilder at{tensors_};
  const ModelShape& s = shape_;
  embedding_ = at.linear(compute_, at.take("token_embd.weight", {s.vocab_size, s.dim}), s.vocab_size, s.dim);
  for (int i = 0; i < s.num_layers; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    Layer layer;
    layer.attention_norm = at.take(block + "attn_norm.weight", {s.dim});
    const int64_t qkv = at.take(block + "attn_q.weight", {s.query_dim(), s.dim});
    at.take(block + "attn_k.weight", {s.kv_dim(), s.dim});
    at.take(block + "attn_v.weight", {s.kv_dim(), s.dim});
    layer.qkv = at.linear(compute_, qkv, s.query_dim() + 2 * s.kv_dim(), s.dim);
    layer.output = at.linear(compute_, at.take(block + "attn_output.weight", {s.dim, s.query_dim()}), s.dim,
                             s.query_dim());
    layer.mlp_norm = at.take(block + "ffn_norm.weight", {s.dim});
    const int64_t ff = s.feed_forward;
    if (s.num_experts == 0) {
      const int64_t gate = at.take(block + "ffn_gate.weight", {ff, s.dim});
      at.take(block + "ffn_up.weight", {ff, s.dim});
      layer.gate_up = at.linear(compute_, gate, 2 * ff, s.dim);
      layer.down = at.linear(compute_, at.take(block + "ffn_down.weight", {s.dim, ff}), s.dim, ff);
    } else {
      layer.router = at.take(block + "ffn_gate_inp.weight", {s.num_experts, s.dim});
      // Gate and up of an expert lie side by side, so that one product makes both; the table sees them as two
      // tensors whose experts are twice as far apart.
      const int64_t gate = at.take(block + "ffn_gate_exps.weight", {s.num_experts, ff, s.dim});
      const size_t gate_index = tensors_.size() - 1;
      at.take(block + "ffn_up_exps.weight", {s.num_experts, ff, s.dim});
      tensors_[gate_index].stride = tensors_[gate_index + 1].stride = 2 * ff * s.dim;
      tensors_[gate_index + 1].offset = gate + ff * s.dim;
      const int64_t down = at.take(block + "ffn_down_exps.weight", {s.num_experts, s.dim, ff});
      for (int e = 0; e < s.num_experts; ++e) {
        layer.expert_gate_up.push_back(at.linear(compute_, gate + e * 2 * ff * s.dim, 2 * ff, s.dim));
        layer.expert_down.push_back(at.linear(compute_, down + e * ff * s.dim, s.dim, ff));
      }
    }
    layers_.push_back(std::move(layer));
  }
  final_norm_ = at.take("output_norm.weight", {s.dim});
  parameters_.allocate(at.parameters);
  gradients_.allocate(at.parameters);
  packed_words_ = at.packed;
  packed_.allocate(at.packed);
}

Model::Model(const ModelShape& shape, Arithmetic arithmetic, bool recompute_activations, int max_rows,
             ThreadPool& pool, const Kernels& table)
    : shape_(shape),
      recompute_(recompute_activations),
      max_rows_((max_rows + 15) / 16 * 16),
      compute_(arithmetic, pool, table),
      scratch_(std::make_unique<Scratch>()) {
  lay_out();
  const ModelShape& s = shape_;
  // Attention reads whole tiles of 8 rows, which may reach beyond the last one.
  const int64_t rows = max_rows_ + kTileRows;
  const int64_t qkv_dim = s.query_dim() + 2 * s.kv_dim();
  const int64_t experts = s.num_experts, used = s.experts_per_token;
  const int64_t grouped = experts ? rows * used + experts * 16 : 0;
  const int64_t mlp_rows = experts ? grouped : rows;
  states_.resize(static_cast<size_t>(recompute_ ? 1 : s.num_layers));
  for (LayerState& state : states_) {
    state.rstd_attention.allocate(rows);
    state.rstd_mlp.allocate(rows);
    state.attention_input.allocate(rows * compute_.words(s.dim));
    state.attention_result.allocate(rows * compute_.words(s.query_dim()));
    state.qkv.allocate(rows * qkv_dim);
    state.log_sum.allocate(rows * s.num_heads);
    state.middle.allocate(rows * s.dim);
    state.mlp_input.allocate(rows * compute_.words(s.dim));
    if (experts == 0) {
      state.gate_up.allocate(rows * 2 * s.feed_forward);
      state.activation.allocate(rows * compute_.words(s.feed_forward));
      continue;
    }
    state.mlp_input_float = std::make_unique<Buffer<float>>(rows * s.dim);
    state.moe = std::make_unique<ExpertState>();
    ExpertState& moe = *state.moe;
    moe.probability.allocate(rows * experts);
    moe.chosen.allocate(rows * used);
    moe.share.allocate(rows * used);
    moe.place.allocate(rows * used);
    moe.source.allocate(grouped);
    moe.begin.resize(static_cast<size_t>(experts) + 1);
    moe.input.allocate(grouped * compute_.words(s.dim));
    moe.gate_up.allocate(grouped * 2 * s.feed_forward);
    moe.activation.allocate(grouped * compute_.words(s.feed_forward));
    moe.result.allocate(grouped * s.dim);
  }
  streams_.resize(static_cast<size_t>(s.num_layers) + 1);
  for (auto& stream : streams_) stream.allocate(rows * s.dim);
  Scratch& w = *scratch_;
  const int64_t wide = std::max<int64_t>(qkv_dim, 2 * s.feed_forward);
  w.dstream.allocate(rows * s.dim);
  w.dstream_operand.allocate(rows * compute_.words(s.dim));
  w.wide.allocate(std::max(mlp_rows * s.feed_forward, rows * qkv_dim));
  w.wide_operand.allocate(std::max(mlp_rows * 2 * s.feed_forward, rows * qkv_dim));
  w.narrow.allocate(rows * std::max(s.dim, s.query_dim()));
  w.norm_parts.allocate((rows / kNormChunk + 1) * s.dim);
  w.final_input.allocate(rows * compute_.words(s.dim));
  w.final_rstd.allocate(rows);
  w.logits.allocate(rows * s.vocab_size);
  w.dlogits.allocate(rows * compute_.words(s.vocab_size));
  w.row_loss.allocate(rows);
  if (experts) {
    w.grouped_operand.allocate(grouped * compute_.words(s.dim));
    w.dgrouped.allocate(grouped * s.dim);
    w.dscore.allocate(rows * experts);
  }
  w.attention.resize(static_cast<size_t>(pool.num_threads()));
  for (int i = 0; i < pool.num_threads(); ++i) w.rows.emplace_back(8 * std::max<int64_t>(wide, s.dim));
}

Model::~Model() = default;

void Model::initialise(uint64_t seed, float deviation, bool similar_attention) {
  Random random(seed, 7);
  const float residual = deviation / std::sqrt(2.0f * static_cast<float>(shape_.num_layers));
  for (const TensorInfo& t : tensors_) {
    const bool small =
        t.name.find("attn_output") != std::string::npos || t.name.find("ffn_down") != std::string::npos;
    const int64_t matrix = t.shape.size() == 3 ? t.shape[1] * t.shape[2] : t.size();
    for (int64_t i = 0; i < t.size(); ++i) {
      const int64_t place =
          t.shape.size() == 3 ? t.offset + i / matrix * t.stride + i % matrix : t.offset + i;
      parameters_[place] = t.is_norm() ? 1.0f : random.normal() * (small ? residual : deviation);
    }
  }
  if (similar_attention)
    for (const Layer& layer : layers_) initialise_attention(layer, random);
  repack();
}

/// Queries start close to the keys of their group and outputs close to the transposed values: a head then
/// looks at rows that resemble its own and passes on what they hold, from where copying out of the context is
/// learnt in a fraction of the steps (the start that Trockman and Kolter, 2023, read off trained models).
void Model::initialise_attention(const Layer& layer, Random& random) {
  const ModelShape& s = shape_;
  const float deviation = 0.7f / std::sqrt(static_cast<float>(s.dim));
  float* queries = parameters_.data() + layer.qkv.offset;
  float* keys = queries + int64_t{s.query_dim()} * s.dim;
  float* values = keys + int64_t{s.kv_dim()} * s.dim;
  float* output = parameters_.data() + layer.output.offset;
  for (int64_t i = 0; i < 2 * int64_t{s.kv_dim()} * s.dim; ++i) keys[i] = random.normal() * deviation;
  const int group = s.num_heads / s.num_kv_heads;
  for (int row = 0; row < s.query_dim(); ++row) {
    const int kv_row = row / s.head_dim / group * s.head_dim + row % s.head_dim;
    for (int column = 0; column < s.dim; ++column) {
      const int64_t from = int64_t{kv_row} * s.dim + column;
      queries[int64_t{row} * s.dim + column] = 0.6f * keys[from] + 0.8f * deviation * random.normal();
      output[int64_t{column} * s.query_dim() + row] =
          (0.6f * values[from] + 0.8f * deviation * random.normal()) /
          std::sqrt(2.0f * static_cast<float>(s.num_layers));
    }
  }
}

void Model::start_from(Model& source) {
  int taken = 0;
  for (const TensorInfo& t : tensors_) {
    for (const TensorInfo& from : source.tensors_) {
      if (from.name != t.name || from.shape != t.shape || t.shape.size() == 3) continue;
      std::copy_n(source.parameters_.data() + from.offset, t.size(), parameters_.data() + t.offset);
      ++taken;
    }
  }
  const bool cut = shape_.num_experts > 0 && source.shape_.num_experts == 0 &&
                   shape_.dim == source.shape_.dim && shape_.feed_forward <= source.shape_.feed_forward;
  if (cut)
    for (size_t i = 0; i < std::min(layers_.size(), source.layers_.size()); ++i) cut_experts(source, i);
  require(taken > 0, ErrorCode::kInvalidArgument, "the model to start from shares no tensor with this one");
  repack();
}

/// Expert e takes the next feed_forward hidden units of the dense MLP, going round; its output is scaled so
/// that the mix of experts has the size of the whole.
void Model::cut_experts(Model& source, size_t layer) {
  const int64_t dim = shape_.dim, width = shape_.feed_forward, whole = source.shape_.feed_forward;
  const Layer& from = source.layers_[layer];
  const float* gate_up = source.parameters_.data() + from.gate_up.offset;
  const float* down = source.parameters_.data() + from.down.offset;
  const float scale = static_cast<float>(whole) / static_cast<float>(width);
  for (int64_t e = 0; e < shape_.num_experts; ++e) {
    float* to = parameters_.data() + layers_[layer].expert_gate_up[static_cast<size_t>(e)].offset;
    float* to_down = parameters_.data() + layers_[layer].expert_down[static_cast<size_t>(e)].offset;
    for (int64_t i = 0; i < width; ++i) {
      const int64_t unit = (e * width + i) % whole;
      std::copy_n(gate_up + unit * dim, dim, to + i * dim);
      std::copy_n(gate_up + (whole + unit) * dim, dim, to + (width + i) * dim);
      for (int64_t row = 0; row < dim; ++row) to_down[row * width + i] = scale * down[row * whole + unit];
    }
  }
}

void Model::repack() {
  std::vector<const Linear*> all = {&embedding_};
  for (const Layer& layer : layers_) {
    all.push_back(&layer.qkv);
    all.push_back(&layer.output);
    if (shape_.num_experts == 0) {
      all.push_back(&layer.gate_up);
      all.push_back(&layer.down);
    }
    for (const Linear& l : layer.expert_gate_up) all.push_back(&l);
    for (const Linear& l : layer.expert_down) all.push_back(&l);
  }
  compute_.pool().parallel_for(static_cast<int64_t>(all.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Linear& l = *all[static_cast<size_t>(i)];
      compute_.pack_weight(parameters_.data() + l.offset, l.outputs, l.inputs, packed_.data() + l.packed);
    }
  });
}

void Model::clear_gradients() {
  std::memset(gradients_.data(), 0, static_cast<size_t>(gradients_.size()) * sizeof(float));
}

void Model::norm(const float* x, int64_t weight, Word* out, float* rstd, int rows) {
  const int dim = shape_.dim;
  compute_.pool().parallel_for(rows, 32, [&](int64_t begin, int64_t end, int thread) {
    float* row = scratch_->rows[static_cast<size_t>(thread)].data();
    for (int64_t r = begin; r < end; ++r) {
      rstd[r] =
          compute_.kernel().rms_norm(x + r * dim, parameters_.data() + weight, row, dim, shape_.norm_epsilon);
      compute_.to_operand(row, out + r * compute_.words(dim), dim);
    }
  });
}

void Model::norm_backward(const float* x, int64_t weight, const float* dy, const float* rstd, int rows) {
  const int dim = shape_.dim;
  Scratch& w = *scratch_;
  const int64_t chunks = (rows + kNormChunk - 1) / kNormChunk;
  compute_.pool().parallel_for(chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      float* part = w.norm_parts.data() + chunk * dim;
      std::memset(part, 0, static_cast<size_t>(dim) * sizeof(float));
      const int64_t last = std::min<int64_t>(rows, (chunk + 1) * kNormChunk);
      for (int64_t r = chunk * kNormChunk; r < last; ++r)
        compute_.kernel().rms_norm_backward(x + r * dim, parameters_.data() + weight, dy + r * dim, rstd[r],
                                            w.dstream.data() + r * dim, part, dim);
    }
  });
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    compute_.kernel().add(w.norm_parts.data() + chunk * dim, gradients_.data() + weight, dim);
}

void Model::embed(const MicroBatch& batch) {
  const int dim = shape_.dim;
  for (int r = 0; r < batch.rows(); ++r)
    std::memcpy(streams_[0].data() + int64_t{r} * dim,
                parameters_.data() + embedding_.offset + int64_t{batch.tokens[r]} * dim,
                static_cast<size_t>(dim) * sizeof(float));
}

void Model::embed_backward(const MicroBatch& batch) {
  // Serial: two rows may share a token, and the order of their sum must not depend on the threads.
  const int dim = shape_.dim;
  for (int r = 0; r < batch.rows(); ++r)
    compute_.kernel().add(scratch_->dstream.data() + int64_t{r} * dim,
                          gradients_.data() + embedding_.offset + int64_t{batch.tokens[r]} * dim, dim);
}

void Model::swiglu_rows(const float* gate_up, Word* activation, int64_t rows, int64_t width) const {
  compute_.pool().parallel_for(rows, 16, [&](int64_t begin, int64_t end, int thread) {
    float* row = scratch_->rows[static_cast<size_t>(thread)].data();
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = gate_up + r * 2 * width;
      compute_.kernel().swiglu(gate, gate + width, row, width);
      compute_.to_operand(row, activation + r * compute_.words(width), width);
    }
  });
}

void Model::swiglu_backward_rows(const float* gate_up, const float* dactivation, Word* dgate_up, int64_t rows,
                                 int64_t width) const {
  compute_.pool().parallel_for(rows, 16, [&](int64_t begin, int64_t end, int thread) {
    float* row = scratch_->rows[static_cast<size_t>(thread)].data();
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = gate_up + r * 2 * width;
      compute_.kernel().swiglu_backward(gate, gate + width, dactivation + r * width, row, row + width, width);
      compute_.to_operand(row, dgate_up + r * compute_.words(2 * width), 2 * width);
    }
  });
}

void Model::mlp(const Layer& layer, LayerState& state, float* out, int rows) {
  compute_.forward(state.mlp_input.data(), layer.gate_up, packed(layer.gate_up), rows, state.gate_up.data(),
                   Into::kStore);
  swiglu_rows(state.gate_up.data(), state.activation.data(), rows, shape_.feed_forward);
  compute_.forward(state.activation.data(), layer.down, packed(layer.down), rows, out, Into::kAdd);
}

void Model::mlp_backward(const Layer& layer, LayerState& state, int rows) {
  Scratch& w = *scratch_;
  compute_.to_operand_rows(w.dstream.data(), w.dstream_operand.data(), rows, shape_.dim);
  compute_.backward_input(w.dstream_operand.data(), layer.down, packed(layer.down), rows, w.wide.data(),
                          Into::kStore);
  compute_.backward_weight(w.dstream_operand.data(), state.activation.data(), layer.down, rows,
                           gradient(layer.down));
  swiglu_backward_rows(state.gate_up.data(), w.wide.data(), w.wide_operand.data(), rows, shape_.feed_forward);
  compute_.backward_input(w.wide_operand.data(), layer.gate_up, packed(layer.gate_up), rows, w.narrow.data(),
                          Into::kStore);
  compute_.backward_weight(w.wide_operand.data(), state.mlp_input.data(), layer.gate_up, rows,
                           gradient(layer.gate_up));
}

void Model::layer_forward(const MicroBatch& batch, const Layer& layer, const float* x, LayerState& state,
                          float* out) {
  const int rows = batch.rows();
  const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(shape_.dim) * sizeof(float);
  norm(x, layer.attention_norm, state.attention_input.data(), state.rstd_attention.data(), rows);
  compute_.forward(state.attention_input.data(), layer.qkv, packed(layer.qkv), rows, state.qkv.data(),
                   Into::kStore);
  rotate(batch, state.qkv.data(), /*backward=*/false);
  attention(batch, state);
  std::memcpy(state.middle.data(), x, bytes);
  compute_.forward(state.attention_result.data(), layer.output, packed(layer.output), rows,
                   state.middle.data(), Into::kAdd);
  norm(state.middle.data(), layer.mlp_norm, state.mlp_input.data(), state.rstd_mlp.data(), rows);
  std::memcpy(out, state.middle.data(), bytes);
  if (shape_.num_experts) {
    route(layer, state, rows, static_cast<int>(batch.predictions));
    experts(layer, state, out, static_cast<int>(batch.predictions));
  } else {
    mlp(layer, state, out, rows);
  }
}

void Model::layer_backward(const MicroBatch& batch, const Layer& layer, const float* x, LayerState& state,
                           float balance) {
  const int rows = batch.rows();
  Scratch& w = *scratch_;
  if (shape_.num_experts)
    experts_backward(layer, state, rows, static_cast<int>(batch.predictions), balance);
  else
    mlp_backward(layer, state, rows);
  norm_backward(state.middle.data(), layer.mlp_norm, w.narrow.data(), state.rstd_mlp.data(), rows);
  compute_.to_operand_rows(w.dstream.data(), w.dstream_operand.data(), rows, shape_.dim);
  compute_.backward_input(w.dstream_operand.data(), layer.output, packed(layer.output), rows, w.narrow.data(),
                          Into::kStore);
  compute_.backward_weight(w.dstream_operand.data(), state.attention_result.data(), layer.output, rows,
                           gradient(layer.output));
  attention_backward(batch, state);
  rotate(batch, w.wide.data(), /*backward=*/true);
  compute_.to_operand_rows(w.wide.data(), w.wide_operand.data(), rows, layer.qkv.outputs);
  compute_.backward_input(w.wide_operand.data(), layer.qkv, packed(layer.qkv), rows, w.narrow.data(),
                          Into::kStore);
  compute_.backward_weight(w.wide_operand.data(), state.attention_input.data(), layer.qkv, rows,
                           gradient(layer.qkv));
  norm_backward(x, layer.attention_norm, w.narrow.data(), state.rstd_attention.data(), rows);
}

/// Softmax and cross entropy of every row; with `scale`, the gradient of scale * loss as operand rows in
/// dlogits.
LossSum Model::head(const MicroBatch& batch, const float* x, const float* scale) {
  Scratch& w = *scratch_;
  const int rows = batch.rows();
  const int vocab = shape_.vocab_size;
  norm(x, final_norm_, w.final_input.data(), w.final_rstd.data(), rows);
  compute_.forward(w.final_input.data(), embedding_, packed(embedding_), rows, w.logits.data(), Into::kStore);
  const Kernels& k = compute_.kernel();
  compute_.pool().parallel_for(rows, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = w.logits.data() + r * vocab;
      const float weight = batch.weights[static_cast<size_t>(r)];
      const int target = batch.targets[static_cast<size_t>(r)];
      const float target_logit = row[target], top = k.maximum(row, vocab);
      const float total = k.exp_sum(row, 1.0f, top, vocab);
      w.row_loss[r] = weight * (std::log(static_cast<double>(total)) + top - target_logit);
      if (!scale) continue;
      const float factor = weight * *scale;
      k.scale(row, factor / total, vocab);
      row[target] -= factor;
      compute_.to_operand(row, w.dlogits.data() + r * compute_.words(vocab), vocab);
    }
  });
  LossSum sum;
  for (int r = 0; r < rows; ++r) sum.loss += w.row_loss[r];
  sum.weight = batch.total_weight;
  return sum;
}

void Model::run_layers(const MicroBatch& batch, bool keep) {
  check(batch.rows() % 16 == 0 && batch.rows() <= max_rows_, "micro batch of {} rows in a model for {}",
        batch.rows(), max_rows_);
  prepare_attention(batch);
  embed(batch);
  for (size_t i = 0; i < layers_.size(); ++i)
    layer_forward(batch, layers_[i], streams_[i].data(), states_[recompute_ || !keep ? 0 : i],
                  streams_[i + 1].data());
}

LossSum Model::forward(const MicroBatch& batch) {
  run_layers(batch, /*keep=*/false);
  return head(batch, streams_.back().data(), nullptr);
}

LossSum Model::forward_backward(const MicroBatch& batch, float scale, float balance) {
  Scratch& w = *scratch_;
  const int rows = batch.rows();
  run_layers(batch, /*keep=*/true);
  const LossSum sum = head(batch, streams_.back().data(), &scale);
  compute_.backward_input(w.dlogits.data(), embedding_, packed(embedding_), rows, w.narrow.data(),
                          Into::kStore);
  compute_.backward_weight(w.dlogits.data(), w.final_input.data(), embedding_, rows, gradient(embedding_));
  std::memset(w.dstream.data(), 0,
              static_cast<size_t>(rows) * static_cast<size_t>(shape_.dim) * sizeof(float));
  norm_backward(streams_.back().data(), final_norm_, w.narrow.data(), w.final_rstd.data(), rows);
  for (size_t i = layers_.size(); i-- > 0;) {
    LayerState& state = states_[recompute_ ? 0 : i];
    // The last layer's state is still there when recomputing; those before it are made again.
    if (recompute_ && i + 1 < layers_.size())
      layer_forward(batch, layers_[i], streams_[i].data(), state, streams_[i + 1].data());
    layer_backward(batch, layers_[i], streams_[i].data(), state, balance);
  }
  embed_backward(batch);
  return sum;
}

std::vector<int> Model::greedy(const MicroBatch& batch) {
  run_layers(batch, /*keep=*/false);
  Scratch& w = *scratch_;
  norm(streams_.back().data(), final_norm_, w.final_input.data(), w.final_rstd.data(), batch.rows());
  // Only the last row of each segment is asked for; they are gathered to the front.
  const int64_t row_words = compute_.words(shape_.dim);
  const auto count = static_cast<int64_t>(batch.segments.size());
  for (int64_t i = 0; i < count; ++i) {
    const Segment& s = batch.segments[static_cast<size_t>(i)];
    std::memmove(w.final_input.data() + i * row_words,
                 w.final_input.data() + (s.begin + s.length - 1) * row_words,
                 static_cast<size_t>(row_words) * sizeof(Word));
  }
  compute_.forward(w.final_input.data(), embedding_, packed(embedding_), (count + 7) / 8 * 8, w.logits.data(),
                   Into::kStore);
  std::vector<int> best;
  for (int64_t i = 0; i < count; ++i) {
    const float* row = w.logits.data() + i * shape_.vocab_size;
    best.push_back(static_cast<int>(std::max_element(row, row + shape_.vocab_size) - row));
  }
  return best;
}

}  // namespace millrace::train
