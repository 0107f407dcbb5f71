#include "layers/kv_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace millrace::layers {
namespace {

// Blocks of 16 tokens, two heads of 64: 8 KiB a layer in BF16.
constexpr int kLayers = 6;
constexpr int64_t kBlockBytes = int64_t{16} * 2 * 2 * 64 * 2;

KvCache make_cache(int64_t blocks) {
  const std::vector<CacheSpec> specs(kLayers, CacheSpec::full(2, 64, 64));
  return KvCache(make_cache_layout(specs, 16, KvType::kBF16), {blocks});
}

// A step takes blocks of all layers with the same ids: no two may come to a new huge page with the same one.
TEST(KvCache, LayersOfALargeCacheEnterHugePagesApart) {
  KvCache cache = make_cache(int64_t{16 << 20} / kBlockBytes);
  EXPECT_EQ(cache.total_bytes(), uint64_t{kLayers} * (16 << 20));
  std::set<uintptr_t> places;
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(cache.layer_block_bytes(layer), kBlockBytes);
    const auto at = reinterpret_cast<uintptr_t>(cache.layer_data(layer)) % kHugePage;
    EXPECT_EQ(at % 4096, 0u);
    for (const uintptr_t other : places)
      EXPECT_GE(at > other ? at - other : other - at, kHugePage / kLayers / 2);
    places.insert(at);
  }
}

TEST(KvCache, SmallOnesWasteNothing) {
  KvCache cache = make_cache(int64_t{4 << 20} / kBlockBytes);
  for (int layer = 0; layer < kLayers; ++layer)
    EXPECT_EQ(reinterpret_cast<uintptr_t>(cache.layer_data(layer)) % kHugePage, 0u);
}

TEST(KvCache, BlocksAreReadAsTheyWereWritten) {
  const int64_t blocks = int64_t{16 << 20} / kBlockBytes;
  KvCache cache = make_cache(blocks);
  const auto bytes = static_cast<size_t>(kLayers * kBlockBytes);
  std::vector<std::byte> first(bytes), last(bytes), read(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    first[i] = static_cast<std::byte>(i * 7 >> 3);
    last[i] = static_cast<std::byte>(i * 11 >> 4);
  }
  const auto end = static_cast<int32_t>(blocks - 1);
  cache.write_block(0, 0, first.data());
  cache.write_block(0, end, last.data());
  cache.read_block(0, 0, read.data());
  EXPECT_EQ(read, first);
  cache.read_block(0, end, read.data());
  EXPECT_EQ(read, last);
  cache.copy_block(0, end, 0);
  cache.read_block(0, 0, read.data());
  EXPECT_EQ(read, last);
  cache.zero_block(0, end);
  cache.read_block(0, end, read.data());
  EXPECT_EQ(read, std::vector<std::byte>(bytes));
}

/// Pages of [begin, begin + bytes) that are in memory.
int64_t pages_in_memory(const std::byte* begin, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page * page;
  std::vector<unsigned char> resident((reinterpret_cast<uintptr_t>(begin) + bytes - first + page - 1) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(first), resident.size() * page, resident.data()), 0);
  return std::count_if(resident.begin(), resident.end(), [](unsigned char r) { return r & 1; });
}

TEST(KvCache, MemoryComesAPieceAtATimeAndKeepsWhatIsThere) {
  const int64_t blocks = int64_t{16 << 20} / kBlockBytes, some = blocks / 2;
  KvCache cache = make_cache(blocks);
  const auto bytes = static_cast<size_t>(kLayers * kBlockBytes);
  std::vector<std::byte> block(bytes), read(bytes);
  for (size_t i = 0; i < bytes; ++i) block[i] = static_cast<std::byte>(i * 13 >> 2);
  cache.write_block(0, 3, block.data());
  if (!AlignedBuffer(kHugePage).populate(0, kHugePage))
    GTEST_SKIP() << "this system has no MADV_POPULATE_WRITE";
  int pieces = 0;
  while (cache.populate_some(0, some)) ++pieces;
  EXPECT_GE(pieces, kLayers * 4);
  EXPECT_LE(pieces, kLayers * 5);
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  for (int layer = 0; layer < kLayers; ++layer) {
    const int64_t wanted = some * kBlockBytes;
    EXPECT_GE(pages_in_memory(cache.layer_data(layer), static_cast<size_t>(wanted)), wanted / page);
  }
  EXPECT_FALSE(cache.populate_some(0, some / 2));
  cache.read_block(0, 3, read.data());
  EXPECT_EQ(read, block);
  while (cache.populate_some(0, 2 * blocks)) ++pieces;  // clipped to what there is
  EXPECT_LE(pieces, kLayers * 9);
}

}  // namespace
}  // namespace millrace::layers
