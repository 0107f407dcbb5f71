// Recurrences whose decay holds for a whole head, by chunks of kScanChunk tokens. A chunk begins where a
// sequence's length is a multiple of kScanChunk. The state stands for the tokens before it; what the
// recurrence needs of the chunk's own tokens is held beside the state until the chunk is full. So a token's
// result is the same sum in the same order whether its chunk came at once, in pieces or token by token, and a
// token alone reads the state but does not write it.
#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "core/error.h"
#include "ops/ssm_parts.h"

namespace millrace::ops {
namespace {

constexpr int64_t kChunk = kernels::kScanChunk;
constexpr int64_t kPairs = kChunk * kChunk;

/// Heads of [size, columns]; groups of heads share their keys.
struct ChunkShape {
  int64_t heads, groups, size, columns;

  int64_t head_state() const { return size * columns; }
  int64_t group_of(int64_t head) const { return head / (heads / groups); }
  int64_t floats() const {
    return heads * (head_state() + kChunk * (columns + 1)) + groups * kChunk * size + 1;
  }
};

/// Where a sequence's state holds what.
class ChunkState {
 public:
  ChunkState(const ChunkShape& shape, float* at) : shape_(shape), at_(at) {}

  /// In strips of kScanStrip columns, one behind the other.
  float* state(int64_t head) const { return at_ + head * shape_.head_state(); }
  /// [kChunk][columns]
  float* values(int64_t head) const {
    return at_ + shape_.heads * shape_.head_state() + head * kChunk * shape_.columns;
  }
  /// [kChunk]: of each token, what its decay is made of.
  float* steps(int64_t head) const { return values(shape_.heads) + head * kChunk; }
  /// [kChunk][size]
  float* keys(int64_t group) const { return steps(shape_.heads) + group * kChunk * shape_.size; }
  /// Tokens held.
  float& count() const { return *keys(shape_.groups); }

 private:
  const ChunkShape& shape_;
  float* at_;
};

/// What a step does of one chunk: its tokens [first, end), the first of them in `row`.
struct Chunk {
  int32_t sequence, first, end;
  int64_t row;
  /// Begun in an earlier step: its keys lie in the state.
  bool held() const { return first > 0; }
  bool full() const { return end == kChunk; }
};

/// Keys (or queries) of a step's rows by group.
struct KeyRows {
  const float* data;
  int64_t row_stride, group_stride;
  const float* at(int64_t row, int64_t group) const { return data + row * row_stride + group * group_stride; }
};

/// The chunks of a step.
class ChunkPlan {
 public:
  ChunkPlan(const Context& context, const ChunkShape& shape, std::span<const StateSequence> sequences,
            const KeyRows& keys)
      : shape_(shape), sequences_(sequences), keys_(keys) {
    int64_t most = 0;
    for (const StateSequence& s : sequences) most += s.length / kChunk + 2;
    chunks_ = context.arena.allocate<Chunk>(most);
    first_ = context.arena.allocate<int64_t>(static_cast<int64_t>(sequences.size()) + 1);
    for (size_t i = 0; i < sequences.size(); ++i) {
      const StateSequence& s = sequences[i];
      first_[i] = count_;
      if (s.length == 0) continue;
      const float count = ChunkState(shape, s.state).count();
      check(count >= 0 && count < kChunk, "a state that holds {} tokens of a chunk", count);
      auto held = static_cast<int32_t>(count);
      for (int32_t done = 0; done < s.length; held = 0) {
        const int32_t end = std::min(static_cast<int32_t>(kChunk), held + s.length - done);
        chunks_[count_++] = {static_cast<int32_t>(i), held, end, int64_t{s.row_begin} + done};
        done += end - held;
      }
    }
    first_[sequences.size()] = count_;
  }

  int64_t count() const { return count_; }
  const Chunk& operator[](int64_t chunk) const { return chunks_[chunk]; }
  int64_t first_of(size_t sequence) const { return first_[sequence]; }
  ChunkState state_of(const Chunk& c) const {
    return {shape_, sequences_[static_cast<size_t>(c.sequence)].state};
  }
  int64_t key_stride_of(const Chunk& c) const { return c.held() ? shape_.size : keys_.row_stride; }
  /// Of the chunk's token 0.
  const float* keys_of(const Chunk& c, int64_t group) const {
    return c.held() ? state_of(c).keys(group) : keys_.at(c.row, group);
  }

  /// body(chunk's number, group), after the keys of its new tokens are where keys_of() says.
  template <typename Body>
  void over_groups(const Context& context, Body&& body) const {
    context.pool.parallel_for(count_ * shape_.groups, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const Chunk& c = chunks_[i / shape_.groups];
        const int64_t group = i % shape_.groups;
        if (c.held()) copy_keys(c, group, c.first);
        body(i / shape_.groups, group);
      }
    });
  }

  /// At the end of the step: the states hold the keys of the chunks that are not full.
  void hold() const {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (first_[i] == first_[i + 1]) continue;
      const Chunk& last = chunks_[first_[i + 1] - 1];
      const ChunkState state = state_of(last);
      const int64_t held = last.full() ? 0 : last.end;
      for (int64_t g = 0; g < shape_.groups; ++g) {
        if (held && !last.held()) copy_keys(last, g, 0);
        std::fill(state.keys(g) + held * shape_.size, state.keys(g) + kChunk * shape_.size, 0.0f);
      }
      state.count() = static_cast<float>(held);
    }
  }

 private:
  void copy_keys(const Chunk& c, int64_t group, int64_t from) const {
    for (int64_t t = from; t < c.end; ++t)
      std::copy_n(keys_.at(c.row + t - from, group), shape_.size, state_of(c).keys(group) + t * shape_.size);
  }

  const ChunkShape& shape_;
  std::span<const StateSequence> sequences_;
  KeyRows keys_;
  Chunk* chunks_;
  int64_t* first_;
  int64_t count_ = 0;
};

/// products[t][s] = rows[t - first] . keys[s] for first <= t < end, s <= t; 0 for later s.
void multiply_pairs(const kernels::Table& kernels, const Chunk& c, int64_t size, const float* rows,
                    int64_t row_stride, const float* keys, int64_t key_stride, float* products) {
  kernels.scan.pairs({c.first, c.end, size, rows, row_stride, keys, key_stride, products});
  for (int64_t t = c.first; t < c.end; ++t) std::fill_n(products + t * kChunk + t + 1, kChunk - 1 - t, 0.0f);
}

/// Of tokens [first, end): what is left at t of what was there after s (`between`, for s <= t) and before the
/// chunk (`since`). Each is the exponential of the sum of the logarithms between the two, never a quotient
/// and never a difference of long sums, so that what follows a strong decay is as exact as what follows a
/// weak one.
struct Decays {
  float between[kPairs], since[kChunk];

  void fill(const kernels::Table& kernels, const float* logarithms, int64_t first, int64_t end) {
    float sums[kChunk] = {}, all = 0;
    for (int64_t t = 0; t < end; ++t) {
      for (int64_t s = 0; s < kChunk; ++s) sums[s] += logarithms[t];
      sums[t] = 0;
      all += logarithms[t];
      std::copy_n(sums, kChunk, between + t * kChunk);
      since[t] = all;
    }
    kernels.exp_sum(between + first * kChunk, between + first * kChunk, 0.0f, (end - first) * kChunk);
    kernels.exp_sum(since + first, since + first, 0.0f, end - first);
  }
};

/// body(scan, column) for every strip of the head's state.
template <typename Body>
void over_strips(const ChunkShape& shape, const ChunkState& at, int64_t head, const Chunk& chunk,
                 Body&& body) {
  for (int64_t p = 0; p < shape.columns; p += kernels::kScanStrip) {
    kernels::ChunkScan scan{};
    scan.first = chunk.first;
    scan.end = chunk.end;
    scan.size = shape.size;
    scan.columns = std::min(kernels::kScanStrip, shape.columns - p);
    scan.state = at.state(head) + p * shape.size;
    scan.values = at.values(head) + p;
    scan.value_stride = shape.columns;
    body(scan, p);
  }
}

/// Of a full chunk: state = since state + sum over s of weights[s] keys[s] values[s]^T.
void close_chunk(const kernels::Table& kernels, kernels::ChunkScan scan, const float* keys,
                 int64_t key_stride, const float* weights, const float* since) {
  for (int64_t s = 0; s < kChunk; ++s) {
    float* value = scan.values + s * scan.value_stride;
    kernels.scale(value, value, weights[s], scan.columns);
  }
  scan.keys = keys;
  scan.key_stride = key_stride;
  scan.factor = since;
  kernels.scan.update(scan);
}

/// body(chunk's number, state, head, thread) for all heads of all sequences, a head's chunks in order.
template <typename Body>
void over_heads(const Context& context, const ChunkShape& shape, std::span<const StateSequence> sequences,
                const ChunkPlan& plan, Body&& body) {
  over_sequences(context, sequences, shape.heads, [&](const StateSequence& s, int64_t head, int) {
    const auto sequence = static_cast<size_t>(&s - sequences.data());
    const int64_t begin = plan.first_of(sequence), end = plan.first_of(sequence + 1);
    const ChunkState state(shape, s.state);
    bool closed = false;
    for (int64_t i = begin; i < end; ++i) {
      body(i, state, head);
      closed |= plan[i].full();
    }
    if (!closed) return;
    const int64_t held = plan[end - 1].full() ? 0 : plan[end - 1].end;
    std::fill(state.values(head) + held * shape.columns, state.values(head) + kChunk * shape.columns, 0.0f);
    std::fill(state.steps(head) + held, state.steps(head) + kChunk, 0.0f);
  });
}

/// Asks for what the next chunk reads and writes: rows of neighbouring tokens lie a layer's width apart, on
/// pages of their own, where the processor does not fetch ahead by itself.
void fetch_next(const ChunkPlan& plan, int64_t chunk, const float* x, int64_t x_stride, const float* y,
                int64_t y_stride, int64_t columns) {
  if (chunk + 1 >= plan.count()) return;
  const Chunk& next = plan[chunk + 1];
  for (int64_t t = 0; t < next.end - next.first; ++t)
    for (int64_t p = 0; p < columns; p += 16) {
      __builtin_prefetch(x + (next.row + t) * x_stride + p);
      __builtin_prefetch(y + (next.row + t) * y_stride + p, 1);
    }
}

ChunkShape chunk_shape(const HeadScanShape& s) { return {s.heads, s.groups, s.state_size, s.head_dim}; }
ChunkShape chunk_shape(const DeltaRuleShape& s) {
  return {s.value_heads, s.key_heads, s.key_dim, s.value_dim};
}

}  // namespace

int64_t head_scan_floats(const HeadScanShape& s) { return chunk_shape(s).floats(); }
int64_t delta_rule_floats(const DeltaRuleShape& s) { return chunk_shape(s).floats(); }

void head_scan(const Context& context, std::span<const StateSequence> sequences, const HeadScanShape& shape,
               const HeadScanInput& input, float* y, int64_t y_stride) {
  check(shape.groups > 0 && shape.heads % shape.groups == 0, "{} heads in {} groups", shape.heads,
        shape.groups);
  const ChunkShape chunks = chunk_shape(shape);
  const double values = rows_of(sequences) * shape.heads * shape.head_dim;
  const ProfileScope profile(
      context, "head scan",
      8.0 * values + 8.0 * static_cast<double>(sequences.size() * chunks.heads * chunks.head_state()),
      4.0 * values * shape.state_size);
  const Arena::Mark mark = context.arena.mark();
  const kernels::Table& kernels = context.kernels;
  const KeyRows queries{input.c, input.c_stride, chunks.size};
  const ChunkPlan plan(context, chunks, sequences, {input.b, input.b_stride, chunks.size});
  auto* products = context.arena.allocate<float>(plan.count() * chunks.groups * kPairs);
  plan.over_groups(context, [&](int64_t i, int64_t group) {
    const Chunk& c = plan[i];
    multiply_pairs(kernels, c, chunks.size, queries.at(c.row, group), queries.row_stride,
                   plan.keys_of(c, group), plan.key_stride_of(c),
                   products + (i * chunks.groups + group) * kPairs);
  });
  over_heads(context, chunks, sequences, plan, [&](int64_t i, const ChunkState& at, int64_t head) {
    const Chunk& c = plan[i];
    const int64_t group = chunks.group_of(head);
    float *held = at.values(head), *dt = at.steps(head);
    fetch_next(plan, i, input.x + head * chunks.columns, input.x_stride, y + head * chunks.columns, y_stride,
               chunks.columns);
    for (int64_t t = c.first; t < c.end; ++t) {
      const int64_t row = c.row + t - c.first;
      std::copy_n(input.x + row * input.x_stride + head * chunks.columns, chunks.columns,
                  held + t * chunks.columns);
      dt[t] = input.dt[row * input.dt_stride + head];
    }
    float logarithms[kChunk], mix[kPairs];
    for (int64_t t = 0; t < c.end; ++t) logarithms[t] = dt[t] * input.a[head];
    Decays decays;
    decays.fill(kernels, logarithms, c.first, c.end);
    const float* pairs = products + (i * chunks.groups + group) * kPairs;
    for (int64_t t = c.first; t < c.end; ++t) {
      const int64_t at_t = t * kChunk;
      for (int64_t s = 0; s < kChunk; ++s) mix[at_t + s] = pairs[at_t + s] * decays.between[at_t + s] * dt[s];
      if (input.d) mix[at_t + t] += input.d[head];
    }
    float weights[kChunk];
    if (c.full())
      for (int64_t s = 0; s < kChunk; ++s) weights[s] = decays.between[(kChunk - 1) * kChunk + s] * dt[s];
    over_strips(chunks, at, head, c, [&](kernels::ChunkScan& scan, int64_t p) {
      scan.keys = queries.at(c.row, group);
      scan.key_stride = queries.row_stride;
      scan.factor = decays.since;
      scan.mix = mix;
      scan.y = y + c.row * y_stride + head * chunks.columns + p;
      scan.y_stride = y_stride;
      kernels.scan.read(scan);
      if (c.full())
        close_chunk(kernels, scan, plan.keys_of(c, group), plan.key_stride_of(c), weights,
                    decays.since + kChunk - 1);
    });
  });
  plan.hold();
  context.arena.release(mark);
}

namespace {

/// Unit queries and keys. A head's rows are next to each other: at their own stride, a power of two as a
/// rule, those of a chunk would fall on each other in the first-level cache.
struct UnitKeys {
  KeyRows q, k;
};

UnitKeys unit_keys(const Context& context, const ChunkShape& shape, const DeltaRuleInput& input,
                   int64_t rows) {
  auto* q = context.arena.allocate<float>(rows * shape.groups * shape.size);
  auto* k = context.arena.allocate<float>(rows * shape.groups * shape.size);
  const UnitKeys unit{{q, shape.size, rows * shape.size}, {k, shape.size, rows * shape.size}};
  const kernels::Table& kernels = context.kernels;
  const auto normalise = [&](const float* from, float* to, float scale) {
    if (input.l2_epsilon > 0) scale /= std::sqrt(kernels.dot(from, from, shape.size) + input.l2_epsilon);
    kernels.scale(to, from, scale, shape.size);
  };
  const int64_t grain = std::max<int64_t>(1, 4096 / (shape.groups * shape.size));
  context.pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t h = 0; h < shape.groups; ++h) {
        const int64_t from = h * shape.size, to = (h * rows + r) * shape.size;
        normalise(input.q + r * input.q_stride + from, q + to, input.scale);
        normalise(input.k + r * input.k_stride + from, k + to, 1.0f);
      }
  });
  return unit;
}

}  // namespace

void gated_delta_rule(const Context& context, std::span<const StateSequence> sequences,
                      const DeltaRuleShape& shape, const DeltaRuleInput& input, float* y, int64_t y_stride) {
  check(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0, "{} value heads over {} key heads",
        shape.value_heads, shape.key_heads);
  const ChunkShape chunks = chunk_shape(shape);
  const auto all_states = static_cast<double>(chunks.heads * chunks.head_state());
  const ProfileScope profile(context, "delta rule", 8.0 * static_cast<double>(sequences.size()) * all_states,
                             6.0 * rows_of(sequences) * all_states);
  int64_t rows = 0;
  for (const StateSequence& s : sequences) rows = std::max(rows, int64_t{s.row_begin} + s.length);
  const Arena::Mark mark = context.arena.mark();
  const kernels::Table& kernels = context.kernels;
  const UnitKeys unit = unit_keys(context, chunks, input, rows);
  const ChunkPlan plan(context, chunks, sequences, unit.k);
  // Of keys with keys, then of queries with keys.
  auto* products = context.arena.allocate<float>(plan.count() * chunks.groups * 2 * kPairs);
  plan.over_groups(context, [&](int64_t i, int64_t group) {
    const Chunk& c = plan[i];
    float* out = products + (i * chunks.groups + group) * 2 * kPairs;
    const float* keys = plan.keys_of(c, group);
    const int64_t stride = plan.key_stride_of(c);
    multiply_pairs(kernels, c, chunks.size, unit.k.at(c.row, group), chunks.size, keys, stride, out);
    multiply_pairs(kernels, c, chunks.size, unit.q.at(c.row, group), chunks.size, keys, stride, out + kPairs);
  });
  over_heads(context, chunks, sequences, plan, [&](int64_t i, const ChunkState& at, int64_t head) {
    const Chunk& c = plan[i];
    const int64_t group = chunks.group_of(head);
    float *held = at.values(head), *logarithms = at.steps(head), beta[kChunk] = {};
    fetch_next(plan, i, input.v + head * chunks.columns, input.v_stride, y + head * chunks.columns, y_stride,
               chunks.columns);
    for (int64_t t = c.first; t < c.end; ++t) {
      const int64_t row = c.row + t - c.first;
      beta[t] = input.beta[row * input.beta_stride + head];
      logarithms[t] = input.log_decay[row * input.decay_stride + head];
      kernels.scale(held + t * chunks.columns, input.v + row * input.v_stride + head * chunks.columns,
                    beta[t], chunks.columns);
    }
    Decays decays;
    decays.fill(kernels, logarithms, c.first, c.end);
    const float* pairs = products + (i * chunks.groups + group) * 2 * kPairs;
    float inner[kPairs], mix[kPairs], recalled[kChunk] = {};
    for (int64_t t = c.first; t < c.end; ++t) {
      recalled[t] = beta[t] * decays.since[t];
      for (int64_t s = t * kChunk; s < (t + 1) * kChunk; ++s) {
        inner[s] = beta[t] * (pairs[s] * decays.between[s]);
        mix[s] = pairs[kPairs + s] * decays.between[s];
      }
    }
    over_strips(chunks, at, head, c, [&](kernels::ChunkScan& scan, int64_t p) {
      scan.keys = unit.k.at(c.row, group);
      scan.key_stride = chunks.size;
      scan.factor = recalled;
      scan.mix = inner;
      kernels.scan.solve(scan);
      scan.keys = unit.q.at(c.row, group);
      scan.factor = decays.since;
      scan.mix = mix;
      scan.y = y + c.row * y_stride + head * chunks.columns + p;
      scan.y_stride = y_stride;
      kernels.scan.read(scan);
      if (c.full())
        close_chunk(kernels, scan, plan.keys_of(c, group), plan.key_stride_of(c),
                    decays.between + (kChunk - 1) * kChunk, decays.since + kChunk - 1);
    });
  });
  plan.hold();
  context.arena.release(mark);
}

}  // namespace millrace::ops
