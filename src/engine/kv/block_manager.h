// Who owns which cache block. Works with ids and groups of layers only; it never touches the cache itself,
// but says which blocks must be copied.
//
// Prefix cache: a tree of nodes, one for each whole block of tokens after its predecessors. A node is found
// by a keyed hash chained over the blocks (begun with tenant and salt), and its tokens and its parent are
// compared before it is used. A node holds, for each cache group, the block with those tokens, as far as it
// is still there:
//   full and latent groups   a hit of k blocks needs all k
//   window groups            it needs those that the window still reaches
//   state groups             it needs the state after exactly those tokens: a checkpoint in a slot of its own
// Each group gives up its own idle blocks, the oldest first; a table's blocks are released last to first, so
// that the end of a text goes before its beginning.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/kv/block_pool.h"
#include "engine/kv/siphash.h"
#include "engine/request.h"
#include "layers/cache_spec.h"

namespace millrace::engine {

inline constexpr int kMaxGroups = 16;
/// One number for each cache group.
using BlockCounts = std::array<int32_t, kMaxGroups>;

struct GroupShape {
  enum class Kind : uint8_t { kGrowing, kWindow, kState } kind = Kind::kGrowing;
  int32_t window = 0;  ///< kWindow: tokens that stay readable
};
std::vector<GroupShape> group_shapes(const layers::CacheLayout& layout);

/// The blocks of one sequence.
struct BlockTable {
  std::vector<std::vector<int32_t>>
      blocks;              ///< [group][index]; -1 where a window has let go; one entry in a state group
  int32_t registered = 0;  ///< leading blocks that the prefix cache has looked at
};

/// A copy to be made before the step that writes.
struct BlockCopy {
  int32_t group, from, to;
};

struct Match {
  int32_t tokens = 0;  ///< found, a multiple of the block size
  BlockCounts idle{};  ///< of the found blocks, those that nobody else uses now
};

class BlockManager {
 public:
  BlockManager(std::vector<GroupShape> shapes, const std::vector<int64_t>& blocks_per_group,
               int32_t block_size, SipKey key, bool prefix_cache);

  int32_t block_size() const { return block_size_; }
  int num_groups() const { return static_cast<int>(shapes_.size()); }
  const GroupShape& shape(int group) const { return shapes_[static_cast<size_t>(group)]; }
  std::span<const GroupShape> shapes() const { return shapes_; }
  const BlockPool& pool(int group) const { return pools_[static_cast<size_t>(group)]; }
  /// Blocks that can be had in each group.
  BlockCounts available() const;
  BlockCounts capacity() const;

  /// Hash before the first block.
  uint64_t root_hash(std::string_view tenant, std::string_view salt) const;
  /// Appends the hashes of whole blocks of `tokens` that are not in `hashes` yet.
  void extend_hashes(uint64_t root, std::span<const TokenId> tokens, std::vector<uint64_t>& hashes) const;

  /// The longest usable prefix, at most `limit` tokens. Changes nothing.
  Match match(std::span<const TokenId> tokens, std::span<const uint64_t> hashes, int32_t limit) const;
  /// Whether the block after the first `index` ones is in the cache.
  bool knows(std::span<const uint64_t> hashes, size_t index) const;

  /// An empty table takes the first `tokens_found` tokens' blocks (as match() gave them, with nothing
  /// allocated since).
  void attach(BlockTable& table, std::span<const uint64_t> hashes, int32_t tokens_found);

  /// New blocks that computing [computed, target) needs: growth, and copies of shared blocks written to.
  BlockCounts needed(const BlockTable& table, int32_t computed, int32_t target) const;
  /// Makes them. Error(kInternal) when there are not enough: the caller has asked needed() and available().
  /// `fresh_states` gets (group, slot) of states that begin at zero.
  void grow(BlockTable& table, int32_t computed, int32_t target, std::vector<BlockCopy>& copies,
            std::vector<std::pair<int32_t, int32_t>>& fresh_states);

  /// An empty table gets fresh blocks where `old` had any (a sequence comes back from the host area).
  void reallocate(const BlockTable& old, BlockTable& table);

  /// The first `computed` tokens are in the cache now: whole blocks become findable, and what windows have
  /// left is let go.
  void commit(BlockTable& table, std::span<const TokenId> tokens, std::span<const uint64_t> hashes,
              int32_t computed);
  /// Keeps a copy of the state after `computed` tokens (a block border that commit() has seen) for later
  /// hits, if a slot can be had while `reserve` stay available. `copies` are to be made before the next step.
  void checkpoint_states(const BlockTable& table, std::span<const TokenId> tokens,
                         std::span<const uint64_t> hashes, int32_t computed, int32_t reserve,
                         std::vector<BlockCopy>& copies);
  /// Keeps the first `tokens` tokens' blocks until `max_pinned` others are pinned.
  void pin(const BlockTable& table, int32_t tokens, size_t max_pinned);

  /// `to` (empty) shares all blocks of `from`.
  void fork(const BlockTable& from, BlockTable& to);
  void release(BlockTable& table);

  /// Blocks of the table that nobody else holds: what releasing it makes available (cached ones become idle).
  BlockCounts exclusive(const BlockTable& table) const;
  int64_t cached_nodes() const { return static_cast<int64_t>(by_hash_.size()); }

  /// The hash of a block after a parent (or after the root hash).
  uint64_t chain_hash(uint64_t parent, std::span<const TokenId> tokens) const;

  /// Visits the cache's nodes (for saving), those in use or lately used first, but always parents before
  /// children: parent's hash (0: none), hash, tokens, blocks (-1 where there is none). Ends when the visitor
  /// returns false.
  void visit(const std::function<bool(uint64_t parent, uint64_t hash, std::span<const TokenId>,
                                      std::span<const int32_t>)>& visitor) const;
  /// An idle block becomes the last to be given up.
  void touch(int group, int32_t block);
  /// Puts back one node (when loading) in free blocks; false when there are none, the parent is not there, or
  /// the node is. `groups` says which blocks it had. The caller fills them before anything else happens.
  bool restore(uint64_t parent_hash, uint64_t hash, std::span<const TokenId> tokens,
               std::span<const bool> groups, std::vector<int32_t>& blocks);

  /// Invariants, against the tables that exist: every reference accounted for, nothing leaked or owned twice,
  /// the lists true. Error(kInternal) says what is broken. For tests and debugging: walks everything.
  void verify(std::span<const BlockTable* const> tables) const;

 private:
  struct Node {
    uint64_t hash = 0;
    int32_t parent = -1;
    int32_t children = 0;
    bool used = false;
    std::array<int32_t, kMaxGroups> blocks;
  };

  int32_t find(uint64_t hash) const;
  int32_t find_or_add(std::span<const TokenId> tokens, std::span<const uint64_t> hashes, size_t index);
  int32_t add_node(uint64_t hash, int32_t parent, std::span<const TokenId> tokens);
  std::span<const TokenId> node_tokens(int32_t node) const;
  int32_t allocate(int group);
  void drop_cached_block(int32_t node, int group);
  void remove_node(int32_t node);
  void remove_if_useless(int32_t node);
  bool tokens_equal(int32_t node, std::span<const TokenId> tokens, size_t index) const;

  std::vector<GroupShape> shapes_;
  std::vector<BlockPool> pools_;
  int32_t block_size_;
  SipKey key_;
  bool prefix_cache_;
  bool only_states_ = true;

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_of_nodes_;  // [node][block_size]
  std::vector<int32_t> free_nodes_;
  std::unordered_map<uint64_t, int32_t> by_hash_;
  std::vector<std::pair<int32_t, int32_t>> pinned_;  // (group, block), oldest first
};

}  // namespace millrace::engine
