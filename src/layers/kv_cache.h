// The physical cache: for each layer an array of blocks. Block ids come from the engine's block manager; how
// a block looks inside is the attention kernels' business (ops/attention.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"
#include "layers/cache_spec.h"

namespace millrace::layers {

class KvCache {
 public:
  /// blocks_per_group[g] blocks (or state slots) for each group of the layout. Memory is reserved, and
  /// touched on use.
  KvCache(CacheLayout layout, std::vector<int64_t> blocks_per_group);

  const CacheLayout& layout() const { return layout_; }
  int64_t num_blocks(int group) const { return blocks_per_group_[static_cast<size_t>(group)]; }

  /// First block of a layer's array; blocks are layer_block_bytes(layer) apart. kShares layers give their
  /// owner's.
  std::byte* layer_data(int layer);
  int64_t layer_block_bytes(int layer) const;

  /// Copy-on-write and checkpoints: copies one block of every layer in the group.
  void copy_block(int group, int32_t from, int32_t to);
  /// Swap: all layers' bytes of one block to or from contiguous memory of layout().block_bytes(group).
  void read_block(int group, int32_t block, std::byte* out) const;
  void write_block(int group, int32_t block, const std::byte* in);
  /// A fresh sequence's recurrent state.
  void zero_block(int group, int32_t block);

  uint64_t total_bytes() const;

  /// Brings a piece of the memory of the group's blocks below `blocks` into memory, which would be cleared by
  /// the system on first use: at most a huge page, a fraction of a millisecond's work or a few where the
  /// system itself must first get it. False when there is no more to do.
  bool populate_some(int group, int64_t blocks);

 private:
  CacheLayout layout_;
  std::vector<int64_t> blocks_per_group_;
  std::vector<int64_t> block_bytes_of_layer_;
  struct LayerData {
    AlignedBuffer memory;
    size_t begin = 0;      ///< of the first block in it
    size_t populated = 0;  ///< bytes of `memory` that populate_some() has seen to

    std::byte* data() { return memory.data() + begin; }
    const std::byte* data() const { return memory.data() + begin; }
    size_t size() const { return memory.size() - begin; }
  };
  std::vector<LayerData> data_of_layer_;
};

}  // namespace millrace::layers
