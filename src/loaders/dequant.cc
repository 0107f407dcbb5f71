#include "loaders/dequant.h"

#include "core/checked.h"
#include "core/error.h"
#include "quant/traits.h"

namespace millrace::loaders {
namespace {

constexpr const char* kSuffixes[] = {"_scale_inv", "_scale"};
constexpr int64_t kUsualBlock = 128;

bool is_fp8(DType type) { return type == DType::kF8E4M3 || type == DType::kF8E5M2; }

/// Elements that one of `count` scales covers along a side of `size`: the configured block when it fits, else
/// an even division; 0 when no block size makes this count.
int64_t block_of(int64_t size, int64_t count, int64_t configured) {
  if (count == 1) return size;
  if (count == size) return 1;
  for (const int64_t block : {configured, kUsualBlock, ceil_div(size, std::max<int64_t>(count, 1))})
    if (block > 0 && ceil_div(size, block) == count) return block;
  return 0;
}

}  // namespace

const TensorEntry* find_scale(const Checkpoint& checkpoint, const TensorEntry& tensor) {
  if (!is_fp8(tensor.dtype)) return nullptr;
  for (const char* suffix : kSuffixes)
    if (const auto* scale = checkpoint.find(tensor.name + suffix)) return scale;
  return nullptr;
}

bool is_scale(const Checkpoint& checkpoint, const TensorEntry& tensor) {
  for (const std::string_view suffix : kSuffixes) {
    const std::string_view name = tensor.name;
    if (name.size() <= suffix.size() || name.substr(name.size() - suffix.size()) != suffix) continue;
    const auto* owner = checkpoint.find(name.substr(0, name.size() - suffix.size()));
    if (owner && is_fp8(owner->dtype)) return true;
  }
  return false;
}

RowReader::RowReader(const Checkpoint& checkpoint, const TensorEntry& tensor)
    : tensor_(tensor), rows_(tensor.shape.rows()), columns_(tensor.shape.back()) {
  const std::string where = fmt::format("{}: tensor '{}'", checkpoint.path.string(), tensor.name);
  require(quant::traits(tensor.dtype).decode, ErrorCode::kUnsupported,
          "{} has type {}: expected numbers that hold weights", where, dtype_name(tensor.dtype));
  row_bytes_ = quant::row_bytes(tensor.dtype, static_cast<uint64_t>(columns_)).value_or(0);
  const TensorEntry* scale = find_scale(checkpoint, tensor);
  if (!scale) return;
  require(quant::traits(scale->dtype).decode, ErrorCode::kUnsupported,
          "{} has a scale of type {}: expected floats", where, dtype_name(scale->dtype));
  // Leading dimensions are matrices of their own, with scales of their own.
  matrix_rows_ = tensor.shape.ndim > 1 ? tensor.shape[tensor.shape.ndim - 2] : 1;
  const int64_t matrices = matrix_rows_ ? rows_ / matrix_rows_ : 0, count = scale->shape.elements();
  const bool one_for_all = count == 1;
  scale_columns_ = one_for_all || scale->shape.ndim < 2 ? 1 : scale->shape.back();
  const int64_t scale_rows = scale_columns_ ? count / scale_columns_ : 0;
  scale_rows_ = one_for_all ? 1 : matrices ? scale_rows / matrices : 0;
  const auto configured = checkpoint.metadata.find_ints("quantization_config.weight_block_size");
  const bool pair = configured && configured->size() == 2;
  block_rows_ = one_for_all ? std::max<int64_t>(rows_, 1)
                            : block_of(matrix_rows_, scale_rows_, pair ? (*configured)[0] : 0);
  block_columns_ = block_of(columns_, scale_columns_, pair ? (*configured)[1] : 0);
  require(count > 0 && block_rows_ > 0 && block_columns_ > 0 &&
              (one_for_all || scale_rows_ * matrices == scale_rows),
          ErrorCode::kInvalidFile,
          "{} of shape {} has a scale of shape {}: expected one number, one a row or one a block", where,
          tensor.shape.to_string(), scale->shape.to_string());
  if (one_for_all) matrix_rows_ = std::max<int64_t>(rows_, 1);
  scales_.resize(static_cast<size_t>(count));
  quant::traits(scale->dtype).decode(scale->data, scales_.data(), count);
}

void RowReader::read(int64_t begin, int64_t count, float* out) const {
  const quant::Traits& traits = quant::traits(tensor_.dtype);
  traits.decode(tensor_.data + static_cast<uint64_t>(begin) * row_bytes_, out, count * columns_);
  if (scales_.empty()) return;
  for (int64_t row = begin; row < begin + count; ++row, out += columns_) {
    const int64_t matrix = row / matrix_rows_, in_matrix = row % matrix_rows_;
    const float* scale = scales_.data() + (matrix * scale_rows_ + in_matrix / block_rows_) * scale_columns_;
    for (int64_t c = 0; c < columns_; ++c) out[c] *= scale[c / block_columns_];
  }
}

}  // namespace millrace::loaders
