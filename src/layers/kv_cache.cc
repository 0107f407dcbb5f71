#include "layers/kv_cache.h"

#include <cstring>

#include "core/checked.h"
#include "core/error.h"

namespace millrace::layers {

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
    for (const int32_t layer : group.layers) {
      block_bytes_of_layer_[static_cast<size_t>(layer)] = bytes;
      data_of_layer_[static_cast<size_t>(layer)] =
          AlignedBuffer(static_cast<size_t>(bytes) * static_cast<size_t>(blocks_per_group_[g]));
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

uint64_t KvCache::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& data : data_of_layer_) bytes += data.size();
  return bytes;
}

}  // namespace millrace::layers
