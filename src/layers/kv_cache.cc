#include "layers/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "core/error.h"

namespace millrace::layers {
namespace {

/// Where the first block of layer `index` of `layers` lies in its memory. Blocks with low ids are used first,
/// so all layers would come to their next huge page in one step, and the system clears those on first use:
/// for 16 layers of 2 KiB a token a step of 18 ms took 105 every thousand tokens. So each layer begins at
/// another place of its first huge page; caches of which that page would be more than an eighth do not.
size_t first_block_at(size_t bytes, size_t index, size_t layers) {
  if (bytes < 8 * kHugePage) return 0;
  return kHugePage * index / layers / 4096 * 4096;
}

}  // namespace

KvCache::KvCache(CacheLayout layout, std::vector<int64_t> blocks_per_group)
    : layout_(std::move(layout)), blocks_per_group_(std::move(blocks_per_group)) {
  check(blocks_per_group_.size() == layout_.groups.size(), "{} block counts for {} cache groups",
        blocks_per_group_.size(), layout_.groups.size());
  const size_t num_layers = layout_.group_of_layer.size();
  block_bytes_of_layer_.assign(num_layers, 0);
  data_of_layer_.resize(num_layers);
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    const CacheGroup& group = layout_.groups[g];
    // Blocks start on cache lines, so that kernels may load whole vectors.
    const int64_t bytes =
        round_up(layers::layer_block_bytes(group.spec, layout_.block_size, layout_.kv_type), 64);
    const size_t all = static_cast<size_t>(bytes) * static_cast<size_t>(blocks_per_group_[g]);
    for (size_t i = 0; i < group.layers.size(); ++i) {
      const auto layer = static_cast<size_t>(group.layers[i]);
      const size_t begin = first_block_at(all, i, group.layers.size());
      block_bytes_of_layer_[layer] = bytes;
      data_of_layer_[layer] = {AlignedBuffer(begin + all), begin};
    }
  }
}

namespace {
/// The layer whose memory `layer` uses: itself, or the first of its group at its index when it shares.
int32_t owner_of(const CacheLayout& layout, int layer) {
  const int32_t group = layout.group_of_layer[static_cast<size_t>(layer)];
  return layout.groups[static_cast<size_t>(group)]
      .layers[static_cast<size_t>(layout.index_in_group[static_cast<size_t>(layer)])];
}
}  // namespace

std::byte* KvCache::layer_data(int layer) {
  return data_of_layer_[static_cast<size_t>(owner_of(layout_, layer))].data();
}

int64_t KvCache::layer_block_bytes(int layer) const {
  return block_bytes_of_layer_[static_cast<size_t>(owner_of(layout_, layer))];
}

void KvCache::copy_block(int group, int32_t from, int32_t to) {
  for (const int32_t layer : layout_.groups[static_cast<size_t>(group)].layers) {
    const auto bytes = static_cast<size_t>(block_bytes_of_layer_[static_cast<size_t>(layer)]);
    std::byte* base = data_of_layer_[static_cast<size_t>(layer)].data();
    std::memcpy(base + bytes * static_cast<size_t>(to), base + bytes * static_cast<size_t>(from), bytes);
  }
}

void KvCache::read_block(int group, int32_t block, std::byte* out) const {
  for (const int32_t layer : layout_.groups[static_cast<size_t>(group)].layers) {
    const auto bytes = static_cast<size_t>(block_bytes_of_layer_[static_cast<size_t>(layer)]);
    std::memcpy(out, data_of_layer_[static_cast<size_t>(layer)].data() + bytes * static_cast<size_t>(block),
                bytes);
    out += bytes;
  }
}

void KvCache::write_block(int group, int32_t block, const std::byte* in) {
  for (const int32_t layer : layout_.groups[static_cast<size_t>(group)].layers) {
    const auto bytes = static_cast<size_t>(block_bytes_of_layer_[static_cast<size_t>(layer)]);
    std::memcpy(data_of_layer_[static_cast<size_t>(layer)].data() + bytes * static_cast<size_t>(block), in,
                bytes);
    in += bytes;
  }
}

void KvCache::zero_block(int group, int32_t block) {
  for (const int32_t layer : layout_.groups[static_cast<size_t>(group)].layers) {
    const auto bytes = static_cast<size_t>(block_bytes_of_layer_[static_cast<size_t>(layer)]);
    std::memset(data_of_layer_[static_cast<size_t>(layer)].data() + bytes * static_cast<size_t>(block), 0,
                bytes);
  }
}

bool KvCache::populate_some(int group, int64_t blocks) {
  for (const int32_t index : layout_.groups[static_cast<size_t>(group)].layers) {
    const auto layer = static_cast<size_t>(index);
    LayerData& data = data_of_layer_[layer];
    const size_t wanted =
        std::min(data.begin + static_cast<size_t>(block_bytes_of_layer_[layer]) * static_cast<size_t>(blocks),
                 data.memory.size());
    if (data.populated >= wanted) continue;
    const size_t end = data.populated / kHugePage * kHugePage + kHugePage;
    if (!data.memory.populate(data.populated, end)) return false;
    data.populated = end;
    return true;
  }
  return false;
}

uint64_t KvCache::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& data : data_of_layer_) bytes += data.size();
  return bytes;
}

}  // namespace millrace::layers
