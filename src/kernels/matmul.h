// The matrix-multiply kernels, raw pointers only. A weight is cut into panels of 32 rows, two strips of
// sixteen; inside a strip, rows are interleaved so that one vector holds the next few columns of all sixteen,
// and one activation, broadcast, meets sixteen rows in one instruction. ops/matmul packs, splits the work and
// finishes the results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.h"
#include "core/dtype.h"

namespace millrace::kernels {

inline constexpr int kMatmulRows = 32;  ///< rows of a panel
inline constexpr int kStrips = 2;

inline constexpr int kBlockCols = 32;   ///< columns of a block of activations
inline constexpr int kSuperCols = 256;  ///< columns that share a scale in MatmulInput::kInt8Super
inline constexpr int kChunkCols = 256;  ///< columns unpacked at a time for many tokens

/// Thirty-two activations as int8; a cache line, so that a block is one line of traffic. In kInt8 each has a
/// scale of its own; in kInt8Super the eight of 256 columns have the same, so that kernels sum integers times
/// integers and scale once, as llama.cpp's K-quants do with their Q8_K activations.
struct alignas(64) ActivationBlock {
  int8_t values[kBlockCols];
  float scale;           ///< largest magnitude / 127
  int32_t negative_sum;  ///< -(sum of values): times a zero point it is what an accumulator starts from
  int32_t negative_half_sums[2];  ///< the same of columns 0-15 and 16-31
  /// What an offset is multiplied by: scale * (sum of values); in kInt8Super the sum itself.
  float offset_sum;
  float offset_half_sums[2];  ///< the same of columns 0-15 and 16-31
  union {
    int32_t negative_eight;  ///< in kInt8: 8 * negative_sum, from which Q4_0's accumulators start
    int32_t sum_pair;        ///< in kInt8Super, of even blocks: the sums of it and of the next, 16 bits each
  };
};
static_assert(sizeof(ActivationBlock) == 64);

/// What a layout reads; the same order as ops::InputForm. kInt8Super: types with super-blocks of 256 columns
/// (K-quants, IQ4_XS, TQ2_0). kF16: rows of half precision as to_f16 makes them.
enum class MatmulInput : uint8_t { kF32, kBF16, kInt8, kInt8Super, kF16 };

/// Panels times tokens: out[t * out_stride + 32 * panel + row] = sum over cols.
struct MatmulTask {
  const std::byte* panels;  ///< num_panels of them, panel_bytes apart
  int64_t panel_bytes;
  int64_t num_panels;
  int64_t cols;
  const std::byte* input;  ///< tokens rows in the layout's form, input_stride bytes apart
  int64_t input_stride;
  int64_t tokens;
  float* out;
  int64_t out_stride;  ///< in floats, at least 32 * num_panels
  std::byte* scratch;  ///< kMatmulScratchBytes, 64-byte aligned, the caller's thread's own
  /// Names the call, whose tasks on one thread come one after the other: what a kernel made of the same input
  /// for the task before may still be in scratch. 0: of none.
  uint64_t call;
};

inline constexpr size_t kMatmulScratchBytes = 2 * 1024 * 1024;
/// The beginning of it, which any kernel may write; what is kept from task to task lies behind.
inline constexpr size_t kPassingScratchBytes = 128 * 1024;
inline constexpr int64_t kExactTileCols = 65536;  ///< columns of which the scratch holds a tile of tokens

/// Computes a task. A token's sums are made in an order that depends on nothing but cols, so that the number
/// of tokens in a task changes no bit; two kernels of one layout may differ in rounding.
struct MatmulKernel {
  MatmulInput input;
  void (*run)(const MatmulTask& task);
};

struct MatmulLayout {
  DType type;
  int64_t (*panel_bytes)(int64_t cols);
  /// Packs thirty-two rows of the file's form; rows beyond the matrix point to zero bytes.
  void (*pack)(const std::byte* const* rows, int64_t cols, std::byte* panel);
  MatmulKernel few;
  MatmulKernel some;  ///< from some_tokens tokens on; the same bits as few's
  int64_t some_tokens;
  MatmulKernel rounded;  ///< other bits, faster for many tokens, about as exact; mostly none (run null)

  const MatmulKernel& kernel(int64_t tokens, int64_t cols) const {
    return tokens >= some_tokens && cols <= kExactTileCols ? some : few;
  }
};

/// Tokens of answers that the kernels of a level multiply together: one more begins another tile, which costs
/// almost as much as a full one. 1: there are no tiles, every token adds its own.
int64_t matmul_token_tile(IsaLevel isa);

/// What the rounded kernels of layouts that read int8, of either kind, read; kInt8 where they have none.
MatmulInput rounded_input(IsaLevel isa);

/// The layout of a storage type on an instruction set that this CPU has; null for types without a decoder.
const MatmulLayout* matmul_layout(DType type, IsaLevel isa);

/// Conversions of one row of activations, on an instruction set.
struct MatmulInputKernels {
  /// To kInt8: cols is a multiple of 32.
  void (*quantize)(const float* x, int64_t cols, ActivationBlock* out);
  /// To kInt8Super: cols is a multiple of 256.
  void (*quantize_super)(const float* x, int64_t cols, ActivationBlock* out);
  void (*to_bf16)(const float* x, int64_t cols, uint16_t* out);
  /// cols is a multiple of 32; out has two bytes a column and a cache line. Null below kAmxFp16. The row
  /// times a power of two that keeps it in range; of every four columns the inner two change places, as
  /// kernels unpack them; behind them the factor that a sum of products with weights times kF16WeightScale is
  /// to be multiplied by.
  void (*to_f16)(const float* x, int64_t cols, uint16_t* out) = nullptr;
};
/// Weights of half precision are so much larger than they are: small ones lose no bits, and up to 4,094 fit.
inline constexpr float kF16WeightScale = 16;
const MatmulInputKernels& matmul_input_kernels(IsaLevel isa);

/// Peak rates: runs `iterations` rounds of independent dot-product instructions on registers and returns the
/// operations (multiply and add counted as two) they did. Null where the CPU lacks the instruction or the
/// level leaves it out. tile_*: of the matrix unit.
struct MatmulPeaks {
  double (*int8)(int64_t iterations);
  double (*bf16)(int64_t iterations);
  double (*f32)(int64_t iterations);
  double (*tile_int8)(int64_t iterations);
  double (*tile_bf16)(int64_t iterations);
};
MatmulPeaks matmul_peaks(IsaLevel isa);

/// Reads every cache line of a stretch of memory once, as fast as one thread can; the sum keeps the reads
/// alive.
uint64_t read_stream(const std::byte* data, size_t bytes);

}  // namespace millrace::kernels
