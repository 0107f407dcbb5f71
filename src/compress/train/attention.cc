// Rotary positions and causal attention of train::Model. Every (document, key/value head) is one task that no
// other shares sums with. Scores of a whole document fit in the second-level cache, so a task is a handful of
// small matrix products on tiles of 8 rows that stop at the diagonal.

#include <algorithm>
#include <cmath>

#include "compress/train/model_state.h"

namespace millrace::train {
namespace {

const Word* as_words(const float* p) { return reinterpret_cast<const Word*>(p); }

/// rows x head_dim at row_stride to panels [head_dim / 32][padded][32]; rows beyond are zero.
void pack_rows(const float* from, int64_t row_stride, int rows, int padded, int head_dim, float* to) {
  for (int column = 0; column < head_dim; column += kPanelColumns) {
    for (int r = 0; r < padded; ++r, to += kPanelColumns) {
      if (r < rows)
        std::memcpy(to, from + r * row_stride + column, kPanelColumns * sizeof(float));
      else
        std::memset(to, 0, kPanelColumns * sizeof(float));
    }
  }
}

/// The transpose in panels: [padded / 32][head_dim][32].
void pack_transposed(const float* from, int64_t row_stride, int rows, int padded, int head_dim, float* to) {
  for (int block = 0; block < padded; block += kPanelColumns)
    for (int c = 0; c < kPanelColumns; ++c)
      for (int d = 0; d < head_dim; ++d)
        to[(int64_t{block} * head_dim) + d * kPanelColumns + c] =
            block + c < rows ? from[(block + c) * row_stride + d] : 0.0f;
}

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

void Model::rotate(const MicroBatch& batch, float* qkv, bool backward) const {
  const ModelShape& s = shape_;
  const int64_t width = s.query_dim() + 2 * s.kv_dim();
  const float* sine = backward ? scratch_->sine_back.data() : scratch_->sine.data();
  compute_.pool().parallel_for(batch.rows(), 32, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = int64_t{batch.positions[static_cast<size_t>(r)]} * s.head_dim;
      for (int head = 0; head < s.num_heads + s.num_kv_heads; ++head)
        compute_.kernel().rope(qkv + r * width + head * s.head_dim, scratch_->cosine.data() + at, sine + at,
                               s.head_dim);
    }
  });
}

void Model::prepare_attention(const MicroBatch& batch) {
  Scratch& w = *scratch_;
  int longest = 0;
  for (const Segment& segment : batch.segments) longest = std::max(longest, segment.length);
  longest = round_up(longest, kPanelColumns);
  if (longest <= w.longest) return;
  w.longest = longest;
  const int64_t head_dim = shape_.head_dim, square = int64_t{longest} * longest, panel = longest * head_dim;
  for (Scratch::Attention& a : w.attention) {
    a.scores.allocate(square);
    a.dscores.allocate(square);
    for (auto* buffer :
         {&a.keys_t, &a.values_t, &a.keys, &a.values, &a.queries, &a.douts, &a.dkeys, &a.dvalues})
      buffer->allocate(panel);
    a.tile.allocate(kTileRows * head_dim);
  }
  for (auto* table : {&w.cosine, &w.sine, &w.sine_back}) table->allocate(panel);
  for (int position = 0; position < longest; ++position) {
    for (int64_t i = 0; i < head_dim; i += 2) {
      const double angle = position * std::pow(static_cast<double>(shape_.rope_theta),
                                               -static_cast<double>(i) / static_cast<double>(head_dim));
      const int64_t at = position * head_dim + i;
      w.cosine[at] = w.cosine[at + 1] = static_cast<float>(std::cos(angle));
      w.sine[at + 1] = w.sine_back[at] = static_cast<float>(std::sin(angle));
      w.sine[at] = w.sine_back[at + 1] = -w.sine[at + 1];
    }
  }
}

void Model::attention(const MicroBatch& batch, LayerState& state) {
  const int64_t tasks = static_cast<int64_t>(batch.segments.size()) * shape_.num_kv_heads;
  compute_.pool().parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i)
      attention_task(batch.segments[static_cast<size_t>(i / shape_.num_kv_heads)],
                     static_cast<int>(i % shape_.num_kv_heads), state, thread);
  });
  for (const Segment& s : batch.segments)
    compute_.count_operations(2.0 * s.length * s.length * shape_.query_dim());
}

void Model::attention_task(const Segment& segment, int kv_head, LayerState& state, int thread) {
  Scratch::Attention& a = scratch_->attention[static_cast<size_t>(thread)];
  const Kernels& k = compute_.kernel();
  const ModelShape& s = shape_;
  const int length = segment.length, padded = round_up(length, kPanelColumns), dim = s.head_dim;
  const int64_t width = s.query_dim() + 2 * s.kv_dim();
  const float* base = state.qkv.data() + segment.begin * width;
  pack_transposed(base + s.query_dim() + kv_head * dim, width, length, padded, dim, a.keys_t.data());
  pack_rows(base + s.query_dim() + s.kv_dim() + kv_head * dim, width, length, padded, dim, a.values.data());
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const int group = s.num_heads / s.num_kv_heads;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int i0 = 0; i0 < length; i0 += kTileRows) {
      const int reach = i0 + kTileRows;  // one past the last key that a row of the tile may see
      float* scores = a.scores.data();
      for (int column = 0; column < reach; column += kPanelColumns)
        k.gemm_f32(as_words(base + i0 * width + head * dim), width, 1,
                   as_words(a.keys_t.data() + column * dim), dim, scores + column, padded, Into::kStore);
      for (int r = 0; r < kTileRows; ++r) {
        float* row = scores + int64_t{r} * padded;
        const int seen = i0 + r < length ? i0 + r + 1 : 0;
        if (seen) {
          const float top = k.maximum(row, seen) * scale;
          const float total = k.exp_sum(row, scale, top, seen);
          k.scale(row, 1.0f / total, seen);
          state.log_sum[(segment.begin + i0 + r) * int64_t{s.num_heads} + head] = top + std::log(total);
        }
        std::memset(row + seen, 0, static_cast<size_t>(reach - seen) * sizeof(float));
      }
      for (int column = 0; column < dim; column += kPanelColumns)
        k.gemm_f32(as_words(scores), padded, 1, as_words(a.values.data() + int64_t{column} * padded), reach,
                   a.tile.data() + column, dim, Into::kStore);
      for (int r = 0; r < kTileRows && i0 + r < length; ++r)
        compute_.to_operand(
            a.tile.data() + r * dim,
            state.attention_result.data() +
                compute_.words((segment.begin + i0 + r) * int64_t{s.query_dim()} + head * dim),
            dim);
    }
  }
}

void Model::attention_backward(const MicroBatch& batch, LayerState& state) {
  const int64_t tasks = static_cast<int64_t>(batch.segments.size()) * shape_.num_kv_heads;
  compute_.pool().parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i)
      attention_backward_task(batch.segments[static_cast<size_t>(i / shape_.num_kv_heads)],
                              static_cast<int>(i % shape_.num_kv_heads), state, thread);
  });
  for (const Segment& s : batch.segments)
    compute_.count_operations(5.0 * s.length * s.length * shape_.query_dim());
}

/// P and dS of one head, all rows of the document, into a.scores and a.dscores; dQ into the gradient of qkv.
void Model::attention_backward_scores(const Segment& segment, int head, const LayerState& state, int thread) {
  Scratch::Attention& a = scratch_->attention[static_cast<size_t>(thread)];
  const Kernels& k = compute_.kernel();
  const ModelShape& s = shape_;
  const int length = segment.length, padded = round_up(length, kPanelColumns), dim = s.head_dim;
  const int64_t width = s.query_dim() + 2 * s.kv_dim();
  const float* base = state.qkv.data() + segment.begin * width;
  const float* dout = scratch_->narrow.data() + segment.begin * int64_t{s.query_dim()} + head * dim;
  float* dqkv = scratch_->wide.data() + segment.begin * width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (int i0 = 0; i0 < length; i0 += kTileRows) {
    const int reach = i0 + kTileRows;
    float* scores = a.scores.data() + int64_t{i0} * padded;
    float* dscores = a.dscores.data() + int64_t{i0} * padded;
    for (int column = 0; column < reach; column += kPanelColumns) {
      k.gemm_f32(as_words(base + i0 * width + head * dim), width, 1, as_words(a.keys_t.data() + column * dim),
                 dim, scores + column, padded, Into::kStore);
      k.gemm_f32(as_words(dout + int64_t{i0} * s.query_dim()), s.query_dim(), 1,
                 as_words(a.values_t.data() + column * dim), dim, dscores + column, padded, Into::kStore);
    }
    for (int r = 0; r < kTileRows; ++r) {
      float* row = scores + int64_t{r} * padded;
      float* drow = dscores + int64_t{r} * padded;
      const int seen = i0 + r < length ? i0 + r + 1 : 0;
      if (seen) {
        k.exp_sum(row, scale, state.log_sum[(segment.begin + i0 + r) * int64_t{s.num_heads} + head], seen);
        k.softmax_backward(row, drow, k.dot(row, drow, seen), scale, seen);
      }
      std::memset(row + seen, 0, static_cast<size_t>(reach - seen) * sizeof(float));
      std::memset(drow + seen, 0, static_cast<size_t>(reach - seen) * sizeof(float));
    }
    for (int column = 0; column < dim; column += kPanelColumns)
      k.gemm_f32(as_words(dscores), padded, 1, as_words(a.keys.data() + int64_t{column} * padded), reach,
                 a.tile.data() + column, dim, Into::kStore);
    for (int r = 0; r < kTileRows && i0 + r < length; ++r)
      std::memcpy(dqkv + (i0 + r) * width + head * dim, a.tile.data() + r * dim,
                  static_cast<size_t>(dim) * sizeof(float));
  }
}

void Model::attention_backward_task(const Segment& segment, int kv_head, LayerState& state, int thread) {
  Scratch::Attention& a = scratch_->attention[static_cast<size_t>(thread)];
  const Kernels& k = compute_.kernel();
  const ModelShape& s = shape_;
  const int length = segment.length, padded = round_up(length, kPanelColumns), dim = s.head_dim;
  const int tiles_end = round_up(length, kTileRows);
  const int64_t width = s.query_dim() + 2 * s.kv_dim();
  const float* base = state.qkv.data() + segment.begin * width;
  const float* keys = base + s.query_dim() + kv_head * dim;
  const float* values = keys + s.kv_dim();
  pack_transposed(keys, width, length, padded, dim, a.keys_t.data());
  pack_transposed(values, width, length, padded, dim, a.values_t.data());
  pack_rows(keys, width, length, padded, dim, a.keys.data());
  const size_t bytes = static_cast<size_t>(padded) * static_cast<size_t>(dim) * sizeof(float);
  std::memset(a.dkeys.data(), 0, bytes);
  std::memset(a.dvalues.data(), 0, bytes);
  const int group = s.num_heads / s.num_kv_heads;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    attention_backward_scores(segment, head, state, thread);
    const float* dout = scratch_->narrow.data() + segment.begin * int64_t{s.query_dim()} + head * dim;
    pack_rows(base + head * dim, width, length, padded, dim, a.queries.data());
    pack_rows(dout, s.query_dim(), length, padded, dim, a.douts.data());
    for (int j0 = 0; j0 < length; j0 += kTileRows) {
      // Rows before j0 do not see these keys.
      const int64_t from = int64_t{j0} * padded + j0;
      for (int column = 0; column < dim; column += kPanelColumns) {
        const int64_t panel = int64_t{column} * padded + int64_t{j0} * kPanelColumns;
        k.gemm_f32(as_words(a.dscores.data() + from), 1, padded, as_words(a.queries.data() + panel),
                   tiles_end - j0, a.dkeys.data() + int64_t{j0} * dim + column, dim, Into::kAdd);
        k.gemm_f32(as_words(a.scores.data() + from), 1, padded, as_words(a.douts.data() + panel),
                   tiles_end - j0, a.dvalues.data() + int64_t{j0} * dim + column, dim, Into::kAdd);
      }
    }
  }
  float* dkeys = scratch_->wide.data() + segment.begin * width + s.query_dim() + kv_head * dim;
  for (int j = 0; j < length; ++j) {
    std::memcpy(dkeys + j * width, a.dkeys.data() + int64_t{j} * dim,
                static_cast<size_t>(dim) * sizeof(float));
    std::memcpy(dkeys + j * width + s.kv_dim(), a.dvalues.data() + int64_t{j} * dim,
                static_cast<size_t>(dim) * sizeof(float));
  }
}

}  // namespace millrace::train
