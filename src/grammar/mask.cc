#include "grammar/mask.h"

#include <algorithm>

#include "grammar/string_step.h"

namespace millrace::grammar {
namespace {

constexpr int kMaxFrames = 5;            ///< deepest stack that a cached place looks at
constexpr size_t kManyUncertain = 1500;  ///< more than these: look one frame deeper
constexpr size_t kWorthStandIn = 6;      ///< bytes that a stand-in must judge rightly to be used

void set_bit(std::span<uint64_t> bits, uint32_t id) { bits[id >> 6] |= uint64_t{1} << (id & 63); }

}  // namespace

std::shared_ptr<const PlaceMask> PlaceCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  it->second.used = ++clock_;
  return it->second.mask;
}

void PlaceCache::insert(const std::string& key, std::shared_ptr<const PlaceMask> mask) {
  const std::lock_guard lock(mutex_);
  const size_t size = mask->bytes() + key.size() + 96;
  if (bytes_ + size > max_bytes_ && !entries_.empty()) {
    // Drop the half that was used longest ago.
    std::vector<uint64_t> ages;
    ages.reserve(entries_.size());
    for (const auto& [k, e] : entries_) ages.push_back(e.used);
    std::nth_element(ages.begin(), ages.begin() + static_cast<ptrdiff_t>(ages.size() / 2), ages.end());
    const uint64_t median = ages[ages.size() / 2];
    for (auto it = entries_.begin(); it != entries_.end();) {
      if (it->second.used <= median) {
        bytes_ -= it->second.mask->bytes() + it->first.size() + 96;
        it = entries_.erase(it);
      } else {
        ++it;
      }
    }
  }
  if (entries_.try_emplace(key, Entry{std::move(mask), ++clock_}).second) bytes_ += size;
}

void PlaceCache::replace(const std::string& key, std::shared_ptr<const PlaceMask> mask) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(key);
    if (it != entries_.end()) {
      bytes_ -= it->second.mask->bytes() + it->first.size() + 96;
      entries_.erase(it);
    }
  }
  insert(key, std::move(mask));
}

size_t PlaceCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

size_t PlaceCache::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::shared_ptr<const PlaceMask> MaskBuilder::walk(StateId state, bool may_ask_for_more) {
  const auto& nodes = trie_.nodes();
  // Runs of places in token order: accepted, and uncertain.
  std::vector<std::pair<uint32_t, uint32_t>> accepted;
  auto mask = std::make_shared<PlaceMask>();
  size_t num_accepted = 0;
  const auto accept = [&](uint32_t first, uint32_t last) {
    if (first == last) return;
    num_accepted += last - first;
    if (!accepted.empty() && accepted.back().second == first) {
      accepted.back().second = last;
    } else {
      accepted.push_back({first, last});
    }
  };
  const auto doubt = [&](uint32_t first, uint32_t last) {
    for (uint32_t p = first; p < last; ++p) mask->uncertain.push_back(p);
  };
  std::vector<StateId> path{state};
  const uint32_t n = static_cast<uint32_t>(nodes.size());
  for (uint32_t i = 0; i < n;) {
    const TokenTrie::Node& node = nodes[i];
    path.resize(node.depth);
    if (node.big && node.byte >= 0x80 && node.border) {
      // A whole script at once, where characters beyond ASCII change nothing.
      const Machine::Loops* loops = machine_.loops(path[node.depth - 1u]);
      const TokenTrie::Below& below = trie_.below(i);
      if (loops && loops->utf8 && !(below.ascii[0] & ~loops->ascii[0]) &&
          !(below.ascii[1] & ~loops->ascii[1])) {
        accept(node.tokens, trie_.last_token(i));
        i = node.skip;
        continue;
      }
    }
    const StateId s = machine_.step(path[node.depth - 1u], node.byte);
    if (s == kDeadState) {
      i = node.skip;
      continue;
    }
    if (machine_.guarded(s) || machine_.only_escaped(s)) {
      doubt(node.tokens, trie_.last_token(i));
      i = node.skip;
      if (may_ask_for_more && mask->uncertain.size() > kManyUncertain) {
        mask->uncertain.clear();
        mask->needs_more_stack = true;
        return mask;
      }
      continue;
    }
    accept(node.tokens, node.tokens + node.ends);
    if (node.big) {
      const Machine::Loops* loops = machine_.loops(s);
      if (loops) {
        const TokenTrie::Below& below = trie_.below(i);
        if (!(below.ascii[0] & ~loops->ascii[0]) && !(below.ascii[1] & ~loops->ascii[1]) &&
            (below.only_ascii || (loops->utf8 && below.utf8))) {
          accept(node.tokens + node.ends, trie_.last_token(i));
          i = node.skip;
          continue;
        }
      }
    }
    path.push_back(s);
    ++i;
  }
  const auto& order = trie_.order();
  const size_t num_rejected = order.size() - num_accepted;
  const size_t short_list = trie_.mask_words() * 2;  // as many ids as fill the bytes of a bitset
  if (std::min(num_accepted, num_rejected) > short_list) {
    mask->form = PlaceMask::Form::kBits;
    mask->bits.assign(trie_.mask_words(), 0);
    for (const auto& [first, last] : accepted)
      for (uint32_t p = first; p < last; ++p) set_bit(mask->bits, static_cast<uint32_t>(order[p]));
  } else if (num_accepted <= num_rejected) {
    mask->form = PlaceMask::Form::kAccepted;
    mask->list.reserve(num_accepted);
    for (const auto& [first, last] : accepted)
      for (uint32_t p = first; p < last; ++p) mask->list.push_back(static_cast<uint32_t>(order[p]));
  } else {
    mask->form = PlaceMask::Form::kRejected;
    mask->list.reserve(num_rejected);
    uint32_t at = 0;
    for (const auto& [first, last] : accepted) {
      for (; at < first; ++at) mask->list.push_back(static_cast<uint32_t>(order[at]));
      at = last;
    }
    for (; at < order.size(); ++at) mask->list.push_back(static_cast<uint32_t>(order[at]));
  }
  return mask;
}

// Frames that count would have a mask for every count. But far from its bounds a count decides nothing: a
// token of n bytes adds at most n. So one count stands for all, for tokens short enough; the few longer ones
// are checked.
MaskBuilder::Stand MaskBuilder::stand_in(const Item& item) const {
  const size_t longest = trie_.max_token_bytes();
  Stand same{item, longest, true};
  if (item.position == kEscaped) return same;
  const Program& p = machine_.program();
  const ProgramRule& rule = p.rules[p.rule_of[item.position]];
  uint64_t count, min, max, slack;
  bool free_below;  // nothing but the minimum itself depends on how much is missing
  StringRegister r;
  if (rule.kind == ProgramRuleKind::kString) {
    const CompiledString& s = p.strings[rule.index];
    if (s.lengths->trivial()) return same;
    r = StringRegister::unpack(item.reg);
    count = r.count, min = s.lengths->min(), max = s.lengths->max();
    slack = s.farthest + 1;  // a count may run ahead by the character that is being read
    free_below = s.any_text;
  } else if (rule.kind == ProgramRuleKind::kAutomaton && rule.counted) {
    count = item.reg, min = rule.min, max = rule.max == kUnlimited ? ~uint64_t{0} : rule.max;
    slack = 1;
    free_below = true;
  } else {
    return same;
  }
  Stand stand = same;
  uint64_t to;
  if (count >= min) {
    if (max == ~uint64_t{0}) return same;
    if (max - count < slack + kWorthStandIn) return same;
    to = min;
    stand.exact_bytes = static_cast<size_t>(std::min<uint64_t>(longest, max - count - slack));
  } else {
    if (!free_below || min - count < kWorthStandIn + 1) return same;
    to = 0;
    stand.allows_more = false;
    stand.exact_bytes = static_cast<size_t>(std::min<uint64_t>(longest, min - count - 1));
  }
  if (rule.kind == ProgramRuleKind::kString) {
    r.count = to;
    stand.item.reg = r.pack();
  } else {
    stand.item.reg = to;
  }
  return stand;
}

std::shared_ptr<const PlaceMask> MaskBuilder::place(const Item& item) {
  std::string before;
  for (int frames = 1;; ++frames) {
    const StateId cut = machine_.truncated(item, frames, key_);
    std::shared_ptr<const PlaceMask> mask = cache_.find(key_);
    if (!mask) {
      const std::string key = key_;
      mask = walk(cut, frames < kMaxFrames);
      cache_.insert(key, mask);
    }
    if (!mask->needs_more_stack) return mask;
    // A stack that ends above the cut is the same place at every depth, and cannot become clearer.
    if (frames > 1 && key_ == before) {
      mask = walk(cut, false);
      cache_.replace(key_, mask);
      return mask;
    }
    before = key_;
  }
}

void MaskBuilder::check_uncertain(StateId state, std::string_view text, const std::vector<uint32_t>& places,
                                  std::span<uint64_t> out) {
  const bool with_text = machine_.program().needs_text;
  std::string output(with_text ? text : std::string_view{});
  std::vector<StateId> path{state};
  std::string_view before;
  size_t valid = 0;  // bytes of `before` whose states are in `path`
  size_t dead = 0;   // if not 0: `before` died at its dead-th byte
  for (uint32_t place : places) {
    const auto id = static_cast<uint32_t>(trie_.order()[place]);
    const std::string& bytes = trie_.bytes_of(place);
    size_t common = 0;
    while (common < before.size() && common < bytes.size() && before[common] == bytes[common]) ++common;
    before = bytes;
    if (dead && common >= dead) continue;
    dead = 0;
    valid = std::min(valid, common);
    path.resize(valid + 1);
    if (with_text) {
      output.resize(text.size());
      output.append(bytes, 0, valid);
    }
    StateId s = path.back();
    for (; valid < bytes.size(); ++valid) {
      s = machine_.step(s, static_cast<uint8_t>(bytes[valid]));
      if (with_text) {
        output.push_back(bytes[valid]);
        if (machine_.guarded(s)) s = machine_.resolve(s, output);
      }
      if (s == kDeadState) {
        dead = valid + 1;
        break;
      }
      path.push_back(s);
    }
    if (!dead) set_bit(out, id);
  }
}

void MaskBuilder::fill(StateId state, std::string_view text, std::span<uint64_t> out) {
  std::fill(out.begin(), out.end(), 0);
  if (state == kDeadState) return;
  const std::vector<Item> items(machine_.items(state).begin(), machine_.items(state).end());
  const auto& all = trie_.text_mask();
  const auto& order = trie_.order();
  std::vector<uint64_t> own(out.size());
  std::vector<uint32_t> doubtful;
  for (const Item& item : items) {
    const Stand stand = stand_in(item);
    const std::shared_ptr<const PlaceMask> mask = place(stand.item);
    switch (mask->form) {
      case PlaceMask::Form::kAccepted:
        std::fill(own.begin(), own.end(), 0);
        for (uint32_t id : mask->list) set_bit(own, id);
        break;
      case PlaceMask::Form::kBits:
        std::copy(mask->bits.begin(), mask->bits.end(), own.begin());
        break;
      case PlaceMask::Form::kRejected:
        std::copy(all.begin(), all.end(), own.begin());
        for (uint32_t id : mask->list) own[id >> 6] &= ~(uint64_t{1} << (id & 63));
        break;
    }
    doubtful.insert(doubtful.end(), mask->uncertain.begin(), mask->uncertain.end());
    if (stand.exact_bytes < trie_.max_token_bytes())
      for (uint32_t p : trie_.longest_first()) {
        if (trie_.bytes_of(p).size() <= stand.exact_bytes) break;
        const auto id = static_cast<uint32_t>(order[p]);
        uint64_t& word = own[id >> 6];
        // A stand-in with more room allows at least what the place does; one below its minimum says nothing
        // here.
        if (!stand.allows_more || ((word >> (id & 63)) & 1)) doubtful.push_back(p);
        word &= ~(uint64_t{1} << (id & 63));
      }
    for (size_t w = 0; w < own.size(); ++w) out[w] |= own[w];
  }
  std::erase_if(doubtful, [&](uint32_t p) {
    const auto id = static_cast<uint32_t>(order[p]);
    return ((out[id >> 6] >> (id & 63)) & 1) != 0;
  });
  std::sort(doubtful.begin(), doubtful.end());
  doubtful.erase(std::unique(doubtful.begin(), doubtful.end()), doubtful.end());
  check_uncertain(state, text, doubtful, out);
}

}  // namespace millrace::grammar
