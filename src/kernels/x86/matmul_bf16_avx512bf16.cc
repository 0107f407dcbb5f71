// BF16 weights and activations: vdpbf16ps adds a pair of products to each row's sum.
#include <immintrin.h>

#include "kernels/matmul_runs.h"

namespace millrace::kernels::avx512bf16 {
namespace {
#include "kernels/x86/simd_avx512.inc"

constexpr int kPairsInChunk = kChunkCols / 2;

ALWAYS_INLINE F dot_pairs(F sum, I w, I x) { return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x); }

/// `pairs` pairs of columns of P panels times kTokens; out holds the sums so far unless `first`.
template <int kTokens, int P>
void run_pairs(const uint8_t* const* panels, int64_t pairs, bool first, const uint8_t* x, int64_t stride,
               float* const* out, int64_t out_stride) {
  F sum[P][kTokens];
  for (int p = 0; p < P; ++p)
    for (int t = 0; t < kTokens; ++t) sum[p][t] = first ? f_set(0.0f) : f_load(out[p] + t * out_stride);
  for (int64_t i = 0; i < pairs; ++i) {
    I w[P];
    for (int p = 0; p < P; ++p) w[p] = b_load(panels[p] + 64 * i);
    if constexpr (kTokens == 1)
      for (int p = 0; p < P; ++p) prefetch(panels[p] + 64 * i + kPrefetchAhead);
    for (int t = 0; t < kTokens; ++t) {
      const I activation = i_broadcast(x + t * stride + 4 * i);
      for (int p = 0; p < P; ++p) sum[p][t] = dot_pairs(sum[p][t], w[p], activation);
    }
  }
  for (int p = 0; p < P; ++p)
    for (int t = 0; t < kTokens; ++t) f_store(out[p] + t * out_stride, sum[p][t]);
}

void run_pair_tiles(const uint8_t* const* panels, const MatmulTask& task, float* const* out) {
  const int64_t all = (task.cols + 1) / 2, stride = task.input_stride, to = task.out_stride;
  const int64_t tiles = (task.tokens + kMaxTile - 1) / kMaxTile;
  for (int64_t done = 0; done < all; done += kPairsInChunk) {
    const int64_t count = all - done < kPairsInChunk ? all - done : kPairsInChunk;
    const uint8_t* const q[2] = {panels[0] + 64 * done, panels[1] + 64 * done};
    const bool first = done == 0;
    int64_t begin = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t end = task.tokens * (tile + 1) / tiles;
      const auto* x = reinterpret_cast<const uint8_t*>(task.input) + begin * stride + 4 * done;
      float* const o[2] = {out[0] + begin * to, out[1] + begin * to};
      switch (end - begin) {
        case 1:
          run_pairs<1, 2>(q, count, first, x, stride, o, to);
          break;
        case 2:
          run_pairs<2, 2>(q, count, first, x, stride, o, to);
          break;
        case 3:
          run_pairs<3, 2>(q, count, first, x, stride, o, to);
          break;
        case 4:
          run_pairs<4, 2>(q, count, first, x, stride, o, to);
          break;
        case 5:
          run_pairs<5, 2>(q, count, first, x, stride, o, to);
          break;
        case 6:
          run_pairs<6, 2>(q, count, first, x, stride, o, to);
          break;
      }
      begin = end;
    }
  }
}

}  // namespace

void run_bf16(const MatmulTask& task) {
  const auto* base = reinterpret_cast<const uint8_t*>(task.panels);
  for (int64_t panel = 0; panel < task.num_panels; panel += 2) {
    const int64_t other = panel + 1 < task.num_panels ? panel + 1 : panel;
    const uint8_t* const panels[2] = {base + panel * task.panel_bytes, base + other * task.panel_bytes};
    float* const out[2] = {task.out + panel * kMatmulRows, task.out + other * kMatmulRows};
    if (task.tokens == 1)
      run_pairs<1, 2>(panels, (task.cols + 1) / 2, true, reinterpret_cast<const uint8_t*>(task.input), 0, out,
                      0);
    else
      run_pair_tiles(panels, task, out);
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
