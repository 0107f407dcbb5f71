// A step's attention is cut into units: (sequence, some KV heads, some query rows of each head's group,
// unit_rows at most), and for few units also by splits of the context. A row's result depends on its own
// query, position and the cached tokens only, to the last bit: chunks of 64 keys and splits of kSplitTokens
// start at fixed positions of the sequence, every split is reduced from nothing, and splits are merged in
// ascending order, whether one thread walks them or many.
#include "ops/attention_job.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "core/error.h"

namespace millrace::ops {
namespace {

using kernels::AttentionPanel;
using kernels::kAttentionRows;
using kernels::kChunkTiles;
using kernels::kChunkTokens;
using kernels::kNoMaximum;
using kernels::kScoreRows;
using kernels::kTokenTile;

/// Softmax is taken to base 2: scores carry this factor, and a power of 2 is the cheaper exponential.
constexpr float kLog2E = 1.44269504088896341f;
constexpr int32_t kSplitTokens = 512;
/// Units for each thread that are enough for an even share.
constexpr int64_t kUnitsPerThread = 4;

struct Unit {
  int32_t sequence;
  int32_t head_begin, head_end;    ///< KV heads, walked together: their tiles lie side by side in a block
  int32_t row_begin, row_end;      ///< flattened (query, head of the group) rows
  int32_t split_begin, split_end;  ///< positions are split * kSplitTokens
  int64_t partial;                 ///< first row of the partial results, or -1: this unit writes the output

  int32_t heads() const { return head_end - head_begin; }
  int32_t rows() const { return row_end - row_begin; }
  int32_t states() const { return heads() * rows(); }  ///< a head's rows lie together
};

/// Running softmax state of some rows.
struct State {
  float* maximum;
  float* sum;
  float* accumulator;
};

struct Scratch {
  std::byte* q;
  float* q_scale;
  State total, part;
  int32_t* row_begin;  ///< what each row of the unit sees
  int32_t* row_end;
  int32_t* begin;  ///< the same, counted from the chunk's first token
  int32_t* end;
  float* slope;
  float* distance;
  AttentionPanel* panels;
  float* scores;
  std::byte* values;
  std::byte* tiles;  ///< expanded K and V of one chunk
};

/// Visible keys [begin, end) of the query at `position`.
struct Range {
  int32_t begin, end;
};

Range visible_range(const AttentionOptions& options, int32_t position, int32_t context_length) {
  if (!options.causal) return {0, context_length};
  int32_t begin = 0;
  if (options.window > 0) begin = std::max(begin, position - options.window + 1);
  if (options.chunk > 0) begin = std::max(begin, position / options.chunk * options.chunk);
  return {begin, position + 1};
}

const AttentionSequence& sequence_of(const AttentionJob& job, const Unit& unit) {
  return job.sequences[static_cast<size_t>(unit.sequence)];
}

int32_t row_position(const AttentionSequence& s, int32_t row, int32_t group) {
  return s.context_length - s.query_length + row / group;
}

/// Keys that rows [begin, end) see together. Later rows see later keys, at both ends.
Range unit_range(const AttentionJob& job, const AttentionSequence& s, int32_t row_begin, int32_t row_end) {
  const Range first = visible_range(job.options, row_position(s, row_begin, job.group), s.context_length);
  const Range last = visible_range(job.options, row_position(s, row_end - 1, job.group), s.context_length);
  return {first.begin, last.end};
}

/// Where a split's first chunk begins for rows that see `visible`.
int32_t first_token(const AttentionJob& job, Range visible, int32_t split) {
  const int32_t step = job.integer ? kTokenTile : job.kernels->first_token_step;
  return std::max(visible.begin / step * step, split * kSplitTokens);
}

int64_t expanded_tile_bytes(const AttentionJob& job) {
  return round_up(kTokenTile * job.layout.stored_key_dim * job.element_bytes, 64) +
         round_up(kTokenTile * job.layout.stored_value_dim * job.element_bytes, 64);
}

State allocate_state(Arena& arena, int64_t rows, int64_t value_dim) {
  return {arena.allocate<float>(rows), arena.allocate<float>(rows), arena.allocate<float>(rows * value_dim)};
}

Scratch allocate_scratch(const AttentionJob& job) {
  Arena& arena = job.context.arena;
  Scratch s;
  const int32_t rows = job.unit_rows;
  s.q = arena.allocate<std::byte>(rows * job.layout.stored_key_dim * job.element_bytes);
  s.q_scale = arena.allocate<float>(rows);
  s.total = allocate_state(arena, rows, job.layout.stored_value_dim);
  s.part = allocate_state(arena, rows, job.layout.stored_value_dim);
  s.row_begin = arena.allocate<int32_t>(rows);
  s.row_end = arena.allocate<int32_t>(rows);
  s.begin = arena.allocate<int32_t>(rows);
  s.end = arena.allocate<int32_t>(rows);
  s.slope = arena.allocate<float>(rows);
  s.distance = arena.allocate<float>(rows);
  s.panels = arena.allocate<AttentionPanel>(rows);
  s.scores = arena.allocate<float>(kScoreRows * kChunkTokens);
  s.values = arena.allocate<std::byte>(kChunkTokens * job.layout.stored_value_dim * job.element_bytes);
  s.tiles = arena.allocate<std::byte>(job.expands ? kChunkTiles * expanded_tile_bytes(job) : 0);
  return s;
}

void clear_state(const AttentionJob& job, const State& state, int32_t rows) {
  std::fill_n(state.maximum, rows, kNoMaximum);
  std::fill_n(state.sum, rows, 0.0f);
  std::fill_n(state.accumulator, int64_t{rows} * job.layout.stored_value_dim, 0.0f);
}

State state_at(const AttentionJob& job, const State& state, int64_t row) {
  return {state.maximum + row, state.sum + row, state.accumulator + row * job.layout.stored_value_dim};
}

/// total = total and part together. A part that saw nothing changes nothing.
void merge_state(const AttentionJob& job, const State& total, const State& part, int32_t rows) {
  const int64_t n = job.layout.stored_value_dim;
  for (int32_t r = 0; r < rows; ++r) {
    if (part.sum[r] == 0.0f) continue;
    const float largest = std::max(total.maximum[r], part.maximum[r]);
    const float keep = std::exp2(total.maximum[r] - largest);
    const float take = std::exp2(part.maximum[r] - largest);
    total.sum[r] = total.sum[r] * keep + part.sum[r] * take;
    total.maximum[r] = largest;
    job.context.kernels.scale_add(total.accumulator + r * n, keep, part.accumulator + r * n, take, n);
  }
}

/// Writes the normalised rows, with the sinks' share of probability.
void write_rows(const AttentionJob& job, const Unit& unit, const State& state) {
  const AttentionSequence& s = sequence_of(job, unit);
  int64_t r = 0;
  for (int32_t kv_head = unit.head_begin; kv_head < unit.head_end; ++kv_head)
    for (int32_t row = unit.row_begin; row < unit.row_end; ++row, ++r) {
      const int32_t head = kv_head * job.group + row % job.group;
      float sum = state.sum[r], weight = 1.0f;
      if (job.options.sinks) {
        const float sink = job.options.sinks[head] * kLog2E;
        const float largest = std::max(state.maximum[r], sink);
        weight = std::exp2(state.maximum[r] - largest);
        sum = sum * weight + std::exp2(sink - largest);
      }
      const float factor = sum == 0.0f ? 0.0f : weight / sum;
      const float* from = state.accumulator + r * job.layout.stored_value_dim;
      float* to = job.out + (int64_t{s.query_begin} + row / job.group) * job.out_stride +
                  int64_t{head} * job.shape.value_dim;
      job.context.kernels.scale(to, from, factor, job.shape.value_dim);
    }
}

/// One row of one head to the kernel's elements.
void prepare_query(const AttentionJob& job, int64_t query, int64_t head, std::byte* to, float& scale_out) {
  const float scale = job.options.scale * kLog2E;
  for (const QueryPart& part : job.query) {
    if (part.dim == 0) continue;
    const float* from = part.data + query * part.stride + head * part.head_stride;
    if (job.integer)
      scale_out = job.kernels->prepare_query_int8(to, from, scale, part.dim);
    else
      job.kernels->prepare_query(to, from, scale, part.dim);
    const int64_t used = part.dim * job.element_bytes, all = part.stored_dim * job.element_bytes;
    std::fill_n(to + used, all - used, std::byte{0});
    to += all;
  }
}

void prepare_rows(const AttentionJob& job, const Unit& unit, const Scratch& scratch) {
  const AttentionSequence& s = sequence_of(job, unit);
  for (int32_t row = unit.row_begin; row < unit.row_end; ++row) {
    const Range range = visible_range(job.options, row_position(s, row, job.group), s.context_length);
    scratch.row_begin[row - unit.row_begin] = range.begin;
    scratch.row_end[row - unit.row_begin] = range.end;
  }
  int64_t r = 0;
  for (int32_t kv_head = unit.head_begin; kv_head < unit.head_end; ++kv_head)
    for (int32_t row = unit.row_begin; row < unit.row_end; ++row, ++r) {
      const int32_t head = kv_head * job.group + row % job.group;
      if (job.options.alibi_slopes) scratch.slope[r] = job.options.alibi_slopes[head] * kLog2E;
      prepare_query(job, int64_t{s.query_begin} + row / job.group, head,
                    scratch.q + r * job.layout.stored_key_dim * job.element_bytes, scratch.q_scale[r]);
    }
}

/// The same for latents: they are kept in V's order, from which K's is made here; the rotated key is in K's
/// order.
void load_latent_tile(const AttentionJob& job, const std::byte* tile, std::byte* k_out, std::byte* v_out,
                      const void*& k, const void*& v) {
  const KvLayout& l = job.layout;
  const int64_t rope_dim = l.stored_key_dim - l.stored_value_dim;
  const bool as_stored = l.format == KvFormat::kF32 || job.kernels->bf16;
  std::byte* rope_out = k_out + l.stored_value_dim * kTokenTile * job.element_bytes;
  v = tile + l.v_offset;
  if (as_stored) {
    std::memcpy(rope_out, tile + l.rope_offset,
                static_cast<size_t>(rope_dim * kTokenTile * job.element_bytes));
  } else {
    job.kernels->expand_bf16(v_out, v, kTokenTile / 2, l.stored_value_dim);
    job.kernels->expand_bf16(rope_out, tile + l.rope_offset, rope_dim / 2, kTokenTile);
    v = v_out;
  }
  job.kernels->transpose_values(k_out, v, l.stored_value_dim);
  k = k_out;
}

/// Points the panel at tile number `index` of the chunk, expanding it first where the kernel cannot read it
/// as stored.
void load_tile(const AttentionJob& job, const std::byte* tile, int32_t index, const Scratch& scratch,
               AttentionPanel& panel) {
  const KvLayout& l = job.layout;
  panel.k[index] = tile;
  panel.v[index] = tile + l.v_offset;
  panel.k_scale[index] = nullptr;
  panel.v_scale[index] = nullptr;
  if (job.integer) {
    panel.k_scale[index] = reinterpret_cast<const float*>(tile + l.k_scale_offset);
    panel.v_scale[index] = reinterpret_cast<const float*>(tile + l.v_scale_offset);
  }
  if (!job.expands) return;
  const std::byte* k = tile;
  const std::byte* v = tile + l.v_offset;
  std::byte* k_out = scratch.tiles + index * expanded_tile_bytes(job);
  std::byte* v_out = k_out + round_up(kTokenTile * l.stored_key_dim * job.element_bytes, 64);
  if (l.latent) return load_latent_tile(job, tile, k_out, v_out, panel.k[index], panel.v[index]);
  switch (l.format) {
    case KvFormat::kF32:
      return;
    case KvFormat::kBF16:
      job.kernels->expand_bf16(k_out, k, l.stored_key_dim / 2, kTokenTile);
      job.kernels->expand_bf16(v_out, v, kTokenTile / 2, l.stored_value_dim);
      break;
    case KvFormat::kInt8:
      job.kernels->expand_int8(k_out, k, l.stored_key_dim / 2, kTokenTile);
      job.kernels->expand_int8(v_out, v, kTokenTile / 2, l.stored_value_dim);
      panel.k_scale[index] = reinterpret_cast<const float*>(tile + l.k_scale_offset);
      panel.v_scale[index] = reinterpret_cast<const float*>(tile + l.v_scale_offset);
      break;
    case KvFormat::kInt4:
      job.kernels->expand_int4_k(k_out, k, tile + l.k_scale_offset, l.stored_key_dim);
      job.kernels->expand_int4_v(v_out, v, tile + l.v_scale_offset, l.stored_value_dim);
      break;
  }
  panel.k[index] = k_out;
  panel.v[index] = v_out;
}

const std::byte* tile_data(const AttentionJob& job, const AttentionSequence& s, int32_t kv_head,
                           int32_t token) {
  const int32_t block = s.block_table[static_cast<size_t>(token / job.shape.block_size)];
  return kv_tile(job.layout, job.blocks + block * job.shape.block_bytes, kv_head,
                 token % job.shape.block_size / kTokenTile);
}

/// The chunk of `tokens` of a head.
struct ChunkOf {
  const AttentionSequence* sequence;
  int32_t kv_head;
  Range tokens;
};

/// The chunk that this thread will come to `kAhead` heads after head `h` of the unit's chunk that ends at
/// chunk_end; its sequence is null where that is not known. `next` is the unit to come, or null.
ChunkOf chunk_to_come(const AttentionJob& job, const Unit& unit, const Unit* next, int32_t h, Range chunk,
                      Range visible) {
  constexpr int32_t kAhead = 2;
  const int32_t heads = unit.heads(), at = h - unit.head_begin + std::min(kAhead, heads);
  const AttentionSequence& s = sequence_of(job, unit);
  if (at < heads) return {&s, unit.head_begin + at, chunk};
  if (chunk.end < visible.end)
    return {&s, unit.head_begin + at - heads, {chunk.end, std::min(visible.end, chunk.end + kChunkTokens)}};
  if (!next || at - heads >= next->heads()) return {nullptr, 0, {0, 0}};
  const AttentionSequence& other = sequence_of(job, *next);
  const Range range = unit_range(job, other, next->row_begin, next->row_end);
  const int32_t first =
      std::max(first_token(job, range, next->split_begin), range.begin / kTokenTile * kTokenTile);
  return {&other,
          next->head_begin + at - heads,
          {first, std::min(range.end, (first / kChunkTokens + 1) * kChunkTokens)}};
}

/// Asks for a chunk whose tiles are expanded before use, a line at a time: the expansion runs through each
/// tile in order, where the hardware prefetcher takes over.
void prefetch_chunk(const AttentionJob& job, const ChunkOf& chunk) {
  if (!chunk.sequence) return;
  for (int32_t token = chunk.tokens.begin; token < chunk.tokens.end; token += kTokenTile) {
    const std::byte* tile = tile_data(job, *chunk.sequence, chunk.kv_head, token);
    for (int64_t at = 0; at < job.layout.tile_bytes; at += 64) __builtin_prefetch(tile + at, 0, 2);
  }
}

/// Names tiles for the kernel to fetch along; where there are fewer, the panel's own.
void name_next_tiles(const AttentionJob& job, const ChunkOf& next, AttentionPanel& panel) {
  panel.next_k[0] = nullptr;
  if (job.expands || !next.sequence) return;
  for (int32_t i = 0; i < kChunkTiles; ++i) {
    const int32_t token = next.tokens.begin + i * kTokenTile;
    const bool there = token < next.tokens.end;
    const std::byte* tile = there ? tile_data(job, *next.sequence, next.kv_head, token) : nullptr;
    panel.next_k[i] = there ? tile : panel.k[0];
    panel.next_v[i] = there ? tile + job.layout.v_offset : panel.v[0];
  }
}

/// The tiles of a head's tokens. Those before the unit's first visible token may be nobody's any more: the
/// first visible one stands for them, whose weights will be nothing.
void load_chunk(const AttentionJob& job, const ChunkOf& chunk, int32_t first_visible, const Scratch& scratch,
                AttentionPanel& panel) {
  panel.num_tiles = static_cast<int32_t>(ceil_div(chunk.tokens.end - chunk.tokens.begin, kTokenTile));
  for (int32_t i = 0; i < panel.num_tiles; ++i) {
    const int32_t token =
        std::max(chunk.tokens.begin + i * kTokenTile, first_visible / kTokenTile * kTokenTile);
    load_tile(job, tile_data(job, *chunk.sequence, chunk.kv_head, token), i, scratch, panel);
  }
}

/// What the unit's rows see of the chunk, counted from its first token.
void see_chunk(const AttentionJob& job, const Unit& unit, Range tokens, const Scratch& scratch) {
  const int32_t rows = unit.rows();
  for (int32_t r = 0; r < rows; ++r) {
    scratch.begin[r] = std::max(0, scratch.row_begin[r] - tokens.begin);
    scratch.end[r] = std::min(tokens.end, scratch.row_end[r]) - tokens.begin;
  }
  if (!job.options.alibi_slopes) return;
  for (int32_t r = 0; r < rows; ++r)
    scratch.distance[r] = static_cast<float>(
        row_position(sequence_of(job, unit), unit.row_begin + r, job.group) - tokens.begin);
}

/// Adds the panels of one head's rows to scratch.panels from `count` on; returns how many there are then.
/// `panel` has the head's tiles.
int32_t add_panels(const AttentionJob& job, const Unit& unit, int32_t kv_head, const Scratch& scratch,
                   const State& state, AttentionPanel& panel, int32_t count) {
  const int32_t step = job.integer ? kAttentionRows : job.kernels->panel_rows;
  for (int32_t first = 0; first < unit.rows(); first += step) {
    panel.rows = std::min(step, unit.rows() - first);
    panel.begin = scratch.begin + first;
    panel.end = scratch.end + first;
    bool any = false;
    for (int32_t r = 0; r < panel.rows; ++r) any |= panel.begin[r] < panel.end[r];
    if (!any) continue;
    const int64_t at = int64_t{kv_head - unit.head_begin} * unit.rows() + first;
    panel.alibi_slope = job.options.alibi_slopes ? scratch.slope + at : nullptr;
    panel.alibi_distance = scratch.distance + first;
    panel.q = scratch.q + at * panel.key_dim * job.element_bytes;
    panel.q_scale = scratch.q_scale + at;
    const State rows_state = state_at(job, state, at);
    panel.maximum = rows_state.maximum;
    panel.sum = rows_state.sum;
    panel.accumulator = rows_state.accumulator;
    scratch.panels[count++] = panel;
    panel.next_k[0] = nullptr;  // asked for once
  }
  return count;
}

/// All rows and heads of the unit over one chunk, whose begin is a multiple of the kernel's first_token_step.
/// `visible` is what the unit sees.
void attend_chunk(const AttentionJob& job, const Unit& unit, const Unit* next, Range tokens, Range visible,
                  const Scratch& scratch, const State& state) {
  const auto attend = job.integer ? job.kernels->attend_int8 : job.kernels->attend;
  see_chunk(job, unit, tokens, scratch);
  AttentionPanel panel;
  panel.key_dim = job.layout.stored_key_dim;
  panel.value_dim = job.layout.stored_value_dim;
  panel.q_stride = panel.key_dim;
  panel.softcap = job.options.softcap * kLog2E;
  panel.scratch = scratch.scores;
  panel.values = scratch.values;
  int32_t count = 0;
  for (int32_t h = unit.head_begin; h < unit.head_end; ++h) {
    const ChunkOf chunk{&sequence_of(job, unit), h, tokens};
    const ChunkOf coming = chunk_to_come(job, unit, next, h, tokens, visible);
    if (job.expands) prefetch_chunk(job, coming);
    load_chunk(job, chunk, visible.begin, scratch, panel);
    name_next_tiles(job, coming, panel);
    count = add_panels(job, unit, h, scratch, state, panel, count);
    if (!job.expands) continue;
    attend(scratch.panels, count);  // there is room for one head's expanded tiles
    count = 0;
  }
  if (count > 0) attend(scratch.panels, count);
}

/// One split from nothing.
void attend_split(const AttentionJob& job, const Unit& unit, const Unit* next, int32_t split,
                  const Scratch& scratch, const State& state) {
  clear_state(job, state, unit.states());
  const Range range = unit_range(job, sequence_of(job, unit), unit.row_begin, unit.row_end);
  const int32_t end = std::min(range.end, (split + 1) * kSplitTokens);
  // Chunks start at multiples of kChunkTokens whatever is visible, for results that do not depend on the
  // unit.
  for (int32_t at = first_token(job, range, split); at < end;) {
    const int32_t chunk_end = std::min(end, (at / kChunkTokens + 1) * kChunkTokens);
    attend_chunk(job, unit, next, {at, chunk_end}, range, scratch, state);
    at = chunk_end;
  }
}

/// `next` is the unit that this thread will most likely run after it, or null.
void run_unit(const AttentionJob& job, const Unit& unit, const Unit* next, const Scratch& scratch,
              const State& partials) {
  prepare_rows(job, unit, scratch);
  if (unit.partial >= 0) {
    attend_split(job, unit, next, unit.split_begin, scratch, state_at(job, partials, unit.partial));
    return;
  }
  // The first split needs no merge: with a state that saw nothing it would come out as it is.
  attend_split(job, unit, next, unit.split_begin, scratch, scratch.total);
  for (int32_t split = unit.split_begin + 1; split < unit.split_end; ++split) {
    attend_split(job, unit, next, split, scratch, scratch.part);
    merge_state(job, scratch.total, scratch.part, unit.states());
  }
  write_rows(job, unit, scratch.total);
}

void check_sequence(const AttentionShape& shape, const AttentionSequence& s) {
  check(s.query_length >= 0 && s.query_length <= s.context_length &&
            static_cast<int64_t>(s.block_table.size()) >= ceil_div(s.context_length, shape.block_size),
        "attention over {} queries and {} tokens with {} blocks of {}", s.query_length, s.context_length,
        s.block_table.size(), shape.block_size);
}

/// Work of the storing half: tiles that a step writes, numbered over all sequences.
struct StoreItems {
  int64_t* first;  ///< [sequences + 1] running number of tiles
  int64_t total;
};

int32_t first_new(const AttentionSequence& s) { return s.context_length - s.query_length; }

/// Tiles number within their block, so that block sizes below 16 work: tile index of a token.
int64_t tile_of(const AttentionShape& shape, int32_t tiles_per_block, int32_t token) {
  return int64_t{token / shape.block_size} * tiles_per_block + token % shape.block_size / kTokenTile;
}

StoreItems count_store_items(const Context& context, const AttentionShape& shape, int32_t tiles_per_block,
                             std::span<const AttentionSequence> sequences) {
  StoreItems items;
  items.first = context.arena.allocate<int64_t>(static_cast<int64_t>(sequences.size()) + 1);
  items.total = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const AttentionSequence& s = sequences[i];
    check_sequence(shape, s);
    items.first[i] = items.total;
    if (s.query_length == 0) continue;
    for (int32_t b = first_new(s) / shape.block_size; b <= (s.context_length - 1) / shape.block_size; ++b)
      check(s.block_table[static_cast<size_t>(b)] >= 0, "new tokens of sequence {} of the step have no block",
            i);
    items.total += tile_of(shape, tiles_per_block, s.context_length - 1) -
                   tile_of(shape, tiles_per_block, first_new(s)) + 1;
  }
  items.first[sequences.size()] = items.total;
  return items;
}

/// Stores the tokens of one tile, for all KV heads.
void store_tile(const AttentionShape& shape, const KvLayout& layout, const AttentionSequence& s, int64_t tile,
                const StoreSource& source, std::byte* blocks) {
  const auto in_block = static_cast<int32_t>(tile % layout.tiles_per_block);
  const int64_t block_index = tile / layout.tiles_per_block;
  const auto start = static_cast<int32_t>(block_index * shape.block_size + in_block * kTokenTile);
  const int32_t begin = std::max(start, first_new(s));
  const int32_t end = static_cast<int32_t>(std::min<int64_t>(
      {s.context_length, int64_t{start} + kTokenTile, (block_index + 1) * shape.block_size}));
  std::byte* block = blocks + s.block_table[static_cast<size_t>(block_index)] * shape.block_bytes;
  for (int32_t h = 0; h < shape.num_kv_heads; ++h)
    for (int32_t token = begin; token < end; ++token) {
      const int64_t row = int64_t{s.query_begin} + token - first_new(s);
      store_token(layout, kv_tile(layout, block, h, in_block), token - start,
                  source.k + row * source.k_stride + int64_t{h} * shape.key_dim,
                  source.v + row * source.v_stride + int64_t{h} * shape.value_dim);
    }
}

/// Stores items [begin, end).
void store_items(const AttentionShape& shape, const KvLayout& layout,
                 std::span<const AttentionSequence> sequences, const StoreItems& items, int64_t begin,
                 int64_t end, const StoreSource& source, std::byte* blocks) {
  if (begin >= end) return;
  const int64_t* after = std::upper_bound(items.first, items.first + sequences.size() + 1, begin);
  auto i = static_cast<size_t>(after - items.first) - 1;
  for (int64_t item = begin; item < end; ++item) {
    while (item >= items.first[i + 1]) ++i;
    const AttentionSequence& s = sequences[i];
    store_tile(shape, layout, s, tile_of(shape, layout.tiles_per_block, first_new(s)) + item - items.first[i],
               source, blocks);
  }
}

struct Plan {
  Unit* units;
  int64_t num_units;
  int64_t partial_rows;
  int64_t num_base;  ///< units before splitting; their rows are what the merge writes
  Unit* base;
};

/// Calls f(unit) for each stretch of rows, with all heads and splits; of a sequence's last rows first: they
/// see most, and the last units handed out should be short ones.
template <typename F>
void each_stretch(const AttentionJob& job, const F& f) {
  for (size_t i = 0; i < job.sequences.size(); ++i) {
    const AttentionSequence& s = job.sequences[i];
    for (int32_t end = s.query_length * job.group; end > 0; end -= std::min(end, job.unit_rows)) {
      const int32_t begin = std::max(0, end - job.unit_rows);
      const Range range = unit_range(job, s, begin, end);
      f(Unit{static_cast<int32_t>(i), 0, job.shape.num_kv_heads, begin, end, range.begin / kSplitTokens,
             static_cast<int32_t>(ceil_div(range.end, kSplitTokens)), -1});
    }
  }
}

/// Heads in a unit of `rows` rows, where `most` are wanted at most.
int32_t heads_together(const AttentionJob& job, int32_t rows, int32_t most) {
  return std::max(1, std::min(most, job.unit_rows / rows));
}

/// Counts units, or lists them if plan.base is set. `most_heads` in a unit; by_split: of one split each, and
/// the base units beside them.
void list_units(const AttentionJob& job, int32_t most_heads, bool by_split, Plan& plan) {
  plan.num_units = plan.num_base = plan.partial_rows = 0;
  int64_t first_stretch = 0;  // of the sequence: where its units begin
  int32_t sequence = -1;
  each_stretch(job, [&](const Unit& stretch) {
    if (stretch.sequence != sequence) first_stretch = plan.num_base;
    sequence = stretch.sequence;
    const int32_t together = heads_together(job, stretch.rows(), most_heads);
    const int32_t splits = stretch.split_end - stretch.split_begin;
    const int64_t base = plan.num_base;
    for (int32_t h = 0; h < job.shape.num_kv_heads; h += together) {
      Unit unit = stretch;
      unit.head_begin = h;
      unit.head_end = std::min(h + together, job.shape.num_kv_heads);
      if (by_split) {
        unit.partial = plan.partial_rows;
        plan.partial_rows += int64_t{splits} * unit.states();
      }
      if (plan.base) plan.base[plan.num_base] = unit;
      ++plan.num_base;
    }
    if (!by_split) return;
    // The heads of the same tokens one after the other, as they lie in memory.
    for (int32_t split = 0; split < splits; ++split)
      for (int64_t b = base; b < plan.num_base; ++b, ++plan.num_units) {
        if (!plan.base) continue;
        Unit unit = plan.base[b];
        unit.split_begin += split;
        unit.split_end = unit.split_begin + 1;
        unit.partial += int64_t{split} * unit.states();
        plan.units[plan.num_units] = unit;
      }
  });
  if (by_split) return;
  plan.num_units = plan.num_base;
  plan.units = plan.base;
}

/// Of whole units: a head after the other, so that its keys and values are met by all of a sequence's rows
/// while they lie in the second cache.
void order_by_head(Plan& plan) {
  for (int64_t begin = 0, end = 0; begin < plan.num_base; begin = end) {
    while (end < plan.num_base && plan.base[end].sequence == plan.base[begin].sequence) ++end;
    std::stable_sort(plan.base + begin, plan.base + end,
                     [](const Unit& a, const Unit& b) { return a.head_begin < b.head_begin; });
  }
}

Plan make_plan(const AttentionJob& job, int num_threads) {
  const int64_t wanted = num_threads == 1 ? 1 : kUnitsPerThread * num_threads;
  Plan plan{};
  // As many heads together as give enough units, of the whole context if can be.
  int32_t heads = job.shape.num_kv_heads;
  bool by_split = false;
  for (;;) {
    list_units(job, heads, by_split, plan);
    if (plan.num_units >= wanted || (by_split && heads == 1)) break;
    if (by_split) heads = (heads + 1) / 2;
    by_split = !by_split;
  }
  if (plan.num_units == plan.num_base) by_split = false;
  plan.base = job.context.arena.allocate<Unit>(plan.num_base);
  if (by_split) plan.units = job.context.arena.allocate<Unit>(plan.num_units);
  list_units(job, heads, by_split, plan);
  if (!by_split) order_by_head(plan);
  return plan;
}

/// Calls f(index, next index or -1) for all of [0, count): a thread takes its own share in order, then what
/// is left of the others'.
struct Shares {
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  Share* all;
  int threads;
  Shares(Arena& arena, int64_t count, int num_threads) : threads(num_threads) {
    all = static_cast<Share*>(arena.allocate_bytes(sizeof(Share) * static_cast<size_t>(threads)));
    for (int t = 0; t < threads; ++t) new (all + t) Share{{count * t / threads}, count * (t + 1) / threads};
  }
  template <typename F>
  void run(int thread, const F& f) const {
    for (int i = 0; i < threads; ++i) {
      Share& share = all[(thread + i) % threads];
      for (int64_t at; (at = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
        f(at, at + 1 < share.end ? at + 1 : -1);
    }
  }
};

/// Merges the partial results of a base unit in ascending order and writes its rows.
void merge_unit(const AttentionJob& job, const Unit& unit, const Scratch& scratch, const State& partials) {
  clear_state(job, scratch.total, unit.states());
  for (int32_t i = 0; i < unit.split_end - unit.split_begin; ++i)
    merge_state(job, scratch.total, state_at(job, partials, unit.partial + int64_t{i} * unit.states()),
                unit.states());
  write_rows(job, unit, scratch.total);
}

double attention_operations(const AttentionJob& job) {
  double pairs = 0;
  for (const AttentionSequence& s : job.sequences)
    pairs += s.query_length * (s.context_length - (job.options.causal ? 0.5 * s.query_length : 0.0));
  return pairs * job.shape.num_heads * 2.0 * (job.shape.key_dim + job.shape.value_dim);
}

double attention_bytes(const AttentionJob& job) {
  double tokens = 0;
  for (const AttentionSequence& s : job.sequences)
    tokens += job.options.window ? std::min(s.context_length, job.options.window + s.query_length)
                                 : s.context_length;
  return tokens * static_cast<double>(job.layout.head_bytes) * job.shape.num_kv_heads / job.shape.block_size;
}

}  // namespace

void store_tokens(const Context& context, const AttentionShape& shape, const KvLayout& layout,
                  std::span<const AttentionSequence> sequences, const StoreSource& source,
                  std::byte* blocks) {
  const StoreItems items = count_store_items(context, shape, layout.tiles_per_block, sequences);
  context.pool.parallel_for(items.total, 1, [&](int64_t begin, int64_t end, int) {
    store_items(shape, layout, sequences, items, begin, end, source, blocks);
  });
}

void run_attention(AttentionJob job, const StoreSource& source, std::string_view profile_name) {
  const Context& context = job.context;
  const KvFormat format = job.layout.format;
  // A full-precision cache is for exact results: no rounding of q either.
  job.kernels = format == KvFormat::kF32 ? &context.kernels.attention : &context.kernels.attention_bf16;
  job.group = job.shape.num_heads / job.shape.num_kv_heads;
  job.integer = format == KvFormat::kInt8 && job.kernels->attend_int8;
  job.unit_rows = job.integer ? 48 : std::max(job.kernels->panel_rows, 8 * kAttentionRows);
  job.element_bytes = job.integer || job.kernels->bf16 ? 2 : 4;
  job.expands = job.layout.latent || !(format == KvFormat::kF32 || job.integer ||
                                       (job.kernels->bf16 && format == KvFormat::kBF16));
  const ProfileScope profile(context, profile_name, attention_bytes(job), attention_operations(job));
  const Arena::Mark mark = context.arena.mark();
  const StoreItems items = count_store_items(context, job.shape, job.layout.tiles_per_block, job.sequences);
  const int num_threads = context.pool.num_threads();
  const Plan plan = make_plan(job, num_threads);
  const State partials = allocate_state(context.arena, plan.partial_rows, job.layout.stored_value_dim);
  auto* scratch = context.arena.allocate<Scratch>(num_threads);
  for (int t = 0; t < num_threads; ++t) scratch[t] = allocate_scratch(job);

  const Shares shares(context.arena, plan.num_units, num_threads);
  std::atomic<int64_t> next_merge{0};
  context.pool.run([&](int thread) {
    if (source.k) {
      store_items(job.shape, job.layout, job.sequences, items, items.total * thread / num_threads,
                  items.total * (thread + 1) / num_threads, source, job.blocks);
      context.pool.barrier();
    }
    shares.run(thread, [&](int64_t i, int64_t next) {
      run_unit(job, plan.units[i], next < 0 ? nullptr : plan.units + next, scratch[thread], partials);
    });
    if (plan.units == plan.base) return;
    context.pool.barrier();
    for (int64_t i; (i = next_merge.fetch_add(1, std::memory_order_relaxed)) < plan.num_base;)
      merge_unit(job, plan.base[i], scratch[thread], partials);
  });
  context.arena.release(mark);
}

}  // namespace millrace::ops
