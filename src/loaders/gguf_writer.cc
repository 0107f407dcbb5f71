#include "loaders/gguf_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/checked.h"
#include "core/error.h"
#include "loaders/ggml_types.h"
#include "quant/traits.h"

namespace millrace::loaders {
namespace {

constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9, kUint64 = 10,
                   kInt64 = 11;

bool fits_i32(int64_t v) {
  return v >= std::numeric_limits<int32_t>::min() && v <= std::numeric_limits<int32_t>::max();
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path, uint64_t alignment)
    : path_(path), partial_(path.string() + ".partial"), alignment_(alignment) {
  require(alignment >= 8 && std::has_single_bit(alignment), ErrorCode::kInvalidArgument,
          "alignment {}: expected a power of two from 8 up", alignment);
  file_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  require(file_ >= 0, ErrorCode::kIo, "cannot create {}: {}", partial_.string(), std::strerror(errno));
  if (alignment != 32) set_u32("general.alignment", static_cast<uint32_t>(alignment));
}

GgufWriter::~GgufWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(partial_.c_str());
}

template <typename T>
void GgufWriter::put(T value) {
  metadata_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void GgufWriter::put_string(std::string_view text) {
  put<uint64_t>(text.size());
  metadata_.append(text);
}

void GgufWriter::begin_value(const std::string& key, uint32_t type) {
  require(data_start_ == 0, ErrorCode::kInvalidArgument, "{}: key '{}' comes after the header",
          path_.string(), key);
  require(std::find(keys_.begin(), keys_.end(), key) == keys_.end(), ErrorCode::kInvalidArgument,
          "{}: key '{}' is set twice", path_.string(), key);
  keys_.push_back(key);
  put_string(key);
  put(type);
}

template <typename T>
void GgufWriter::put_array(const std::string& key, uint32_t type, const std::vector<T>& values) {
  begin_value(key, kArray);
  put(type);
  put<uint64_t>(values.size());
  metadata_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void GgufWriter::set_u32(const std::string& key, uint32_t value) {
  begin_value(key, kUint32);
  put(value);
}
void GgufWriter::set_i32(const std::string& key, int32_t value) {
  begin_value(key, kInt32);
  put(value);
}
void GgufWriter::set_u64(const std::string& key, uint64_t value) {
  begin_value(key, kUint64);
  put(value);
}
void GgufWriter::set_f32(const std::string& key, float value) {
  begin_value(key, kFloat32);
  put(value);
}
void GgufWriter::set_bool(const std::string& key, bool value) {
  begin_value(key, kBool);
  put<uint8_t>(value ? 1 : 0);
}
void GgufWriter::set_string(const std::string& key, std::string_view value) {
  begin_value(key, kString);
  put_string(value);
}
void GgufWriter::set_strings(const std::string& key, const std::vector<std::string>& values) {
  begin_value(key, kArray);
  put(kString);
  put<uint64_t>(values.size());
  for (const std::string& text : values) put_string(text);
}
void GgufWriter::set_i32s(const std::string& key, const std::vector<int32_t>& v) {
  put_array(key, kInt32, v);
}
void GgufWriter::set_u32s(const std::string& key, const std::vector<uint32_t>& v) {
  put_array(key, kUint32, v);
}
void GgufWriter::set_f32s(const std::string& key, const std::vector<float>& v) {
  put_array(key, kFloat32, v);
}

void GgufWriter::set(const std::string& key, const Value& value) {
  struct Visitor {
    GgufWriter& out;
    const std::string& key;
    void operator()(bool v) const { out.set_bool(key, v); }
    void operator()(int64_t v) const {
      if (fits_i32(v)) return out.set_i32(key, static_cast<int32_t>(v));
      out.begin_value(key, kInt64);
      out.put(v);
    }
    void operator()(uint64_t v) const {
      if (v <= std::numeric_limits<uint32_t>::max()) return out.set_u32(key, static_cast<uint32_t>(v));
      out.set_u64(key, v);
    }
    void operator()(double v) const { out.set_f32(key, static_cast<float>(v)); }
    void operator()(const std::string& v) const { out.set_string(key, v); }
    void operator()(const std::vector<bool>& v) const {
      out.put_array(key, kBool, std::vector<uint8_t>(v.begin(), v.end()));
    }
    void operator()(const std::vector<int64_t>& v) const {
      if (std::all_of(v.begin(), v.end(), fits_i32))
        out.set_i32s(key, std::vector<int32_t>(v.begin(), v.end()));
      else
        out.put_array(key, kInt64, v);
    }
    void operator()(const std::vector<uint64_t>& v) const {
      const bool narrow = std::all_of(v.begin(), v.end(), [](uint64_t x) { return x <= 0xffffffffu; });
      if (narrow)
        out.set_u32s(key, std::vector<uint32_t>(v.begin(), v.end()));
      else
        out.put_array(key, kUint64, v);
    }
    void operator()(const std::vector<double>& v) const {
      out.set_f32s(key, std::vector<float>(v.begin(), v.end()));
    }
    void operator()(const std::vector<std::string>& v) const { out.set_strings(key, v); }
  };
  std::visit(Visitor{*this, key}, value);
}

size_t GgufWriter::add_tensor(const std::string& name, DType type, const Shape& shape) {
  require(data_start_ == 0, ErrorCode::kInvalidArgument, "{}: tensor '{}' comes after the header",
          path_.string(), name);
  require(std::find(names_.begin(), names_.end(), name) == names_.end(), ErrorCode::kInvalidArgument,
          "{}: tensor '{}' is declared twice", path_.string(), name);
  const auto id = ggml_from_dtype(type);
  require(id.has_value(), ErrorCode::kInvalidArgument, "{}: tensor '{}': GGUF has no storage type {}",
          path_.string(), name, dtype_name(type));
  require(shape.ndim >= 1 && shape.elements() > 0, ErrorCode::kInvalidArgument,
          "{}: tensor '{}' has shape {}: expected 1 to 4 sizes above 0", path_.string(), name,
          shape.to_string());
  const auto row = quant::row_bytes(type, static_cast<uint64_t>(shape.back()));
  const auto bytes = row ? checked_mul(*row, static_cast<uint64_t>(shape.rows())) : std::nullopt;
  require(bytes.has_value(), ErrorCode::kInvalidArgument,
          "{}: tensor '{}' has rows of {} elements: expected a multiple of {} for {}", path_.string(), name,
          shape.back(), quant::traits(type).block_elements, dtype_name(type));
  Tensor& tensor = tensors_.emplace_back();
  tensor.name = name;
  tensor.ggml_type = *id;
  tensor.shape = shape;
  tensor.bytes = *bytes;
  tensor.offset = data_bytes_;
  data_bytes_ += (*bytes + alignment_ - 1) / alignment_ * alignment_;
  names_.push_back(name);
  return tensors_.size() - 1;
}

uint64_t GgufWriter::file_bytes() const {
  if (data_start_) return data_start_ + data_bytes_;
  uint64_t header = 24 + metadata_.size();
  for (const Tensor& t : tensors_)
    header += 8 + t.name.size() + 4 + 8 * static_cast<uint64_t>(t.shape.ndim) + 12;
  return (header + alignment_ - 1) / alignment_ * alignment_ + data_bytes_;
}

void GgufWriter::write_header() {
  require(data_start_ == 0, ErrorCode::kInvalidArgument, "{}: the header is written twice", path_.string());
  const std::string values = std::move(metadata_);
  metadata_.clear();
  metadata_ = "GGUF";
  put<uint32_t>(3);
  put<uint64_t>(tensors_.size());
  put<uint64_t>(keys_.size());
  metadata_ += values;
  for (const Tensor& t : tensors_) {
    put_string(t.name);
    put(static_cast<uint32_t>(t.shape.ndim));
    for (int i = t.shape.ndim - 1; i >= 0; --i) put(static_cast<uint64_t>(t.shape[i]));
    put(t.ggml_type);
    put(t.offset);
  }
  metadata_.resize((metadata_.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
  data_start_ = metadata_.size();
  write_at(0, metadata_.data(), metadata_.size());
  metadata_ = std::string();
  require(::ftruncate(file_, static_cast<off_t>(data_start_ + data_bytes_)) == 0, ErrorCode::kIo,
          "cannot make {} {} bytes long: {}", partial_.string(), data_start_ + data_bytes_,
          std::strerror(errno));
}

void GgufWriter::write_at(uint64_t position, const void* data, uint64_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(file_, at, bytes, static_cast<off_t>(position));
    if (n < 0 && errno == EINTR) continue;
    require(n > 0, ErrorCode::kIo, "cannot write {}: {}", partial_.string(), std::strerror(errno));
    at += n;
    position += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
}

void GgufWriter::write(size_t tensor, uint64_t offset, const void* data, uint64_t bytes) {
  require(data_start_ != 0, ErrorCode::kInvalidArgument, "{}: data comes before the header", path_.string());
  Tensor& t = tensors_.at(tensor);
  require(offset <= t.bytes && bytes <= t.bytes - offset, ErrorCode::kInvalidArgument,
          "{}: {} bytes at {} of tensor '{}': expected at most {}", path_.string(), bytes, offset, t.name,
          t.bytes);
  write_at(data_start_ + t.offset + offset, data, bytes);
  t.written.fetch_add(bytes, std::memory_order_relaxed);
}

void GgufWriter::finish() {
  if (data_start_ == 0) write_header();
  for (const Tensor& t : tensors_)
    require(t.written.load() == t.bytes, ErrorCode::kInvalidArgument,
            "{}: {} of {} bytes of tensor '{}' were written", path_.string(), t.written.load(), t.bytes,
            t.name);
  const int file = std::exchange(file_, -1);
  const bool closed = ::close(file) == 0;
  if (!closed || ::rename(partial_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(partial_.c_str());
    fail(ErrorCode::kIo, "cannot finish {}: {}", path_.string(), std::strerror(error));
  }
}

}  // namespace millrace::loaders
