// The prefix cache on disk, so that it survives a restart. One file: a header that says for which model and
// which arrangement of the cache it holds, then one record for each node of the cache, parents before
// children and the lately used before those unused for long.
//
//   header  "MRPC", version, identity, the hash's key, number of records, checksum
//   record  hash, parent's hash, groups present (bits; bit 31: no parent), tokens, the groups' blocks,
//   checksum
//
// Everything read is checked before it is believed: a record is used when its checksum holds, its hash
// follows from its parent's and its tokens, and its parent is in the cache. What a file holds of other
// people's prompts is as secret as the prompts: it is made readable for its owner alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <vector>

#include "engine/kv/block_manager.h"

namespace millrace::engine {

/// What must be equal for a file's blocks to be of use.
struct CacheIdentity {
  uint64_t model = 0;  ///< fingerprint of the model and of how its cache looks inside
  uint32_t kv_type = 0;
  uint32_t block_size = 0;
  std::vector<GroupShape> shapes;
  std::vector<int64_t> block_bytes;  ///< [group]
};

using ReadBlock = std::function<void(int group, int32_t block, std::byte* out)>;
using WriteBlock = std::function<void(int group, int32_t block, const std::byte* in)>;

struct CacheFileSize {
  int64_t nodes = 0;
  uint64_t bytes = 0;
};

/// Writes what the prefix cache holds, at most `max_bytes`, to a new file that then replaces `path`.
/// Error(kIo).
CacheFileSize save_prefix_cache(const std::filesystem::path& path, const CacheIdentity& identity,
                                const SipKey& key, const BlockManager& blocks, const ReadBlock& read,
                                uint64_t max_bytes);

class CacheFileReader {
 public:
  /// Reads the header. None when there is no file; Error(kInvalidFile, kUnsupported, kIo) with what is wrong
  /// or differs.
  static std::optional<CacheFileReader> open(const std::filesystem::path& path,
                                             const CacheIdentity& identity);

  /// The key under which the hashes were made: the block manager must have the same.
  const SipKey& key() const { return key_; }

  /// Puts one record back. False at the end: of the file, of the free blocks, or where the file is broken
  /// (then broken() says how). The order of use is then as it was.
  bool next(BlockManager& blocks, const WriteBlock& write);
  const std::string& broken() const { return broken_; }
  const CacheFileSize& restored() const { return restored_; }

 private:
  bool read_record();
  bool end(BlockManager& blocks, std::string broken);

  CacheIdentity identity_;
  std::ifstream file_;
  SipKey key_;
  uint64_t records_left_ = 0;
  std::vector<std::byte> record_;
  std::vector<std::pair<int32_t, int32_t>> order_;  // (group, block) as restored
  std::string broken_;
  CacheFileSize restored_;
};

}  // namespace millrace::engine
