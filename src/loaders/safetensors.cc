#include "loaders/safetensors.h"

#include <cstring>
#include <map>
#include <optional>

#include "core/checked.h"
#include "core/error.h"
#include "loaders/json_metadata.h"
#include "quant/traits.h"

namespace millrace::loaders {
namespace {

std::optional<DType> dtype_of(const std::string& name) {
  static const std::map<std::string, DType> types = {
      {"F64", DType::kF64},       {"F32", DType::kF32},         {"F16", DType::kF16},       {"BF16", DType::kBF16},
      {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2}, {"I64", DType::kI64},       {"I32", DType::kI32},
      {"I16", DType::kI16},       {"I8", DType::kI8},           {"U8", DType::kI8},         {"BOOL", DType::kI8}};
  const auto at = types.find(name);
  return at == types.end() ? std::nullopt : std::optional(at->second);
}

uint64_t element_bytes(DType type) {
  switch (type) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kI32: return 4;
    case DType::kI16: return 2;
    case DType::kI8: return 1;
    default: return static_cast<uint64_t>(quant::traits(type).block_bytes);
  }
}

/// One tensor of the header, from the flattened keys NAME.dtype, NAME.shape, NAME.data_offsets.
TensorEntry read_entry(const Metadata& header, const std::string& name, const std::shared_ptr<MappedFile>& file,
                       uint64_t data_begin) {
  const std::string where = fmt::format("{}: tensor '{}'", file->path().string(), name);
  const std::string* type_name = header.find_string(name + ".dtype");
  require(type_name, ErrorCode::kInvalidFile, "{} has no dtype", where);
  const auto type = dtype_of(*type_name);
  require(type.has_value(), ErrorCode::kUnsupported, "{} has dtype '{}': expected F32, F16, BF16, F8_E4M3, F8_E5M2 or an integer",
          where, *type_name);
  TensorEntry entry;
  entry.name = name;
  entry.dtype = *type;
  entry.file = file;
  const auto shape = header.find_ints(name + ".shape").value_or(std::vector<int64_t>{});
  std::optional<uint64_t> bytes = element_bytes(*type);
  // Beyond four dimensions the outer ones are joined: nothing here looks at them one by one.
  const size_t joined = shape.size() > kMaxDims ? shape.size() - kMaxDims + 1 : 0;
  int64_t outer = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    require(shape[i] >= 0, ErrorCode::kInvalidFile, "{} has a negative dimension {}", where, shape[i]);
    bytes = bytes ? checked_mul(*bytes, static_cast<uint64_t>(shape[i])) : bytes;
    require(bytes.has_value(), ErrorCode::kInvalidFile, "{} has a shape whose size overflows", where);
    outer *= shape[i];
    if (i + 1 < joined) continue;
    entry.shape.dims[entry.shape.ndim++] = outer;
    outer = 1;
  }
  const auto offsets = header.find_ints(name + ".data_offsets");
  require(offsets && offsets->size() == 2 && (*offsets)[0] >= 0 && (*offsets)[0] <= (*offsets)[1], ErrorCode::kInvalidFile,
          "{} has malformed data_offsets: expected [begin, end]", where);
  const auto begin = static_cast<uint64_t>((*offsets)[0]), end = static_cast<uint64_t>((*offsets)[1]);
  const uint64_t available = file->bytes().size() - data_begin;
  require(end <= available, ErrorCode::kInvalidFile, "{} ends at byte {} of the data: the file has {}", where, end, available);
  require(end - begin == *bytes, ErrorCode::kInvalidFile, "{} has {} bytes: its shape and dtype make {}", where, end - begin,
          *bytes);
  entry.data = file->bytes().data() + data_begin + begin;
  entry.bytes = *bytes;
  return entry;
}

}  // namespace

void read_safetensors(const std::filesystem::path& path, std::vector<TensorEntry>& out) {
  const auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  require(bytes.size() >= 8, ErrorCode::kInvalidFile, "{}: {} bytes are too short for a safetensors file", path.string(),
          bytes.size());
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), 8);
  require(header_bytes <= bytes.size() - 8, ErrorCode::kInvalidFile,
          "{}: the header is said to have {} bytes: the file has {} after the length", path.string(), header_bytes,
          bytes.size() - 8);
  Metadata header(path.string());
  add_json(header, {reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes}, path);
  const uint64_t data_begin = 8 + header_bytes;
  const size_t first = out.size();
  constexpr std::string_view kSuffix = ".data_offsets";
  for (const auto& [key, value] : header.entries()) {
    if (key.size() <= kSuffix.size() || key.compare(key.size() - kSuffix.size(), kSuffix.size(), kSuffix) != 0) continue;
    out.push_back(read_entry(header, key.substr(0, key.size() - kSuffix.size()), file, data_begin));
  }
  // Ranges in file order must follow each other without overlap.
  std::sort(out.begin() + static_cast<ptrdiff_t>(first), out.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.data != b.data ? a.data < b.data : a.bytes < b.bytes; });
  const std::byte* at = bytes.data() + data_begin;
  for (size_t i = first; i < out.size(); ++i) {
    require(out[i].data >= at, ErrorCode::kInvalidFile, "{}: tensor '{}' overlaps the one before it", path.string(),
            out[i].name);
    require(out[i].data == at, ErrorCode::kInvalidFile, "{}: {} bytes before tensor '{}' belong to none", path.string(),
            out[i].data - at, out[i].name);
    at = out[i].data + out[i].bytes;
  }
}

}  // namespace millrace::loaders
