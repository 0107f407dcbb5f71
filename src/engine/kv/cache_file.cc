#include "engine/kv/cache_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace millrace::engine {
namespace {

constexpr uint32_t kMagic = 0x4350524d;  // "MRPC"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kNoParent = 1u << 31;
constexpr SipKey kHeaderKey{0x6d696c6c72616365, 0x70726566697863};

/// Appends plain values to bytes. The file is read on the kind of machine that wrote it: the cache's blocks
/// are in its order anyway.
class Bytes {
 public:
  template <typename T>
  void add(const T& value) {
    append(&value, sizeof(T));
  }
  void append(const void* data, size_t size) {
    const auto* p = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), p, p + size);
  }
  std::vector<std::byte> bytes;
};

template <typename T>
T value_at(const std::vector<std::byte>& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

Bytes header_bytes(const CacheIdentity& identity) {
  Bytes b;
  b.add(kMagic);
  b.add(kVersion);
  b.add(identity.model);
  b.add(identity.kv_type);
  b.add(identity.block_size);
  b.add(static_cast<uint32_t>(identity.shapes.size()));
  for (size_t g = 0; g < identity.shapes.size(); ++g) {
    b.add(static_cast<uint32_t>(identity.shapes[g].kind));
    b.add(identity.shapes[g].window);
    b.add(identity.block_bytes[g]);
  }
  return b;
}

constexpr size_t kRecordHead = 8 + 8 + 4;

/// A file that exists under its name only when it is whole.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path) : path_(path), temporary_(path.string() + ".new") {
    file_ = ::open(temporary_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (file_ < 0) failed("create");
  }
  ~NewFile() {
    if (file_ < 0) return;
    ::close(file_);
    ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const std::vector<std::byte>& bytes, std::optional<off_t> at = std::nullopt) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n =
          at ? ::pwrite(file_, bytes.data() + done, bytes.size() - done, *at + static_cast<off_t>(done))
             : ::write(file_, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) failed("write");
      done += static_cast<size_t>(n);
    }
  }
  void finish() {
    if (::fsync(file_) != 0) failed("write");
    ::close(file_);
    file_ = -1;
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) failed("rename");
  }

 private:
  [[noreturn]] void failed(const char* what) {
    fail(ErrorCode::kIo, "cannot {} {}: {}", what, temporary_, std::strerror(errno));
  }
  std::filesystem::path path_;
  std::string temporary_;
  int file_ = -1;
};

}  // namespace

CacheFileSize save_prefix_cache(const std::filesystem::path& path, const CacheIdentity& identity,
                                const SipKey& key, const BlockManager& blocks, const ReadBlock& read,
                                uint64_t max_bytes) {
  NewFile file(path);
  const auto header = [&](uint64_t records) {
    Bytes b = header_bytes(identity);
    b.add(key.k0);
    b.add(key.k1);
    b.add(records);
    b.add(siphash(kHeaderKey, b.bytes.data(), b.bytes.size()));
    return std::move(b.bytes);
  };
  CacheFileSize size;
  size.bytes = header(0).size();
  file.write(header(0));
  std::vector<std::byte> block;
  blocks.visit(
      [&](uint64_t parent, uint64_t hash, std::span<const TokenId> tokens, std::span<const int32_t> held) {
        Bytes record;
        uint32_t groups = parent == 0 ? kNoParent : 0;
        for (size_t g = 0; g < held.size(); ++g)
          if (held[g] >= 0) groups |= 1u << g;
        record.add(hash);
        record.add(parent);
        record.add(groups);
        record.append(tokens.data(), tokens.size_bytes());
        for (size_t g = 0; g < held.size(); ++g) {
          if (held[g] < 0) continue;
          block.resize(static_cast<size_t>(identity.block_bytes[g]));
          read(static_cast<int>(g), held[g], block.data());
          record.append(block.data(), block.size());
        }
        record.add(siphash(key, record.bytes.data(), record.bytes.size()));
        if (size.bytes + record.bytes.size() > max_bytes) return false;
        file.write(record.bytes);
        size.bytes += record.bytes.size();
        ++size.nodes;
        return true;
      });
  file.write(header(static_cast<uint64_t>(size.nodes)), 0);
  file.finish();
  return size;
}

std::optional<CacheFileReader> CacheFileReader::open(const std::filesystem::path& path,
                                                     const CacheIdentity& identity) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  require(std::filesystem::is_regular_file(path, error), ErrorCode::kInvalidFile, "{} is no regular file",
          path.string());
  std::optional<CacheFileReader> reader(std::in_place);
  reader->identity_ = identity;
  reader->file_.open(path, std::ios::binary);
  require(reader->file_.good(), ErrorCode::kIo, "cannot read {}", path.string());
  const Bytes expected = header_bytes(identity);
  std::vector<std::byte> header(expected.bytes.size() + 4 * sizeof(uint64_t));
  reader->file_.read(reinterpret_cast<char*>(header.data()), static_cast<std::streamsize>(header.size()));
  const auto got = static_cast<size_t>(reader->file_.gcount());
  require(got >= 8 && value_at<uint32_t>(header, 0) == kMagic, ErrorCode::kInvalidFile,
          "{} is no file of a prefix cache", path.string());
  const auto version = value_at<uint32_t>(header, 4);
  require(version == kVersion, ErrorCode::kUnsupported, "{} has version {}, but version {} is read here",
          path.string(), version, kVersion);
  require(got == header.size(), ErrorCode::kInvalidFile, "{} ends within its header", path.string());
  require(std::equal(expected.bytes.begin(), expected.bytes.end(), header.begin()), ErrorCode::kInvalidFile,
          "{} was written for another model, cache type or block size", path.string());
  const size_t end = expected.bytes.size();
  require(value_at<uint64_t>(header, end + 24) == siphash(kHeaderKey, header.data(), end + 24),
          ErrorCode::kInvalidFile, "the header of {} is damaged", path.string());
  reader->key_ = {value_at<uint64_t>(header, end), value_at<uint64_t>(header, end + 8)};
  reader->records_left_ = value_at<uint64_t>(header, end + 16);
  return reader;
}

/// The next record, whole and with the right checksum, into record_.
bool CacheFileReader::read_record() {
  const size_t tokens = identity_.block_size * sizeof(TokenId);
  const auto take = [&](size_t bytes) {
    const size_t before = record_.size();
    record_.resize(before + bytes);
    file_.read(reinterpret_cast<char*>(record_.data() + before), static_cast<std::streamsize>(bytes));
    return static_cast<size_t>(file_.gcount()) == bytes;
  };
  record_.clear();
  if (!take(kRecordHead + tokens)) return false;
  const auto groups = value_at<uint32_t>(record_, 16) & ~kNoParent;
  if (groups >> identity_.shapes.size() != 0) return false;
  size_t bytes = sizeof(uint64_t);
  for (size_t g = 0; g < identity_.shapes.size(); ++g)
    if (groups >> g & 1) bytes += static_cast<size_t>(identity_.block_bytes[g]);
  if (!take(bytes)) return false;
  const size_t end = record_.size() - sizeof(uint64_t);
  return value_at<uint64_t>(record_, end) == siphash(key_, record_.data(), end);
}

bool CacheFileReader::end(BlockManager& blocks, std::string broken) {
  broken_ = std::move(broken);
  records_left_ = 0;
  // Restored first were the lately used: from the last to the first, they are made the newest again.
  for (size_t i = order_.size(); i-- > 0;) blocks.touch(order_[i].first, order_[i].second);
  order_ = {};
  file_.close();
  return false;
}

bool CacheFileReader::next(BlockManager& blocks, const WriteBlock& write) {
  if (records_left_ == 0) return end(blocks, {});
  if (!read_record())
    return end(blocks, fmt::format("the record after {} good ones is damaged or cut off", restored_.nodes));
  --records_left_;
  const auto hash = value_at<uint64_t>(record_, 0);
  const auto groups = value_at<uint32_t>(record_, 16);
  const uint64_t parent = groups & kNoParent ? 0 : value_at<uint64_t>(record_, 8);
  std::vector<TokenId> tokens(identity_.block_size);
  std::memcpy(tokens.data(), record_.data() + kRecordHead, tokens.size() * sizeof(TokenId));
  if (!(groups & kNoParent) && (parent == 0 || blocks.chain_hash(parent, tokens) != hash))
    return end(blocks, fmt::format("the record after {} good ones is another's child", restored_.nodes));
  std::array<bool, kMaxGroups> present{};
  for (size_t g = 0; g < identity_.shapes.size(); ++g) present[g] = groups >> g & 1;
  std::vector<int32_t> ids;
  // Who finds no room, no parent or itself is left out; others may still fit.
  if (!blocks.restore(parent, hash, tokens, std::span(present).first(identity_.shapes.size()), ids))
    return true;
  const std::byte* data = record_.data() + kRecordHead + tokens.size() * sizeof(TokenId);
  for (size_t g = 0; g < identity_.shapes.size(); ++g) {
    if (!present[g]) continue;
    write(static_cast<int>(g), ids[g], data);
    data += identity_.block_bytes[g];
    order_.emplace_back(static_cast<int32_t>(g), ids[g]);
  }
  ++restored_.nodes;
  restored_.bytes += record_.size();
  return true;
}

}  // namespace millrace::engine
