// Reader of GGUF, the file format of ggml: a magic, counts, key-value metadata, tensor descriptions, padding
// to an alignment, tensor data. Versions 2 and 3, little-endian. Everything read is checked against the
// file's size before it is used, and what parsing allocates is counted against a budget of twice the file, so
// that no file of any content can take more.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "core/checked.h"
#include "core/error.h"
#include "core/utf8.h"
#include "loaders/checkpoint.h"
#include "loaders/ggml_types.h"
#include "quant/traits.h"

namespace millrace::loaders {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the readers of files copy little-endian numbers as they are");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr int kMaxArrayDepth = 8;
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorInfoBytes = 8 + 4 + 8 + 4 + 8;
// What an entry takes in memory beside its payload, rounded up: map and index nodes, the value, the tensor
// record.
constexpr uint64_t kKeyValueOverhead = 192;
constexpr uint64_t kTensorOverhead = 288;

enum class ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
constexpr uint32_t kNumValueTypes = 13;

/// Bytes of a value in the file; for strings and arrays the least they can take.
uint64_t min_bytes(ValueType type) {
  constexpr uint8_t kBytes[kNumValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return kBytes[static_cast<uint32_t>(type)];
}

/// Text from a file, fit for an error message: valid UTF-8 and short.
std::string shown(std::string_view text) {
  constexpr size_t kLimit = 80;
  std::string out = utf8::replace_invalid(text.substr(0, utf8::complete_prefix(text.substr(0, kLimit))));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  return text.size() > kLimit ? out + "..." : out;
}

/// Reads forward through the file, never past its end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string origin)
      : bytes_(bytes),
        origin_(std::move(origin)),
        budget_(2 * static_cast<uint64_t>(bytes.size()) + (16u << 20)) {}

  const std::string& origin() const { return origin_; }
  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  T read(const char* what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::string_view read_string(const char* what) {
    const auto length = read<uint64_t>(what);
    require(length <= remaining(), ErrorCode::kInvalidFile,
            "{}: {} at byte {} has a length of {} bytes, but only {} bytes of the file are left", origin_,
            what, position_ - 8, length, remaining());
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
    position_ += length;
    return text;
  }

  ValueType read_value_type(std::string_view key) {
    const auto type = read<uint32_t>("the type of a metadata value");
    require(type < kNumValueTypes, ErrorCode::kInvalidFile,
            "{}: metadata key '{}' has value type {}: expected 0 to {}", origin_, shown(key), type,
            kNumValueTypes - 1);
    return static_cast<ValueType>(type);
  }

  /// A count of things that take at least `least` bytes each, checked against what is left.
  uint64_t read_count(uint64_t least, const char* what) {
    const auto count = read<uint64_t>(what);
    const auto bytes = checked_mul(count, least);
    require(bytes && *bytes <= remaining(), ErrorCode::kInvalidFile,
            "{}: {} at byte {} is {}, more than the {} bytes left in the file can hold", origin_, what,
            position_ - 8, count, remaining());
    return count;
  }

  /// Counts memory that is about to be allocated.
  void spend(uint64_t bytes) {
    require(
        bytes <= budget_, ErrorCode::kLimitExceeded,
        "{}: reading the header would take more memory than twice the file: expected metadata with payload",
        origin_);
    budget_ -= bytes;
  }

 private:
  void need(uint64_t bytes, const char* what) const {
    require(bytes <= remaining(), ErrorCode::kInvalidFile,
            "{}: the file ends at byte {} inside {}: expected {} more bytes", origin_, bytes_.size(), what,
            bytes);
  }

  std::span<const std::byte> bytes_;
  std::string origin_;
  uint64_t position_ = 0;
  uint64_t budget_;
};

template <typename T>
Value scalar(Cursor& in, const char* what) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<double>(in.read<T>(what));
  else if constexpr (std::is_signed_v<T>)
    return static_cast<int64_t>(in.read<T>(what));
  else
    return static_cast<uint64_t>(in.read<T>(what));
}

Value read_bool(Cursor& in, std::string_view key) {
  const auto byte = in.read<uint8_t>("a boolean");
  if (byte > 1)
    fail(ErrorCode::kInvalidFile, "{}: metadata key '{}' holds a boolean of {}: expected 0 or 1", in.origin(),
         shown(key), byte);
  return byte != 0;
}

Value read_scalar(Cursor& in, ValueType type, std::string_view key) {
  switch (type) {
    case ValueType::kUint8:
      return scalar<uint8_t>(in, "a number");
    case ValueType::kInt8:
      return scalar<int8_t>(in, "a number");
    case ValueType::kUint16:
      return scalar<uint16_t>(in, "a number");
    case ValueType::kInt16:
      return scalar<int16_t>(in, "a number");
    case ValueType::kUint32:
      return scalar<uint32_t>(in, "a number");
    case ValueType::kInt32:
      return scalar<int32_t>(in, "a number");
    case ValueType::kUint64:
      return scalar<uint64_t>(in, "a number");
    case ValueType::kInt64:
      return scalar<int64_t>(in, "a number");
    case ValueType::kFloat32:
      return scalar<float>(in, "a number");
    case ValueType::kFloat64:
      return scalar<double>(in, "a number");
    case ValueType::kBool:
      return read_bool(in, key);
    case ValueType::kString: {
      const std::string_view text = in.read_string("a metadata string");
      in.spend(text.size());
      return std::string(text);
    }
    case ValueType::kArray:
      break;
  }
  fail(ErrorCode::kInternal, "an array is no scalar");
}

/// Elements of one array, nested ones joined in order.
class ArrayBuilder {
 public:
  ArrayBuilder(Cursor& in, std::string_view key) : in_(in), key_(key) {}

  void read(int depth) {
    require(depth < kMaxArrayDepth, ErrorCode::kInvalidFile,
            "{}: metadata key '{}' nests arrays deeper than {}: expected at most that", in_.origin(),
            shown(key_), kMaxArrayDepth);
    const ValueType type = in_.read_value_type(key_);
    const uint64_t count = in_.read_count(min_bytes(type), "an array's length");
    if (type == ValueType::kArray) {
      for (uint64_t i = 0; i < count; ++i) read(depth + 1);
      return;
    }
    if (!typed_) {
      list_ = empty_list(type);
      typed_ = true;
    }
    require(list_.index() == empty_list(type).index(), ErrorCode::kUnsupported,
            "{}: metadata key '{}' nests arrays of different types: expected one type", in_.origin(),
            shown(key_));
    std::visit([&](auto& list) { append(list, type, count); }, list_);
  }

  Value take() { return std::move(list_); }

 private:
  static Value empty_list(ValueType type) {
    switch (type) {
      case ValueType::kFloat32:
      case ValueType::kFloat64:
        return std::vector<double>();
      case ValueType::kBool:
        return std::vector<bool>();
      case ValueType::kString:
        return std::vector<std::string>();
      case ValueType::kInt8:
      case ValueType::kInt16:
      case ValueType::kInt32:
      case ValueType::kInt64:
        return std::vector<int64_t>();
      default:
        return std::vector<uint64_t>();
    }
  }

  template <typename List>
  void append(List& list, ValueType type, uint64_t count) {
    if constexpr (requires { typename List::value_type; }) {
      using T = typename List::value_type;
      if constexpr (std::is_same_v<List, std::string>) {
        fail(ErrorCode::kInternal, "a string is no array");
      } else {
        // Exact reservations: growth by doubling would hold old and new at once. Parts of nested arrays,
        // which are small, may double.
        const uint64_t total = list.size() + count;
        if (total > list.capacity()) {
          const uint64_t capacity = list.empty() ? total : std::max<uint64_t>(total, 2 * list.capacity());
          in_.spend(std::is_same_v<T, bool> ? capacity / 8 + 8 : capacity * sizeof(T));
          list.reserve(capacity);
        }
        for (uint64_t i = 0; i < count; ++i) {
          if constexpr (std::is_same_v<T, std::string>) {
            const std::string_view text = in_.read_string("a string of an array");
            if (text.size() > kInlineString) in_.spend(text.size() + 1);
            list.emplace_back(text);
          } else {
            list.push_back(std::get<T>(read_scalar(in_, type, key_)));
          }
        }
      }
    } else {
      fail(ErrorCode::kInternal, "a scalar is no array");
    }
  }

  static constexpr size_t kInlineString = 15;  // what std::string holds without allocating

  Cursor& in_;
  std::string_view key_;
  Value list_ = std::vector<uint64_t>();
  bool typed_ = false;
};

struct Header {
  uint64_t num_tensors = 0;
  uint64_t num_key_values = 0;
};

Header read_header(Cursor& in) {
  const auto magic = in.read<uint32_t>("the magic number");
  require(magic == kMagic, ErrorCode::kInvalidFile,
          "{}: not a GGUF file: it begins with bytes {:02x} {:02x} {:02x} {:02x}, expected \"GGUF\"",
          in.origin(), magic & 255, magic >> 8 & 255, magic >> 16 & 255, magic >> 24);
  const auto version = in.read<uint32_t>("the version");
  require((version & 0xffff) != 0 || version == 0, ErrorCode::kUnsupported,
          "{}: the file is big-endian: expected a little-endian GGUF file", in.origin());
  require(version == 2 || version == 3, ErrorCode::kUnsupported, "{}: GGUF version {}: expected 2 or 3",
          in.origin(), version);
  Header header;
  header.num_tensors = in.read<uint64_t>("the number of tensors");
  header.num_key_values = in.read<uint64_t>("the number of metadata entries");
  const auto tensor_bytes = checked_mul(header.num_tensors, kMinTensorInfoBytes);
  const auto value_bytes = checked_mul(header.num_key_values, kMinKeyValueBytes);
  const auto sum = tensor_bytes && value_bytes ? checked_add(*tensor_bytes, *value_bytes) : std::nullopt;
  require(sum && *sum <= in.remaining(), ErrorCode::kInvalidFile,
          "{}: the header announces {} tensors and {} metadata entries, more than the file's {} further "
          "bytes can hold",
          in.origin(), header.num_tensors, header.num_key_values, in.remaining());
  return header;
}

void read_metadata(Cursor& in, uint64_t count, Metadata& metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key = in.read_string("a metadata key");
    require(!key.empty() && key.size() <= kMaxKeyBytes, ErrorCode::kInvalidFile,
            "{}: metadata key number {} has {} bytes: expected 1 to {}", in.origin(), i, key.size(),
            kMaxKeyBytes);
    in.spend(key.size() + kKeyValueOverhead);
    const ValueType type = in.read_value_type(key);
    require(!metadata.has(key), ErrorCode::kInvalidFile,
            "{}: metadata key '{}' appears twice: expected it once", in.origin(), shown(key));
    if (type == ValueType::kArray) {
      ArrayBuilder array(in, key);
      array.read(0);
      metadata.set(std::string(key), array.take());
    } else {
      metadata.set(std::string(key), read_scalar(in, type, key));
    }
  }
}

uint64_t read_alignment(const Metadata& metadata) {
  const auto alignment = metadata.find_int("general.alignment");
  if (!alignment) return kDefaultAlignment;
  require(*alignment >= 8 && *alignment <= (int64_t{1} << 30) &&
              std::has_single_bit(static_cast<uint64_t>(*alignment)),
          ErrorCode::kInvalidFile, "{}: general.alignment is {}: expected a power of two from 8 to 2^30",
          metadata.origin(), *alignment);
  return static_cast<uint64_t>(*alignment);
}

/// Name, shape, type, size; `offset` gets where the data begins in the data section.
TensorEntry read_tensor_info(Cursor& in, uint64_t& offset) {
  TensorEntry tensor;
  const std::string_view name = in.read_string("a tensor's name");
  require(!name.empty() && name.size() <= kMaxKeyBytes, ErrorCode::kInvalidFile,
          "{}: a tensor's name at byte {} has {} bytes: expected 1 to {}", in.origin(),
          in.position() - name.size(), name.size(), kMaxKeyBytes);
  in.spend(2 * name.size() + kTensorOverhead);
  tensor.name = name;
  const auto ndim = in.read<uint32_t>("a tensor's number of dimensions");
  require(ndim >= 1 && ndim <= kMaxDims, ErrorCode::kInvalidFile,
          "{}: tensor '{}' has {} dimensions: expected 1 to {}", in.origin(), shown(name), ndim, kMaxDims);
  tensor.shape.ndim = static_cast<int>(ndim);
  uint64_t elements = 1, row = 1;
  for (uint32_t i = 0; i < ndim; ++i) {
    const auto size = in.read<uint64_t>("a tensor's dimension");
    const auto product = checked_mul(elements, size);
    require(size > 0 && product && *product <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
            ErrorCode::kInvalidFile,
            "{}: tensor '{}' has dimension {} of size {}: expected a product from 1 to 2^63 - 1", in.origin(),
            shown(name), i, size);
    elements = *product;
    if (i == 0) row = size;
    tensor.shape.dims[ndim - 1 - i] = static_cast<int64_t>(size);
  }
  const auto id = in.read<uint32_t>("a tensor's type");
  const auto type = dtype_from_ggml(id);
  require(type.has_value(), ErrorCode::kUnsupported,
          "{}: tensor '{}' has storage type number {}: expected one of GGUF's types that are in use",
          in.origin(), shown(name), id);
  tensor.dtype = *type;
  const auto row_size = quant::row_bytes(*type, row);
  const auto bytes = row_size ? checked_mul(*row_size, elements / row) : std::nullopt;
  require(
      bytes.has_value(), ErrorCode::kInvalidFile,
      "{}: tensor '{}' of type {} has rows of {} elements: expected a multiple of {} and a size below 2^64",
      in.origin(), shown(name), dtype_name(*type), row, quant::traits(*type).block_elements);
  tensor.bytes = *bytes;
  offset = in.read<uint64_t>("a tensor's offset");
  return tensor;
}

/// Points each tensor at its data and checks that none reaches beyond the file or into another.
void place_tensors(const Cursor& in, const std::shared_ptr<MappedFile>& file, uint64_t alignment,
                   std::vector<TensorEntry>& tensors, size_t first, const std::vector<uint64_t>& offsets) {
  const uint64_t size = file->bytes().size();
  const uint64_t data_start = (in.position() + alignment - 1) / alignment * alignment;
  for (size_t i = 0; i < offsets.size(); ++i) {
    TensorEntry& tensor = tensors[first + i];
    require(offsets[i] % alignment == 0, ErrorCode::kInvalidFile,
            "{}: tensor '{}' has offset {}: expected a multiple of the alignment {}", in.origin(),
            shown(tensor.name), offsets[i], alignment);
    const auto begin = checked_add(data_start, offsets[i]);
    const auto end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
    require(end && *end <= size, ErrorCode::kInvalidFile,
            "{}: tensor '{}' of {} bytes at offset {} reaches beyond the file's end at byte {}: is the file "
            "complete?",
            in.origin(), shown(tensor.name), tensor.bytes, offsets[i], size);
    tensor.data = file->bytes().data() + *begin;
    tensor.file = file;
  }
  std::vector<const TensorEntry*> order;
  order.reserve(offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) order.push_back(&tensors[first + i]);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->data < b->data; });
  for (size_t i = 1; i < order.size(); ++i)
    require(order[i - 1]->data + order[i - 1]->bytes <= order[i]->data, ErrorCode::kInvalidFile,
            "{}: tensors '{}' and '{}' overlap: expected each to have bytes of its own", in.origin(),
            shown(order[i - 1]->name), shown(order[i]->name));
}

/// Reads one file; appends its tensors and returns its metadata.
Metadata read_part(const std::filesystem::path& path, std::vector<TensorEntry>& tensors) {
  const std::shared_ptr<MappedFile> file = MappedFile::open(path);
  Cursor in(file->bytes(), path.string());
  const Header header = read_header(in);
  Metadata metadata(path.string());
  read_metadata(in, header.num_key_values, metadata);
  const uint64_t alignment = read_alignment(metadata);
  const size_t first = tensors.size();
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < header.num_tensors; ++i) {
    uint64_t offset;
    tensors.push_back(read_tensor_info(in, offset));
    offsets.push_back(offset);
  }
  place_tensors(in, file, alignment, tensors, first, offsets);
  return metadata;
}

/// Path of part `number` (from 1) of the split that `path` belongs to; the name ends in
/// "-00001-of-00003.gguf".
std::filesystem::path part_path(const std::filesystem::path& path, int64_t number, int64_t count) {
  const std::string name = path.filename().string();
  const auto digits = [&](size_t at) {
    return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(at),
                       name.begin() + static_cast<std::ptrdiff_t>(at + 5),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  constexpr size_t kTail = sizeof("-00001-of-00001.gguf") - 1;
  const size_t stem = name.size() >= kTail ? name.size() - kTail : std::string::npos;
  require(
      stem != std::string::npos && name[stem] == '-' && digits(stem + 1) &&
          name.substr(stem + 6, 4) == "-of-" && digits(stem + 10) && name.substr(stem + 15) == ".gguf",
      ErrorCode::kInvalidFile,
      "{}: the file is a part of a split of {} files: expected a name that ends like -00001-of-{:05}.gguf",
      path.string(), count, count);
  return path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name.substr(0, stem), number, count);
}

void check_part(const Metadata& metadata, int64_t number, int64_t count) {
  const auto its_count = metadata.find_int("split.count"), its_number = metadata.find_int("split.no");
  require(its_count && *its_count == count && its_number && *its_number == number - 1,
          ErrorCode::kInvalidFile, "{}: the file says it is part {} of {}: expected part {} of {}",
          metadata.origin(), its_number.value_or(-1) + 1, its_count.value_or(0), number, count);
}

}  // namespace

Checkpoint open_gguf(const std::filesystem::path& path) {
  Checkpoint checkpoint;
  checkpoint.format = Format::kGguf;
  checkpoint.path = path;
  checkpoint.metadata = read_part(path, checkpoint.tensors);
  const int64_t count = checkpoint.metadata.find_int("split.count").value_or(0);
  if (count > 1) {
    require(count <= 99999, ErrorCode::kInvalidFile, "{}: split.count is {}: expected at most 99999",
            path.string(), count);
    // Whichever part was named, all are read in order: the first one holds the model's metadata.
    checkpoint.tensors.clear();
    for (int64_t number = 1; number <= count; ++number) {
      Metadata metadata = read_part(part_path(path, number, count), checkpoint.tensors);
      check_part(metadata, number, count);
      if (number == 1) checkpoint.metadata = std::move(metadata);
    }
    const auto total = checkpoint.metadata.find_int("split.tensors.count");
    require(!total || *total == static_cast<int64_t>(checkpoint.tensors.size()), ErrorCode::kInvalidFile,
            "{}: the parts hold {} tensors: expected {} as split.tensors.count says", path.string(),
            checkpoint.tensors.size(), total.value_or(0));
  }
  checkpoint.build_index();
  return checkpoint;
}

}  // namespace millrace::loaders
