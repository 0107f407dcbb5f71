// BF16 weights and activations: vdpbf16ps adds a pair of products to each row's sum.
#include <utility>

#include "kernels/matmul_runs.h"
#include "kernels/x86/intrinsics.h"

namespace millrace::kernels::avx512bf16 {
namespace {
#include "kernels/x86/simd_avx512.inc"

/// Sums are kept nowhere else than in the dot products' own registers: twelve tokens of two strips fill 24,
/// more than enough chains to hide how long a product takes.
constexpr int kTile = 12;
constexpr int kPairsInChunk = 512;  ///< 32 KiB of weights

ALWAYS_INLINE F dot_pairs(F sum, I w, I x) { return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x); }

/// `pairs` pairs of columns of a panel times kTokens; out holds the sums so far unless `first`.
template <int kTokens>
void run_pairs(const uint8_t* q, int64_t pairs, bool first, const uint8_t* x, int64_t stride, float* out,
               int64_t out_stride) {
  // One token's stream runs at the memory's speed either way, and best so; with more a core has less time
  // left to wait (docs/performance.md).
  constexpr Asking kAhead = kTokens == 1 ? Asking{kPrefetchAhead, 0} : kZenAhead;
  F sum[kStrips][kTokens];
  for (int p = 0; p < kStrips; ++p)
    for (int t = 0; t < kTokens; ++t) sum[p][t] = first ? f_set(0.0f) : f_load(out + 16 * p + t * out_stride);
  for (int64_t i = 0; i < pairs; ++i) {
    I w[kStrips];
    for (int p = 0; p < kStrips; ++p) {
      w[p] = b_load(q + 128 * i + 64 * p);
      // Later tiles find the lines there; asking again costs them next to nothing.
      prefetch(q + 128 * i + 64 * p + kAhead.near);
      if (kAhead.further) prefetch_second(q + 128 * i + 64 * p + kAhead.near + kAhead.further);
    }
    for (int t = 0; t < kTokens; ++t) {
      const I activation = i_broadcast(x + t * stride + 4 * i);
      for (int p = 0; p < kStrips; ++p) sum[p][t] = dot_pairs(sum[p][t], w[p], activation);
    }
  }
  for (int p = 0; p < kStrips; ++p)
    for (int t = 0; t < kTokens; ++t) f_store(out + 16 * p + t * out_stride, sum[p][t]);
}

/// run_pairs of as many tokens as there are, one of the sequence's numbers plus one.
template <int... kBefore>
void run_pairs_of(int64_t tokens, std::integer_sequence<int, kBefore...>, const uint8_t* q, int64_t pairs,
                  bool first, const uint8_t* x, int64_t stride, float* out, int64_t out_stride) {
  ((tokens == kBefore + 1 ? run_pairs<kBefore + 1>(q, pairs, first, x, stride, out, out_stride) : void()),
   ...);
}

void run_pair_tiles(const uint8_t* q, const MatmulTask& task, float* out) {
  const int64_t all = (task.cols + 1) / 2, stride = task.input_stride, to = task.out_stride;
  const int64_t tiles = (task.tokens + kTile - 1) / kTile;
  for (int64_t done = 0; done < all; done += kPairsInChunk) {
    const int64_t count = all - done < kPairsInChunk ? all - done : kPairsInChunk;
    int64_t begin = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t end = task.tokens * (tile + 1) / tiles;
      const auto* x = reinterpret_cast<const uint8_t*>(task.input) + begin * stride + 4 * done;
      run_pairs_of(end - begin, std::make_integer_sequence<int, kTile>(), q, count, done == 0, x, stride,
                   out + begin * to, to);
      begin = end;
    }
    q += 128 * count;
  }
}

}  // namespace

void run_bf16(const MatmulTask& task) {
  for (int64_t panel = 0; panel < task.num_panels; ++panel) {
    const auto* q = reinterpret_cast<const uint8_t*>(task.panels) + panel * task.panel_bytes;
    float* out = task.out + panel * kMatmulRows;
    if (task.tokens == 1)
      run_pairs<1>(q, (task.cols + 1) / 2, true, reinterpret_cast<const uint8_t*>(task.input), 0, out, 0);
    else
      run_pair_tiles(q, task, out);
  }
}

double peak_bf16(int64_t iterations) {
  F chains[12];
  for (F& c : chains) c = f_set(0.0f);
  const int32_t pair = 0x3a833a83;  // twice about 0.001
  const I v = i_broadcast(&pair);
  for (int64_t i = 0; i < iterations; ++i)
    for (F& c : chains) c = dot_pairs(c, v, v);
  for (int i = 1; i < 12; ++i) chains[0] = f_add(chains[0], chains[i]);
  float sink[16];
  f_store(sink, chains[0]);
  __asm__ volatile("" : : "r"(sink) : "memory");
  return static_cast<double>(iterations) * 12 * 64;
}

}  // namespace millrace::kernels::avx512bf16
