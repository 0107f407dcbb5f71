#include "engine/kv/block_manager.h"

#include <algorithm>

#include "core/checked.h"
#include "core/error.h"

namespace millrace::engine {
namespace {

size_t z(int64_t i) { return static_cast<size_t>(i); }

}  // namespace

std::vector<GroupShape> group_shapes(const layers::CacheLayout& layout) {
  std::vector<GroupShape> shapes;
  for (const layers::CacheGroup& g : layout.groups) {
    using Kind = layers::CacheSpec::Kind;
    if (g.spec.kind == Kind::kRecurrent)
      shapes.push_back({GroupShape::Kind::kState, 0});
    else if (g.spec.kind == Kind::kWindow)
      shapes.push_back({GroupShape::Kind::kWindow, g.spec.window});
    else
      shapes.push_back({GroupShape::Kind::kGrowing, 0});
  }
  require(shapes.size() <= kMaxGroups, ErrorCode::kUnsupported,
          "the model's layers keep {} kinds of cache, but at most {} are supported", shapes.size(),
          kMaxGroups);
  return shapes;
}

BlockManager::BlockManager(std::vector<GroupShape> shapes, const std::vector<int64_t>& blocks_per_group,
                           int32_t block_size, SipKey key, bool prefix_cache)
    : shapes_(std::move(shapes)), block_size_(block_size), key_(key), prefix_cache_(prefix_cache) {
  for (const int64_t n : blocks_per_group) pools_.emplace_back(n);
  for (const GroupShape& s : shapes_) only_states_ &= s.kind == GroupShape::Kind::kState;
}

BlockCounts BlockManager::available() const {
  BlockCounts counts{};
  for (size_t g = 0; g < pools_.size(); ++g) counts[g] = static_cast<int32_t>(pools_[g].available());
  return counts;
}

BlockCounts BlockManager::capacity() const {
  BlockCounts counts{};
  for (size_t g = 0; g < pools_.size(); ++g) counts[g] = static_cast<int32_t>(pools_[g].size());
  return counts;
}

// ---- hashes and lookup

uint64_t BlockManager::root_hash(std::string_view tenant, std::string_view salt) const {
  // The lengths keep ("ab", "c") and ("a", "bc") apart.
  std::string bytes = fmt::format("{}:{}:", tenant.size(), salt.size());
  bytes.append(tenant).append(salt);
  return siphash(key_, bytes.data(), bytes.size());
}

void BlockManager::extend_hashes(uint64_t root, std::span<const TokenId> tokens,
                                 std::vector<uint64_t>& hashes) const {
  const size_t whole = tokens.size() / z(block_size_);
  while (hashes.size() < whole)
    hashes.push_back(chain_hash(hashes.empty() ? root : hashes.back(),
                                tokens.subspan(hashes.size() * z(block_size_), z(block_size_))));
}

int32_t BlockManager::find(uint64_t hash) const {
  const auto it = by_hash_.find(hash);
  return it == by_hash_.end() ? -1 : it->second;
}

std::span<const TokenId> BlockManager::node_tokens(int32_t node) const {
  return std::span(tokens_of_nodes_).subspan(z(node) * z(block_size_), z(block_size_));
}

bool BlockManager::tokens_equal(int32_t node, std::span<const TokenId> tokens, size_t index) const {
  const auto own = node_tokens(node);
  return std::equal(own.begin(), own.end(), tokens.begin() + static_cast<ptrdiff_t>(index * z(block_size_)));
}

bool BlockManager::knows(std::span<const uint64_t> hashes, size_t index) const {
  return index < hashes.size() && find(hashes[index]) >= 0;
}

Match BlockManager::match(std::span<const TokenId> tokens, std::span<const uint64_t> hashes,
                          int32_t limit) const {
  Match best;
  if (!prefix_cache_ || limit < block_size_) return best;
  const size_t most = std::min(hashes.size(), z(limit / block_size_));
  const size_t groups = shapes_.size();
  // For each window group, the number of blocks in a row, up to here, that are still there.
  std::array<int32_t, kMaxGroups> run{};
  BlockCounts idle{};  // of growing groups, so far
  std::array<std::vector<int32_t>, kMaxGroups> window_blocks;
  int32_t parent = -1;
  for (size_t i = 0; i < most; ++i) {
    const int32_t node = find(hashes[i]);
    if (node < 0 || nodes_[z(node)].parent != parent || !tokens_equal(node, tokens, i)) break;
    parent = node;
    const auto& blocks = nodes_[z(node)].blocks;
    bool usable = true, broken = false;
    for (size_t g = 0; g < groups; ++g) {
      const int32_t block = blocks[g];
      if (shapes_[g].kind == GroupShape::Kind::kState) {
        usable &= block >= 0;
      } else if (shapes_[g].kind == GroupShape::Kind::kGrowing) {
        if (block < 0)
          broken = true;
        else
          idle[g] += pools_[g].references(block) == 1;
      } else {
        run[g] = block >= 0 ? run[g] + 1 : 0;
        window_blocks[g].push_back(block);
        const int64_t end = static_cast<int64_t>(i + 1) * block_size_;
        const int64_t first = std::max<int64_t>(0, end - shapes_[g].window + 1) / block_size_;
        usable &= run[g] >= static_cast<int64_t>(i + 1) - first;
      }
    }
    if (broken) break;
    if (!usable) continue;
    best.tokens = static_cast<int32_t>(i + 1) * block_size_;
    best.idle = idle;
    for (size_t g = 0; g < groups; ++g) {
      if (shapes_[g].kind ==
          GroupShape::Kind::kState)  // the table's own slot, and the checkpoint until it is copied
        best.idle[g] = 1 + (pools_[g].references(nodes_[z(node)].blocks[g]) == 1);
      if (shapes_[g].kind != GroupShape::Kind::kWindow) continue;
      const int64_t first = std::max<int64_t>(0, best.tokens - shapes_[g].window + 1) / block_size_;
      for (size_t b = z(first); b <= i; ++b) best.idle[g] += pools_[g].references(window_blocks[g][b]) == 1;
    }
  }
  return best;
}

// ---- tables

void BlockManager::attach(BlockTable& table, std::span<const uint64_t> hashes, int32_t tokens_found) {
  table.blocks.assign(shapes_.size(), {});
  const size_t count = z(tokens_found / block_size_);
  table.registered = static_cast<int32_t>(count);
  if (count == 0) return;
  for (size_t g = 0; g < shapes_.size(); ++g) {
    size_t first = 0;
    if (shapes_[g].kind == GroupShape::Kind::kWindow)
      first = z(std::max<int64_t>(0, tokens_found - shapes_[g].window + 1) / block_size_);
    // A checkpoint is shared until grow() makes the copy that may be written.
    const bool state = shapes_[g].kind == GroupShape::Kind::kState;
    if (state) first = count - 1;
    table.blocks[g].assign(state ? 1 : count, -1);
    for (size_t i = first; i < count; ++i) {
      const int32_t block = nodes_[z(find(hashes[i]))].blocks[g];
      pools_[g].retain(block);
      table.blocks[g][state ? 0 : i] = block;
    }
  }
}

BlockCounts BlockManager::needed(const BlockTable& table, int32_t computed, int32_t target) const {
  BlockCounts need{};
  for (size_t g = 0; g < shapes_.size(); ++g) {
    static const std::vector<int32_t> kNothing;
    const auto& blocks = table.blocks.empty() ? kNothing : table.blocks[g];
    if (shapes_[g].kind == GroupShape::Kind::kState) {
      need[g] = blocks.empty() || pools_[g].references(blocks[0]) > 1;
      continue;
    }
    need[g] = static_cast<int32_t>(ceil_div(target, block_size_)) - static_cast<int32_t>(blocks.size());
    if (need[g] < 0) need[g] = 0;
    const size_t written = z(computed / block_size_);
    if (written < blocks.size() && target > computed && blocks[written] >= 0 &&
        pools_[g].references(blocks[written]) > 1)
      ++need[g];
  }
  return need;
}

void BlockManager::grow(BlockTable& table, int32_t computed, int32_t target, std::vector<BlockCopy>& copies,
                        std::vector<std::pair<int32_t, int32_t>>& fresh_states) {
  if (table.blocks.empty()) table.blocks.assign(shapes_.size(), {});
  const auto own_copy = [&](size_t g, int32_t& block) {
    const int32_t copy = allocate(static_cast<int>(g));
    copies.push_back({static_cast<int32_t>(g), block, copy});
    pools_[g].release(block);
    block = copy;
  };
  for (size_t g = 0; g < shapes_.size(); ++g) {
    auto& blocks = table.blocks[g];
    if (shapes_[g].kind == GroupShape::Kind::kState) {
      if (blocks.empty()) {
        blocks.push_back(allocate(static_cast<int>(g)));
        fresh_states.emplace_back(static_cast<int32_t>(g), blocks[0]);
      } else if (pools_[g].references(blocks[0]) > 1) {
        own_copy(g, blocks[0]);
      }
      continue;
    }
    const size_t written = z(computed / block_size_);
    if (written < blocks.size() && target > computed && blocks[written] >= 0 &&
        pools_[g].references(blocks[written]) > 1)
      own_copy(g, blocks[written]);
    const size_t count = z(ceil_div(target, block_size_));
    while (blocks.size() < count) blocks.push_back(allocate(static_cast<int>(g)));
  }
}

void BlockManager::reallocate(const BlockTable& old, BlockTable& table) {
  table.blocks.assign(shapes_.size(), {});
  table.registered = 0;
  for (size_t g = 0; g < old.blocks.size(); ++g)
    for (const int32_t block : old.blocks[g])
      table.blocks[g].push_back(block < 0 ? -1 : allocate(static_cast<int>(g)));
}

void BlockManager::commit(BlockTable& table, std::span<const TokenId> tokens,
                          std::span<const uint64_t> hashes, int32_t computed) {
  if (prefix_cache_ && !only_states_) {
    const size_t whole = std::min(z(computed / block_size_), hashes.size());
    for (size_t i = z(table.registered); i < whole; ++i) {
      const int32_t node = find_or_add(tokens, hashes, i);
      if (node < 0) break;
      for (size_t g = 0; g < shapes_.size(); ++g) {
        if (shapes_[g].kind == GroupShape::Kind::kState) continue;
        const int32_t block = table.blocks[g][i];
        if (block < 0 || nodes_[z(node)].blocks[g] >= 0 || pools_[g].node(block) >= 0) continue;
        nodes_[z(node)].blocks[g] = block;
        pools_[g].retain(block);
        pools_[g].set_node(block, node);
      }
      table.registered = static_cast<int32_t>(i + 1);
    }
  }
  for (size_t g = 0; g < shapes_.size(); ++g) {
    if (shapes_[g].kind != GroupShape::Kind::kWindow) continue;
    // The next token, at position `computed`, reads `window` tokens, itself among them.
    auto& blocks = table.blocks[g];
    const int64_t first = std::max<int64_t>(0, computed - shapes_[g].window + 1) / block_size_;
    for (size_t i = z(std::min<int64_t>(first, static_cast<int64_t>(blocks.size()))); i-- > 0;) {
      if (blocks[i] < 0) break;
      pools_[g].release(blocks[i]);
      blocks[i] = -1;
    }
  }
}

void BlockManager::checkpoint_states(const BlockTable& table, std::span<const TokenId> tokens,
                                     std::span<const uint64_t> hashes, int32_t computed, int32_t reserve,
                                     std::vector<BlockCopy>& copies) {
  if (!prefix_cache_ || computed < block_size_ || computed % block_size_ != 0) return;
  const size_t index = z(computed / block_size_) - 1;
  if (index >= hashes.size()) return;
  for (size_t g = 0; g < shapes_.size(); ++g)
    if (shapes_[g].kind == GroupShape::Kind::kState && pools_[g].available() <= reserve) return;
  const int32_t known = find(hashes[index]);
  std::array<int32_t, kMaxGroups> slots;
  slots.fill(-1);
  for (size_t g = 0; g < shapes_.size(); ++g)
    if (shapes_[g].kind == GroupShape::Kind::kState && (known < 0 || nodes_[z(known)].blocks[g] < 0))
      slots[g] = allocate(static_cast<int>(g));
  // Only now, since allocating may have removed nodes. Where every layer keeps states only, nodes exist for
  // the sake of checkpoints: the way to this one is made here.
  int32_t node = find(hashes[index]);
  if (only_states_) {
    for (size_t i = 0; i <= index; ++i)
      if ((node = find_or_add(tokens, hashes, i)) < 0) break;
  } else if (node >= 0 && !tokens_equal(node, tokens, index)) {
    node = -1;
  }
  for (size_t g = 0; g < shapes_.size(); ++g) {
    if (slots[g] < 0) continue;
    if (node < 0 || nodes_[z(node)].blocks[g] >= 0) {
      pools_[g].release(slots[g]);
      continue;
    }
    nodes_[z(node)].blocks[g] = slots[g];
    copies.push_back({static_cast<int32_t>(g), table.blocks[g][0], slots[g]});
    pools_[g].set_node(slots[g], node);
  }
}

void BlockManager::pin(const BlockTable& table, int32_t tokens, size_t max_pinned) {
  for (size_t g = 0; g < shapes_.size(); ++g) {
    if (shapes_[g].kind == GroupShape::Kind::kState) continue;
    const size_t count = std::min(table.blocks[g].size(), z(tokens / block_size_));
    for (size_t i = 0; i < count; ++i) {
      const int32_t block = table.blocks[g][i];
      if (block < 0 || pools_[g].node(block) < 0) continue;
      const std::pair<int32_t, int32_t> entry{static_cast<int32_t>(g), block};
      if (std::find(pinned_.begin(), pinned_.end(), entry) != pinned_.end()) continue;
      pools_[g].retain(block);
      pinned_.push_back(entry);
    }
  }
  while (pinned_.size() > max_pinned) {
    pools_[z(pinned_.front().first)].release(pinned_.front().second);
    pinned_.erase(pinned_.begin());
  }
}

void BlockManager::fork(const BlockTable& from, BlockTable& to) {
  to = from;
  for (size_t g = 0; g < to.blocks.size(); ++g)
    for (const int32_t block : to.blocks[g])
      if (block >= 0) pools_[g].retain(block);
}

void BlockManager::release(BlockTable& table) {
  for (size_t g = 0; g < table.blocks.size(); ++g)
    for (size_t i = table.blocks[g].size(); i-- > 0;)
      if (table.blocks[g][i] >= 0) pools_[g].release(table.blocks[g][i]);
  table = {};
}

BlockCounts BlockManager::exclusive(const BlockTable& table) const {
  BlockCounts counts{};
  for (size_t g = 0; g < table.blocks.size(); ++g)
    for (const int32_t block : table.blocks[g])
      if (block >= 0) counts[g] += pools_[g].references(block) == (pools_[g].node(block) >= 0 ? 2 : 1);
  return counts;
}

// ---- the cache's nodes

int32_t BlockManager::allocate(int group) {
  BlockPool& pool = pools_[z(group)];
  int32_t block = pool.allocate();
  if (block < 0 && pool.oldest_idle() >= 0) {
    drop_cached_block(pool.node(pool.oldest_idle()), group);
    block = pool.allocate();
  }
  check(block >= 0, "the plan promised a cache block of group {} that is not there", group);
  return block;
}

int32_t BlockManager::find_or_add(std::span<const TokenId> tokens, std::span<const uint64_t> hashes,
                                  size_t index) {
  // A parent that is gone or another text's (a collision) ends it: what follows could not be found.
  const int32_t parent = index == 0 ? -1 : find(hashes[index - 1]);
  if (index > 0 && (parent < 0 || !tokens_equal(parent, tokens, index - 1))) return -1;
  const int32_t node = find(hashes[index]);
  if (node < 0)
    return add_node(hashes[index], parent, tokens.subspan(index * z(block_size_), z(block_size_)));
  return nodes_[z(node)].parent == parent && tokens_equal(node, tokens, index) ? node : -1;
}

int32_t BlockManager::add_node(uint64_t hash, int32_t parent, std::span<const TokenId> tokens) {
  int32_t id;
  if (free_nodes_.empty()) {
    id = static_cast<int32_t>(nodes_.size());
    nodes_.emplace_back();
    tokens_of_nodes_.resize(nodes_.size() * z(block_size_));
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
  }
  Node& n = nodes_[z(id)];
  n = {};
  n.hash = hash;
  n.parent = parent;
  n.used = true;
  n.blocks.fill(-1);
  if (parent >= 0) ++nodes_[z(parent)].children;
  std::copy(tokens.begin(), tokens.end(),
            tokens_of_nodes_.begin() + static_cast<ptrdiff_t>(z(id) * z(block_size_)));
  by_hash_[hash] = id;
  return id;
}

void BlockManager::drop_cached_block(int32_t node, int group) {
  Node& n = nodes_[z(node)];
  const int32_t block = n.blocks[z(group)];
  n.blocks[z(group)] = -1;
  pools_[z(group)].set_node(block, -1);
  pools_[z(group)].release(block);
  // Without its growing part a node can never be hit again, nor can those behind it, which hold nothing in
  // use.
  if (shapes_[z(group)].kind == GroupShape::Kind::kGrowing) {
    for (size_t g = 0; g < shapes_.size(); ++g) {
      const int32_t other = n.blocks[g];
      if (other < 0) continue;
      n.blocks[g] = -1;
      pools_[g].set_node(other, -1);
      pools_[g].release(other);
    }
  }
  remove_if_useless(node);
}

void BlockManager::remove_if_useless(int32_t node) {
  while (node >= 0) {
    const Node& n = nodes_[z(node)];
    if (n.children > 0) return;
    for (size_t g = 0; g < shapes_.size(); ++g)
      if (n.blocks[g] >= 0) return;
    const int32_t parent = n.parent;
    remove_node(node);
    node = parent;
  }
}

void BlockManager::remove_node(int32_t node) {
  Node& n = nodes_[z(node)];
  by_hash_.erase(n.hash);
  if (n.parent >= 0) --nodes_[z(n.parent)].children;
  n.used = false;
  free_nodes_.push_back(node);
}

uint64_t BlockManager::chain_hash(uint64_t parent, std::span<const TokenId> tokens) const {
  std::vector<uint64_t> buffer(1 + z(ceil_div(block_size_, 2)), 0);
  buffer[0] = parent;
  std::memcpy(buffer.data() + 1, tokens.data(), tokens.size_bytes());
  return siphash(key_, buffer.data(), 8 + tokens.size_bytes());
}

void BlockManager::visit(const std::function<bool(uint64_t, uint64_t, std::span<const TokenId>,
                                                  std::span<const int32_t>)>& visitor) const {
  // Those in use first, then idle ones from the newest; a node's newest block counts.
  std::vector<int32_t> order;
  std::vector<bool> listed(nodes_.size(), false);
  const auto list = [&](int32_t node) {
    // Parents before children.
    const size_t begin = order.size();
    for (int32_t n = node; n >= 0 && !listed[z(n)]; n = nodes_[z(n)].parent) {
      listed[z(n)] = true;
      order.push_back(n);
    }
    std::reverse(order.begin() + static_cast<ptrdiff_t>(begin), order.end());
  };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].used) continue;
    for (size_t g = 0; g < shapes_.size(); ++g) {
      const int32_t block = nodes_[i].blocks[g];
      if (block >= 0 && pools_[g].references(block) > 1) list(static_cast<int32_t>(i));
    }
  }
  for (const BlockPool& pool : pools_)
    for (int32_t b = pool.newest_idle(); b >= 0; b = pool.older_idle(b)) list(pool.node(b));
  for (const int32_t node : order) {
    const Node& n = nodes_[z(node)];
    const uint64_t parent = n.parent < 0 ? 0 : nodes_[z(n.parent)].hash;
    if (!visitor(parent, n.hash, node_tokens(node), std::span(n.blocks).first(shapes_.size()))) return;
  }
}

void BlockManager::touch(int group, int32_t block) {
  BlockPool& pool = pools_[z(group)];
  if (pool.node(block) < 0 || pool.references(block) != 1) return;
  pool.retain(block);
  pool.release(block);
}

bool BlockManager::restore(uint64_t parent_hash, uint64_t hash, std::span<const TokenId> tokens,
                           std::span<const bool> groups, std::vector<int32_t>& blocks) {
  blocks.assign(shapes_.size(), -1);
  const int32_t parent = parent_hash == 0 ? -1 : find(parent_hash);
  if ((parent_hash != 0 && parent < 0) || find(hash) >= 0) return false;
  for (size_t g = 0; g < shapes_.size(); ++g)
    if (groups[g] && pools_[g].free_blocks() == 0) return false;
  const int32_t node = add_node(hash, parent, tokens);
  for (size_t g = 0; g < shapes_.size(); ++g) {
    if (!groups[g]) continue;
    blocks[g] = pools_[g].allocate();
    nodes_[z(node)].blocks[g] = blocks[g];
    pools_[g].set_node(blocks[g], node);
  }
  return true;
}

void BlockManager::verify(std::span<const BlockTable* const> tables) const {
  for (size_t g = 0; g < pools_.size(); ++g) {
    const BlockPool& pool = pools_[g];
    std::vector<int32_t> references(z(pool.size()), 0);
    for (const BlockTable* t : tables) {
      if (t->blocks.empty()) continue;
      for (const int32_t block : t->blocks[g])
        if (block >= 0) ++references[z(block)];
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].used || nodes_[i].blocks[g] < 0) continue;
      const int32_t block = nodes_[i].blocks[g];
      ++references[z(block)];
      check(pool.node(block) == static_cast<int32_t>(i), "block {} of group {} is not known as node {}'s",
            block, g, i);
    }
    for (const auto& [group, block] : pinned_)
      if (z(group) == g) ++references[z(block)];
    int64_t free = 0, idle = 0;
    for (int32_t b = 0; b < pool.size(); ++b) {
      check(pool.references(b) == references[z(b)], "block {} of group {} has {} references, but {} owners",
            b, g, pool.references(b), references[z(b)]);
      free += references[z(b)] == 0;
      idle += pool.node(b) >= 0 && references[z(b)] == 1;
    }
    check(free == pool.free_blocks(), "group {} has {} free blocks, but {} in its list", g, free,
          pool.free_blocks());
    check(idle == pool.idle_blocks(), "group {} has {} idle blocks, but {} in its list", g, idle,
          pool.idle_blocks());
  }
  size_t used = 0;
  for (const Node& n : nodes_) {
    if (!n.used) continue;
    ++used;
    check(n.parent < 0 || nodes_[z(n.parent)].used, "a node of the prefix cache has lost its parent");
  }
  check(used == by_hash_.size(), "the prefix cache has {} nodes, but {} in its index", used, by_hash_.size());
}

}  // namespace millrace::engine
