#include "loaders/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/checked.h"
#include "core/error.h"
#include "core/utf8.h"
#include "quant/traits.h"

namespace millrace::loaders {
namespace {

// The limit of the format's own library.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// What a tensor takes in memory beside its name: its record and its place in the index, rounded up.
constexpr uint64_t kTensorOverhead = 288;
constexpr size_t kMaxFileDims = 16;

struct DtypeName {
  std::string_view name;
  DType type;
};
// Unsigned integers and booleans hold no weights; they are named by their width.
constexpr DtypeName kDtypes[] = {
    {"F64", DType::kF64},        {"F32", DType::kF32},        {"F16", DType::kF16},    {"BF16", DType::kBF16},
    {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2}, {"F8_E8M0", DType::kI8}, {"I64", DType::kI64},
    {"I32", DType::kI32},        {"I16", DType::kI16},        {"I8", DType::kI8},      {"U64", DType::kI64},
    {"U32", DType::kI32},        {"U16", DType::kI16},        {"U8", DType::kI8},      {"BOOL", DType::kI8},
};

std::string shown(const std::string& name) {
  constexpr size_t kLimit = 120;
  std::string text = utf8::replace_invalid(name.substr(0, utf8::complete_prefix(name.substr(0, kLimit))));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  return name.size() > kLimit ? text + "..." : text;
}

/// Reads the header, {name: {dtype, shape, data_offsets}, ..., "__metadata__": {text: text}}, as it is
/// parsed, so that no tree is built and a key that stands twice is seen.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::shared_ptr<MappedFile> file, uint64_t data_begin, std::vector<TensorEntry>& out)
      : file_(std::move(file)),
        data_begin_(data_begin),
        out_(out),
        budget_(2 * file_->bytes().size() + (16u << 20)) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(int64_t) override { return unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return unexpected("a number");
    std::vector<uint64_t>& list = place_ == Place::kShape ? shape_ : offsets_;
    require(list.size() < kMaxFileDims, ErrorCode::kInvalidFile,
            "{}: tensor '{}' has a list of more than {} numbers", path(), shown(name_), kMaxFileDims);
    list.push_back(value);
    return true;
  }
  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != "dtype") return unexpected("a string");
    dtype_ = value;
    return true;
  }
  bool start_object(size_t) override {
    if (place_ == Place::kStart)
      place_ = Place::kTop;
    else if (place_ == Place::kTop)
      place_ = name_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
    else
      return unexpected("an object");
    return true;
  }
  bool key(std::string& key) override {
    if (place_ == Place::kTop) {
      name_ = key;
      field_.clear();
      dtype_.reset();
      has_shape_ = has_offsets_ = false;
      shape_.clear();
      offsets_.clear();
    } else if (place_ == Place::kTensor) {
      require(key == "dtype" || key == "shape" || key == "data_offsets", ErrorCode::kInvalidFile,
              "{}: tensor '{}' has a key '{}': expected dtype, shape and data_offsets", path(), shown(name_),
              shown(key));
      const bool twice = (key == "dtype" && dtype_) || (key == "shape" && has_shape_) ||
                         (key == "data_offsets" && has_offsets_);
      require(!twice, ErrorCode::kInvalidFile, "{}: tensor '{}' has the key '{}' twice: expected it once",
              path(), shown(name_), key);
      field_ = key;
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor) finish_tensor();
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }
  bool start_array(size_t) override {
    if (place_ != Place::kTensor || (field_ != "shape" && field_ != "data_offsets"))
      return unexpected("a list");
    (field_ == "shape" ? has_shape_ : has_offsets_) = true;
    place_ = field_ == "shape" ? Place::kShape : Place::kOffsets;
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    fail(ErrorCode::kInvalidFile, "{}: the header is malformed JSON at byte {}", path(), at + 8);
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  std::string path() const { return file_->path().string(); }

  bool unexpected(const char* what) {
    fail(ErrorCode::kInvalidFile,
         "{}: the header holds {} at '{}{}{}': expected tensors with dtype, shape and data_offsets", path(),
         what, shown(name_), field_.empty() ? "" : ".", field_);
  }

  void finish_tensor() {
    const std::string where = fmt::format("{}: tensor '{}'", path(), shown(name_));
    require(dtype_ && has_shape_ && has_offsets_ && offsets_.size() == 2, ErrorCode::kInvalidFile,
            "{} is incomplete: expected dtype, shape and data_offsets [begin, end]", where);
    const uint64_t cost = kTensorOverhead + 2 * name_.size();
    require(cost <= budget_, ErrorCode::kLimitExceeded,
            "{}: the header takes more memory than twice the file", path());
    budget_ -= cost;
    TensorEntry entry;
    entry.name = name_;
    entry.file = file_;
    const auto known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                    [&](const auto& d) { return d.name == *dtype_; });
    require(known != std::end(kDtypes), ErrorCode::kUnsupported,
            "{} has dtype '{}': expected F32, F16, BF16, F8_E4M3, F8_E5M2 or an integer", where,
            shown(*dtype_));
    entry.dtype = known->type;
    const uint64_t elements = read_shape(where, entry.shape);
    const auto bytes = checked_mul(elements, static_cast<uint64_t>(quant::traits(entry.dtype).block_bytes));
    const uint64_t begin = offsets_[0], end = offsets_[1], available = file_->bytes().size() - data_begin_;
    require(begin <= end && end <= available, ErrorCode::kInvalidFile,
            "{} has data_offsets [{}, {}]: expected a range within the {} bytes of data", where, begin, end,
            available);
    require(bytes && end - begin == *bytes, ErrorCode::kInvalidFile,
            "{} has {} bytes: its shape and dtype make {}", where, end - begin,
            bytes ? std::to_string(*bytes) : "more than 2^64");
    entry.data = file_->bytes().data() + data_begin_ + begin;
    entry.bytes = *bytes;
    out_.push_back(std::move(entry));
  }

  /// The number of elements; fills the shape.
  uint64_t read_shape(const std::string& where, Shape& out) const {
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    uint64_t elements = 1;
    bool empty = false;
    for (const uint64_t size : shape_) {
      empty = empty || size == 0;
      // A size of zero would hide an overflow of the others.
      const auto product = checked_mul(elements, std::max<uint64_t>(size, 1));
      require(product && *product <= kMost, ErrorCode::kInvalidFile, "{} has a shape whose product overflows",
              where);
      elements = *product;
    }
    // Beyond four dimensions the outer ones are joined: nothing here looks at them one by one.
    const size_t joined = shape_.size() > kMaxDims ? shape_.size() - kMaxDims : 0;
    int64_t outer = 1;
    for (size_t i = 0; i < shape_.size(); ++i) {
      outer *= static_cast<int64_t>(empty ? std::min<uint64_t>(shape_[i], 1) : shape_[i]);
      if (i < joined) continue;
      out.dims[static_cast<size_t>(out.ndim++)] = outer;
      outer = 1;
    }
    return empty ? 0 : elements;
  }

  std::shared_ptr<MappedFile> file_;
  uint64_t data_begin_;
  std::vector<TensorEntry>& out_;
  uint64_t budget_;
  Place place_ = Place::kStart;
  std::string name_, field_;
  std::optional<std::string> dtype_;
  bool has_shape_ = false, has_offsets_ = false;
  std::vector<uint64_t> shape_, offsets_;
};

}  // namespace

void read_safetensors(const std::filesystem::path& path, std::vector<TensorEntry>& out) {
  const auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  require(bytes.size() >= 8, ErrorCode::kInvalidFile,
          "{}: {} bytes are too short for a safetensors file: expected 8 or more", path.string(),
          bytes.size());
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), 8);
  require(header_bytes <= bytes.size() - 8 && header_bytes <= kMaxHeaderBytes, ErrorCode::kInvalidFile,
          "{}: the header's length is given as {} bytes: expected at most the {} that follow, and at most {}",
          path.string(), header_bytes, bytes.size() - 8, kMaxHeaderBytes);
  const uint64_t data_begin = 8 + header_bytes;
  const size_t first = out.size();
  HeaderReader reader(file, data_begin, out);
  const char* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  nlohmann::json::sax_parse(text, text + header_bytes, &reader);
  // Ranges in file order must follow each other without overlap.
  std::sort(out.begin() + static_cast<ptrdiff_t>(first), out.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return a.data != b.data ? a.data < b.data : a.bytes < b.bytes;
            });
  const std::byte* at = bytes.data() + data_begin;
  for (size_t i = first; i < out.size(); ++i) {
    if (out[i].data < at)
      fail(ErrorCode::kInvalidFile,
           "{}: tensors '{}' and '{}' overlap: expected each to have bytes of its own", path.string(),
           shown(out[i - 1].name), shown(out[i].name));
    if (out[i].data > at)
      fail(ErrorCode::kInvalidFile, "{}: {} bytes before tensor '{}' belong to none", path.string(),
           out[i].data - at, shown(out[i].name));
    at = out[i].data + out[i].bytes;
  }
  require(at == bytes.data() + bytes.size(), ErrorCode::kInvalidFile,
          "{}: {} bytes at the end belong to no tensor: is the header complete?", path.string(),
          bytes.data() + bytes.size() - at);
}

}  // namespace millrace::loaders
