// The trainer's arithmetic, one table for each instruction set. All matrices are row-major. "Word" is the
// 4-byte unit that the matrix kernels walk over: one float, or two bfloat16 neighbours along the summed
// dimension (the lower half is the even one), which is what VDPBF16PS multiplies.
//
// Sums run in a fixed order, so a table gives the same bits for any number of threads; tables differ among
// each other in the last bits.
#pragma once

#include <cstdint>

namespace millrace::train {

using Word = uint32_t;

/// Tile of the matrix kernels: rows of the left operand, columns of a packed panel of the right one.
inline constexpr int kTileRows = 8;
inline constexpr int kPanelColumns = 32;

enum class Arithmetic { kFloat32, kBfloat16 };
enum class Into { kStore, kAdd };

/// One tile: c[8][32] (=, +=) sum over k of a[row][k] * b[k][column].
/// a: word at row * a_row_stride + k * a_k_stride; b: panel, word at k * 32 + column; strides in words, ldc
/// in floats.
using GemmTile = void (*)(const Word* a, int64_t a_row_stride, int64_t a_k_stride, const Word* b,
                          int64_t k_words, float* c, int64_t ldc, Into into);

struct AdamStep {
  float learning_rate, beta1, beta2, epsilon, weight_decay;
  float correction1, correction2;  ///< 1 / (1 - beta^t)
  float gradient_scale;            ///< from clipping
};

struct Kernels {
  const char* name;
  GemmTile gemm_f32;
  GemmTile gemm_bf16;

  void (*to_bf16)(const float* from, uint16_t* to, int64_t count);  ///< round to nearest even; no NaN

  /// Rows of words (f32: [rows][columns]; bf16: pairs along columns, [rows][columns / 2] words) to panels
  /// whose summed dimension is the row: f32 [columns / 32][rows][32], bf16 [columns / 32][rows / 2][32].
  void (*pack_f32)(const float* from, int64_t rows, int64_t columns, int64_t row_stride, Word* to);
  void (*pack_bf16)(const uint16_t* from, int64_t rows, int64_t columns, int64_t row_stride, Word* to);

  /// y = x * rstd(x) * weight; returns rstd. count is a multiple of 16.
  float (*rms_norm)(const float* x, const float* weight, float* y, int64_t count, float epsilon);
  /// dx += gradient through y = x * rstd * weight; dweight += dy * x * rstd.
  void (*rms_norm_backward)(const float* x, const float* weight, const float* dy, float rstd, float* dx,
                            float* dweight, int64_t count);

  /// y = silu(gate) * up
  void (*swiglu)(const float* gate, const float* up, float* y, int64_t count);
  void (*swiglu_backward)(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                          int64_t count);

  /// Turns x into exp(scale * x - shift) in place and returns the sum.
  float (*exp_sum)(float* x, float scale, float shift, int64_t count);
  float (*maximum)(const float* x, int64_t count);
  void (*scale)(float* x, float factor, int64_t count);
  void (*add)(const float* x, float* y, int64_t count);                       ///< y += x
  void (*add_scaled)(const float* x, float factor, float* y, int64_t count);  ///< y += factor * x
  float (*dot)(const float* x, const float* y, int64_t count);
  /// ds = p * (dp - delta) * scale, into dp.
  void (*softmax_backward)(const float* p, float* dp, float delta, float scale, int64_t count);
  /// Rotates neighbours (x[2i], x[2i+1]) by the angle of cosine[i], sine[i]; both tables hold every value
  /// twice, and sine with the sign of the turn: (-s, s). count is a multiple of 16.
  void (*rope)(float* x, const float* cosine, const float* sine, int64_t count);

  void (*adam)(float* weight, const float* gradient, float* first, float* second, int64_t count,
               const AdamStep& step);

  /// Floating-point operations of `rounds` rounds of register-only multiply-adds: what the machine can do at
  /// most.
  double (*peak_f32)(int64_t rounds);
  double (*peak_bf16)(int64_t rounds);
};

/// The best table of this CPU (or of --isa): avx512 (with bf16 where the CPU has it), avx2, portable.
const Kernels& kernels();
/// All tables this CPU can run, for tests; the portable one first.
int num_kernel_tables();
const Kernels& kernel_table(int index);

const Kernels& portable_kernels();
const Kernels* avx2_kernels();  ///< null where not built for x86-64
const Kernels* avx512_kernels();
const Kernels* avx512bf16_kernels();

}  // namespace millrace::train
