#include "layers/cache_spec.h"

#include "core/checked.h"
#include "core/error.h"
#include "ops/attention.h"
#include "ops/mla.h"

namespace millrace::layers {
int64_t layer_block_bytes(const CacheSpec& spec, int32_t block_size, KvType kv_type) {
  switch (spec.kind) {
    case CacheSpec::Kind::kFull:
    case CacheSpec::Kind::kWindow:
      return ops::kv_block_bytes(static_cast<ops::KvFormat>(kv_type), block_size, spec.num_kv_heads,
                                 spec.key_dim, spec.value_dim);
    case CacheSpec::Kind::kLatent:
      // The latent is already a compression: it stays in 16 bits where K and V would be INT8 or INT4.
      return ops::latent_block_bytes(static_cast<ops::KvFormat>(kv_type), block_size, spec.latent_dim,
                                     spec.rope_dim);
    case CacheSpec::Kind::kRecurrent:
      return spec.state_bytes;
    case CacheSpec::Kind::kNone:
    case CacheSpec::Kind::kShares:
      return 0;
  }
  return 0;
}

int64_t CacheLayout::block_bytes(int group) const {
  const CacheGroup& g = groups[static_cast<size_t>(group)];
  // Blocks start on cache lines, so that kernels may load whole vectors.
  return round_up(layer_block_bytes(g.spec, block_size, kv_type), 64) * static_cast<int64_t>(g.layers.size());
}

double CacheLayout::bytes_per_token() const {
  double bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto kind = groups[g].spec.kind;
    if (kind == CacheSpec::Kind::kFull || kind == CacheSpec::Kind::kLatent)
      bytes += static_cast<double>(block_bytes(static_cast<int>(g))) / block_size;
  }
  return bytes;
}

CacheLayout make_cache_layout(const std::vector<CacheSpec>& layer_specs, int32_t block_size, KvType kv_type) {
  require(block_size >= 1 && block_size <= 1024, ErrorCode::kInvalidArgument,
          "cache block size {} is out of range: expected 1 to 1024 tokens", block_size);
  CacheLayout layout;
  layout.block_size = block_size;
  layout.kv_type = kv_type;
  layout.group_of_layer.assign(layer_specs.size(), -1);
  layout.index_in_group.assign(layer_specs.size(), -1);
  for (size_t layer = 0; layer < layer_specs.size(); ++layer) {
    const CacheSpec& spec = layer_specs[layer];
    if (spec.kind == CacheSpec::Kind::kNone) continue;
    if (spec.kind == CacheSpec::Kind::kShares) {
      check(spec.shared_layer >= 0 && spec.shared_layer < static_cast<int32_t>(layer),
            "layer {} shares the cache of layer {}", layer, spec.shared_layer);
      layout.group_of_layer[layer] = layout.group_of_layer[static_cast<size_t>(spec.shared_layer)];
      layout.index_in_group[layer] = layout.index_in_group[static_cast<size_t>(spec.shared_layer)];
      continue;
    }
    size_t g = 0;
    while (g < layout.groups.size() && !(layout.groups[g].spec == spec)) ++g;
    if (g == layout.groups.size()) layout.groups.push_back({spec, {}});
    layout.group_of_layer[layer] = static_cast<int32_t>(g);
    layout.index_in_group[layer] = static_cast<int32_t>(layout.groups[g].layers.size());
    layout.groups[g].layers.push_back(static_cast<int32_t>(layer));
  }
  return layout;
}

}  // namespace millrace::layers
