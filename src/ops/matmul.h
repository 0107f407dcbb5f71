// Matrix times activations, the heart of the engine. A weight [rows, cols] of any storage type becomes a
// PackedMatrix once, in the layout that the chosen kernel wants; activations are prepared (quantised, or
// converted) once per input and shared by every matmul that reads it.
//
//   y[token, row] = sum over cols of w[row, col] * x[token, col]
//
// A token's result does not depend on how many tokens are in the call: every kernel adds in the same order
// for one token and for many, so batching changes no bit. At levels kAmx and kAmxFp16 quantised weights have
// two kinds of product, with int8 activations and with BF16 or FP16 ones (the faster for prompts), which
// differ by rounding: which of them a token gets is said by who makes the input (`rounded`), never by how
// many tokens come along.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/dtype.h"
#include "core/function_ref.h"
#include "core/tensor.h"
#include "kernels/matmul.h"
#include "ops/context.h"

namespace millrace::ops {

/// What a packed matrix wants its activations as.
enum class InputForm : uint8_t {
  kF32,        ///< as they are
  kBF16,       ///< rounded to bfloat16
  kInt8,       ///< blocks of 32 with one scale each, and block sums for zero points
  kInt8Super,  ///< the same with one scale for eight blocks: what weights in super-blocks of 256 columns read
  kF16,        ///< half precision, in the order and range of MatmulInputKernels::to_f16
};

/// One weight, or part of one, to be packed: `view` of shape [rows, cols]. `release(begin, bytes)` is called,
/// when set, after each stretch of the source was packed, so that its pages can go.
struct MatrixSource {
  TensorView view;
  std::function<void(const void*, size_t)> release;
};

class PackedMatrix {
 public:
  PackedMatrix() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  DType source_type() const { return source_type_; }
  /// What its products read of tokens that are not rounded.
  InputForm input_form() const { return static_cast<InputForm>(layout_->few.input); }
  /// Bytes of the packed form, all of which a token reads.
  uint64_t bytes() const { return data_.size(); }
  bool empty() const { return rows_ == 0; }

  // Read by the kernels only.
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  DType source_type_ = DType::kF32;
  const kernels::MatmulLayout* layout_ = nullptr;  ///< how the panels look and which kernel reads them
  int64_t panel_bytes_ = 0;
  AlignedBuffer data_;
};

/// Packs one or several matrices of equal `cols` and type, stacked by rows (QKV in one, gate|up in one), for
/// `isa`. Errors: kUnsupported for a type that has no decoder; kInvalidArgument for shapes that do not fit.
PackedMatrix pack_matrix(std::span<const MatrixSource> parts, IsaLevel isa, ThreadPool& pool);

/// True when stacked parts may have different storage types, or one type that packs: parts of different types
/// cannot share one PackedMatrix.
bool can_stack(std::span<const MatrixSource> parts);

/// Activations [tokens, cols] prepared for matmuls; memory from the context's arena, valid for the step.
struct MatmulInput {
  const float* f32 = nullptr;  ///< [tokens, cols], row stride `stride`
  int64_t tokens = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  /// The first so many tokens take the rounded kernel where the level has one beside int8.
  int64_t rounded = 0;
  /// A converted form of rows [begin, end), or of none yet.
  struct Prepared {
    std::byte* rows = nullptr;  ///< where row 0 is, or would be
    int64_t begin = 0, end = 0;
  } prepared[5];  ///< by InputForm
};

/// Describes x, preparing nothing yet.
MatmulInput make_input(const float* x, int64_t tokens, int64_t cols, int64_t stride = 0, int64_t rounded = 0);

/// Makes the forms that products read of the input where a token that is not rounded needs `form`, unless
/// they are there already.
void prepare_input(const Context& context, MatmulInput& input, InputForm form);

/// Makes a form of the rows [begin, end), which touch those that it was made of before.
void prepare_rows(const Context& context, MatmulInput& input, InputForm form, int64_t begin, int64_t end);

/// Whether products that read `form` read nothing else of an input whose first `rounded` tokens are rounded,
/// and an epilogue can make it (Epilogue::input).
bool epilogue_makes(const Context& context, InputForm form, int64_t rounded);

/// An input of which an epilogue will make `form`, which is all that it will ever have.
MatmulInput make_input_of_form(const Context& context, int64_t tokens, int64_t cols, InputForm form);

/// Makes `count` columns of one of its tokens from `values`: a multiple of 32 of kInt8, of 256 of kInt8Super,
/// and so is `first`.
void put_columns(const Context& context, const MatmulInput& input, InputForm form, int64_t token,
                 int64_t first, const float* values, int64_t count);

/// Bytes from one token to the next in a prepared form.
int64_t prepared_stride(InputForm form, const MatmulInput& input);

/// Makes x = norm(source) * weight and the quantised form of x in one pass over the rows.
/// The result's f32 has the normalised rows too.
struct NormSpec {
  enum class Kind : uint8_t { kRms, kLayer } kind = Kind::kRms;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float epsilon = 1e-5f;
};
MatmulInput norm_input(const Context& context, const float* source, int64_t tokens, int64_t cols,
                       const NormSpec& norm, std::span<const InputForm> forms, int64_t rounded = 0);

/// What happens to a result before it is stored.
struct Epilogue {
  enum class Kind : uint8_t {
    kStore,      ///< y = result + bias
    kAdd,        ///< y += result + bias (the residual)
    kSwiGlu,     ///< rows are gate|up stacked: y[row] = silu(gate) * up, half as many columns in y
    kGeGluTanh,  ///< the same with gelu (tanh form)
  } kind = Kind::kStore;
  const float* bias = nullptr;  ///< [rows], or null
  float scale = 1.0f;           ///< result is scaled before the bias
  /// Of pairs of gate and up: the input (make_input_of_form) of which the result becomes `form`, instead of
  /// going to y, while it is in the first cache. cols is half of the rows.
  MatmulInput* input = nullptr;
  InputForm form = InputForm::kF32;
};

/// y [tokens, rows] (row stride `y_stride` floats) from the packed weight and the input, whose form is
/// prepared here when it is missing.
void matmul(const Context& context, const PackedMatrix& w, MatmulInput& x, float* y, int64_t y_stride,
            const Epilogue& epilogue = {});

/// Grouped form for experts: expert e multiplies rows row_offsets[e] .. row_offsets[e+1] of x (already
/// gathered by expert). Each expert's weights are read once. Of expert e's rows the first rounded[e] take the
/// rounded kernel (`rounded` empty: none; x.rounded is not looked at).
void grouped_matmul(const Context& context, std::span<const PackedMatrix> experts, MatmulInput& x,
                    std::span<const int32_t> row_offsets, std::span<const int32_t> rounded, float* y,
                    int64_t y_stride, const Epilogue& epilogue = {});

/// Rows `ids` of a [rows, cols] tensor of any storage type, decoded to out [ids, cols].
void embedding_lookup(const Context& context, const TensorView& table, std::span<const int32_t> ids,
                      float* out);

}  // namespace millrace::ops
