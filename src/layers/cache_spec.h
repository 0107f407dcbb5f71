// What a layer keeps between steps. The four kinds of memory that models have; everything above (block
// manager, scheduler, prefix cache) works with groups of layers of equal spec and never with the kind of a
// model.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::layers {

enum class KvType : uint8_t { kF32, kBF16, kInt8, kInt4 };

struct CacheSpec {
  enum class Kind : uint8_t {
    kNone,       ///< nothing (an MLP-only layer)
    kFull,       ///< K and V of every token
    kWindow,     ///< K and V of the last `window` tokens
    kLatent,     ///< one latent vector per token (MLA): latent_dim values, and rope_dim of shared rotated key
    kRecurrent,  ///< `state_bytes` per sequence, however long
    kShares,     ///< reads the cache of layer `shared_layer`
  } kind = Kind::kFull;
  int32_t num_kv_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t window = 0;
  int32_t latent_dim = 0;
  int32_t rope_dim = 0;
  int64_t state_bytes = 0;
  int32_t shared_layer = -1;

  static CacheSpec full(int32_t kv_heads, int32_t key_dim, int32_t value_dim) {
    return {Kind::kFull, kv_heads, key_dim, value_dim, 0, 0, 0, 0, -1};
  }
  static CacheSpec windowed(int32_t kv_heads, int32_t key_dim, int32_t value_dim, int32_t window) {
    return {Kind::kWindow, kv_heads, key_dim, value_dim, window, 0, 0, 0, -1};
  }
  static CacheSpec latent(int32_t latent_dim, int32_t rope_dim) {
    return {Kind::kLatent, 1, 0, 0, 0, latent_dim, rope_dim, 0, -1};
  }
  static CacheSpec recurrent(int64_t bytes) { return {Kind::kRecurrent, 0, 0, 0, 0, 0, 0, bytes, -1}; }
  static CacheSpec shares(int32_t layer) { return {Kind::kShares, 0, 0, 0, 0, 0, 0, 0, layer}; }
  static CacheSpec none() { return {Kind::kNone, 0, 0, 0, 0, 0, 0, 0, -1}; }
  bool operator==(const CacheSpec&) const = default;
};

/// Layers of equal spec share one block table per sequence.
struct CacheGroup {
  CacheSpec spec;
  std::vector<int32_t> layers;
};

/// How the layers of a model fall into groups.
struct CacheLayout {
  int32_t block_size = 16;  ///< tokens in a block
  KvType kv_type = KvType::kBF16;
  std::vector<CacheGroup> groups;       ///< kNone and kShares layers are in none
  std::vector<int32_t> group_of_layer;  ///< -1 for kNone; kShares has its owner's
  std::vector<int32_t> index_in_group;

  /// Bytes of one block of group g, over all its layers (for kRecurrent: one sequence's states).
  int64_t block_bytes(int group) const;
  /// Bytes one more token takes in the growing groups, and bytes a sequence takes at once.
  double bytes_per_token() const;
};

/// Bytes of one block (or one sequence's state) of one layer of this spec.
int64_t layer_block_bytes(const CacheSpec& spec, int32_t block_size, KvType kv_type);

CacheLayout make_cache_layout(const std::vector<CacheSpec>& layer_specs, int32_t block_size, KvType kv_type);

}  // namespace millrace::layers
