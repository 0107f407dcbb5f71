// Recurrences of state-space and linear-attention layers. Mamba's scan goes token by token, since each
// element of its state has a decay of its own. Where one decay holds for a whole head the recurrence is run
// by chunks of kScanChunk tokens, as matrix products: what the chunk's tokens read of the state it began
// with, what they read of each other, and what they leave in it. Each result is a sum in one order, whichever
// tokens of the chunk a call does, so that a result does not depend on how a prompt was cut.
#pragma once

#include <cstdint>

namespace millrace::kernels {

/// Mamba (Gu and Dao 2023), `channels` of one sequence:
///   h[n][c] = exp(dt[c] a[n][c]) h[n][c] + dt[c] x[c] b[n];  y[c] = sum over n of h[n][c] c_[n] + d[c] x[c]
struct SelectiveScan {
  int64_t tokens, channels, state_size;
  float* state;    ///< [state_size][channels], rows state_stride apart
  const float* a;  ///< likewise, rows a_stride apart
  int64_t state_stride, a_stride;
  const float *dt, *x, *b, *c;  ///< [tokens][channels], the same, [tokens][state_size], the same
  int64_t dt_stride, x_stride, b_stride, c_stride;
  const float* d;  ///< [channels], or null
  float* y;        ///< [tokens][channels]; may be x
  int64_t y_stride;
};

/// Tokens of a chunk: a block of the cache, so that a state copied at a block's border holds no part of a
/// chunk. What tokens read of each other grows with it (3 % of the operations at 16, for a state of 128
/// rows); that the state is loaded and stored once a chunk and not once a token is nearly all there is to
/// gain already.
constexpr int64_t kScanChunk = 16;
/// A head's state is kept in strips of as many columns, each strip's rows next to each other: what a strip of
/// 128 rows takes fits the first-level cache, and no two of its lines fall on each other there.
constexpr int64_t kScanStrip = 64;

/// One chunk of one strip of a head's state. Tokens count from the chunk's first; those in [first, end) are
/// done, and what those before left in `values` is read.
struct ChunkScan {
  int64_t first, end;
  int64_t size, columns;  ///< of the strip
  float* state;           ///< [size][columns]
  const float* keys;      ///< [size] of each token; `read` and `solve` begin at token `first`, `update` at 0
  int64_t key_stride;
  const float* factor;  ///< [kScanChunk], of each token; `update`: one number
  const float* mix;     ///< [kScanChunk][kScanChunk]: of a token, those up to it
  float* values;        ///< [columns] of each token, from 0
  int64_t value_stride;
  float* y;  ///< `read` only: [columns] of each token, from `first`
  int64_t y_stride;
};

/// Products of a chunk's rows: out[t][s] = rows[t] . keys[s] for first <= t < end and s <= t; what else of
/// these rows of out is written is of no meaning.
struct ChunkPairs {
  int64_t first, end, size;
  const float* rows;  ///< [size] of each token, from `first`
  int64_t row_stride;
  const float* keys;  ///< [size] of each token, from 0
  int64_t key_stride;
  float* out;  ///< [kScanChunk][kScanChunk]
};

/// Depth-wise causal convolution over the tokens of one sequence:
///   y[t][c] = bias[c] + sum over j of weight[j][c] x[t - taps + 1 + j][c], then silu where asked for
struct CausalConv {
  int64_t tokens, channels, taps;
  const float* x;
  int64_t x_stride;
  const float* weight;  ///< [taps][channels], rows weight_stride apart
  int64_t weight_stride;
  const float* bias;  ///< or null
  bool silu;
  float* state;  ///< [taps - 1][channels]: the last inputs, oldest first; rows state_stride apart
  int64_t state_stride;
  float* y;  ///< may be x
  int64_t y_stride;
};

struct ScanKernels {
  void (*selective)(const SelectiveScan& scan);
  /// y[t] = factor[t] state^T keys[t] + sum over s <= t of mix[t][s] values[s]
  void (*read)(const ChunkScan& scan);
  /// values[t] -= factor[t] state^T keys[t] + sum over s < t of mix[t][s] values[s], token after token
  void (*solve)(const ChunkScan& scan);
  /// state = factor state + sum over s < end of keys[s] values[s]^T
  void (*update)(const ChunkScan& scan);
  void (*pairs)(const ChunkPairs& pairs);
  void (*conv)(const CausalConv& conv);
};

}  // namespace millrace::kernels
