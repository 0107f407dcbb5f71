#include "grammar/mask.h"

#include <algorithm>

#include "grammar/string_step.h"

namespace millrace::grammar {
namespace {

constexpr size_t kWorthStandIn = 6;      ///< bytes that a stand-in must judge rightly to be used
constexpr size_t kMostLeftOver = 600;    ///< tokens that a stand-in may leave to be looked at one by one
constexpr size_t kMostPlaces = 192;      ///< beyond this a walk with the whole configuration is cheaper
constexpr uint32_t kSmallSubtree = 400;  ///< nodes that are walked rather than looked up

void set_bit(std::span<uint64_t> bits, uint32_t id) { bits[id >> 6] |= uint64_t{1} << (id & 63); }

}  // namespace

void MaskBuilder::set_run(uint32_t first, uint32_t last) {
  const auto& order = trie_.order();
  for (uint32_t p = first; p < last; ++p) set_bit(bits_, static_cast<uint32_t>(order[p]));
}

// Inside a string that takes any plain text: such tokens differ only in their number of characters.
bool MaskBuilder::mark_plain(uint64_t room, uint32_t top) {
  if (room == 0) return false;
  if (top == kWhole && (room < TokenTrie::kMostCounted || room >= trie_.max_token_bytes())) {
    const auto& plain = trie_.plain_at_most(room);
    for (size_t w = 0; w < bits_.size(); ++w) bits_[w] |= plain[w];
    return true;
  }
  const uint32_t depth = depth_of(top), before = top == kWhole ? 0 : trie_.nodes()[top].chars;
  const uint32_t first = top == kWhole ? 0 : trie_.nodes()[top].tokens + trie_.nodes()[top].ends;
  const uint32_t last = top == kWhole ? static_cast<uint32_t>(trie_.order().size()) : trie_.last_token(top);
  for (uint32_t p = first; p < last; ++p) {
    const TokenTrie::Plain& plain = trie_.plain(p);
    if (plain.odd_end <= depth && static_cast<uint64_t>(plain.chars - before) <= room)
      set_bit(bits_, static_cast<uint32_t>(trie_.order()[p]));
  }
  return true;
}

// Whether everything below `node` leads from `state` back to it.
bool MaskBuilder::loops_below(StateId state, uint32_t node) {
  const Machine::Loops* loops = machine_.loops(state);
  if (!loops) return false;
  const TokenTrie::Below& below = trie_.below(node);
  return !(below.ascii[0] & ~loops->ascii[0]) && !(below.ascii[1] & ~loops->ascii[1]) &&
         (below.only_ascii || (loops->utf8 && below.utf8));
}

std::shared_ptr<const PlaceMask> MaskBuilder::walk(StateId state, uint32_t top) {
  bits_.assign(trie_.mask_words(), 0);
  std::vector<uint32_t> doubts;
  const uint64_t room = machine_.plain_room(state);
  const bool marked = mark_plain(room, top);
  Machine::KeyPlace key;
  if (machine_.key_place(state, key)) {
    walk_key(key, top, marked, doubts);
  } else {
    walk_below({state, marked}, top, true, doubts);
  }
  return packed(std::move(doubts), room);
}

// `s` is where node `i` leads. Whether what lies below is still to be walked.
bool MaskBuilder::enter(StateId s, uint32_t i, bool settled, std::vector<uint32_t>& doubts) {
  const TokenTrie::Node& node = trie_.nodes()[i];
  if (s == kDeadState) return false;
  if (machine_.guarded(s) || machine_.only_escaped(s)) {
    doubts.push_back(i);
    return false;
  }
  if (!settled) set_run(node.tokens, node.tokens + node.ends);
  return node.skip > i + 1;
}

void MaskBuilder::walk_below(Level from, uint32_t top, bool whole_token, std::vector<uint32_t>& doubts) {
  const auto& nodes = trie_.nodes();
  const uint32_t base = depth_of(top), end = end_node(top);
  std::vector<Level> path{from};
  Machine::KeyPlace key;
  for (uint32_t i = first_node(top); i < end;) {
    const TokenTrie::Node& node = nodes[i];
    path.resize(node.depth - base);
    const Level parent = path.back();
    const bool settled = parent.marked && !node.odd;
    if (settled && !node.odd_below) {
      i = node.skip;
      continue;
    }
    if (!settled && node.big && node.byte >= 0x80 && node.border) {
      // A whole script at once, where characters beyond ASCII change nothing.
      const Machine::Loops* loops = machine_.loops(parent.state);
      const TokenTrie::Below& below = trie_.below(i);
      if (loops && loops->utf8 && !(below.ascii[0] & ~loops->ascii[0]) &&
          !(below.ascii[1] & ~loops->ascii[1])) {
        set_run(node.tokens, trie_.last_token(i));
        i = node.skip;
        continue;
      }
    }
    // Most nodes lead nowhere, and asking for the bytes that do not costs less than stepping by each.
    if (!machine_.candidates(parent.state).test(node.byte)) {
      i = node.skip;
      continue;
    }
    StateId s = machine_.step(parent.state, node.byte);
    // What leaves the frame with its first byte belongs to the frames below, which have masks of their own.
    if (path.size() == 1 && whole_token) s = machine_.without_escape(s);
    if (!enter(s, i, settled, doubts)) {
      i = node.skip;
      continue;
    }
    bool now = settled;
    if (!now && node.big && loops_below(s, i)) {
      set_run(node.tokens + node.ends, trie_.last_token(i));
      i = node.skip;
      continue;
    }
    if (!now) now = mark_plain(machine_.plain_room(s), i);
    if (machine_.key_place(s, key)) {
      walk_key(key, i, now, doubts);
      i = node.skip;
      continue;
    }
    path.push_back({s, now});
    ++i;
  }
}

// The same inside a key of an object, where hardly two nodes lead to the same place.
void MaskBuilder::walk_key(const Machine::KeyPlace& place, uint32_t top, bool marked,
                           std::vector<uint32_t>& doubts) {
  const auto& nodes = trie_.nodes();
  const uint32_t base = depth_of(top), end = end_node(top);
  std::vector<KeyLevel> path{{place, marked}};
  for (uint32_t i = first_node(top); i < end;) {
    const TokenTrie::Node& node = nodes[i];
    path.resize(node.depth - base);
    const bool settled = path.back().marked && !node.odd;
    if (settled && !node.odd_below) {
      i = node.skip;
      continue;
    }
    Machine::KeyPlace to = path.back().place;
    const Machine::KeyStep step = machine_.step_key(to, node.byte);
    if (step == Machine::KeyStep::kInside) {
      if (!settled) set_run(node.tokens, node.tokens + node.ends);
      if (node.skip > i + 1) {
        bool now = settled;
        if (!now) now = mark_plain(machine_.plain_room(machine_.item_of(to)), i);
        path.push_back({to, now});
        ++i;
        continue;
      }
    } else if (step == Machine::KeyStep::kLeaves) {
      const StateId s = machine_.step(machine_.state_of(path.back().place), node.byte);
      if (enter(s, i, settled, doubts)) {
        const bool now = settled || mark_plain(machine_.plain_room(s), i);
        walk_below({s, now}, i, false, doubts);
      }
    }
    i = node.skip;
  }
}

std::shared_ptr<const PlaceMask> MaskBuilder::packed(std::vector<uint32_t> doubts, uint64_t room) const {
  auto mask = std::make_shared<PlaceMask>();
  mask->doubts = std::move(doubts);
  size_t accepted = 0;
  for (uint64_t w : bits_) accepted += static_cast<size_t>(std::popcount(w));
  const size_t rejected = trie_.order().size() - accepted;
  const size_t short_list = trie_.mask_words() / 2;  // a list is slower to apply than a bitset of its bytes
  if (std::min(accepted, rejected) > short_list && room > 0) {
    // Strings of any text are alike but for some hundred tokens.
    const uint64_t base = std::min<uint64_t>(room, TokenTrie::kMostCounted);
    const auto& plain = trie_.plain_at_most(base);
    size_t flips = 0;
    for (size_t w = 0; w < bits_.size(); ++w)
      flips += static_cast<size_t>(std::popcount(bits_[w] ^ plain[w]));
    if (flips <= short_list) {
      mask->form = PlaceMask::Form::kPlain;
      mask->room = static_cast<uint32_t>(base);
      mask->list.reserve(flips);
      for (size_t w = 0; w < bits_.size(); ++w)
        for (uint64_t left = bits_[w] ^ plain[w]; left; left &= left - 1)
          mask->list.push_back(static_cast<uint32_t>(w * 64 + static_cast<size_t>(std::countr_zero(left))));
      return mask;
    }
  }
  if (std::min(accepted, rejected) > short_list) {
    mask->form = PlaceMask::Form::kBits;
    mask->bits = bits_;
    return mask;
  }
  mask->form = accepted <= rejected ? PlaceMask::Form::kAccepted : PlaceMask::Form::kRejected;
  mask->list.reserve(std::min(accepted, rejected));
  const auto& all = trie_.text_mask();
  for (size_t w = 0; w < bits_.size(); ++w)
    for (uint64_t left = accepted <= rejected ? bits_[w] : all[w] & ~bits_[w]; left; left &= left - 1)
      mask->list.push_back(static_cast<uint32_t>(w * 64 + static_cast<size_t>(std::countr_zero(left))));
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
  if (trie_.longer_than(stand.exact_bytes) > kMostLeftOver) return same;
  if (rule.kind == ProgramRuleKind::kString) {
    r.count = to;
    stand.item.reg = r.pack();
  } else {
    stand.item.reg = to;
  }
  return stand;
}

std::shared_ptr<const PlaceMask> MaskBuilder::place(const Item& item, uint32_t top) {
  const StateId cut = machine_.cut(item, key_);
  if (top != kWhole) key_.append(reinterpret_cast<const char*>(&top), sizeof top);
  PlaceCache& cache = trie_.places();
  if (auto mask = cache.find(key_)) return mask;
  auto mask = walk(cut, top);
  cache.insert(key_, mask);
  return mask;
}

StateId MaskBuilder::step_real(StateId state, std::string& text, uint8_t byte) {
  StateId s = machine_.step(state, byte);
  if (machine_.program().needs_text) {
    text.push_back(static_cast<char>(byte));
    if (machine_.guarded(s)) {
      used_text_ = true;
      s = machine_.resolve(s, text);
    }
  }
  return s;
}

void MaskBuilder::walk_real(StateId state, std::string& text, uint32_t top, std::span<uint64_t> out) {
  const auto& nodes = trie_.nodes();
  const auto& order = trie_.order();
  const size_t length = text.size();
  const uint32_t base = depth_of(top), end = end_node(top);
  const bool with_text = machine_.program().needs_text;
  std::vector<StateId> path{state};
  for (uint32_t i = first_node(top); i < end;) {
    const TokenTrie::Node& node = nodes[i];
    path.resize(node.depth - base);
    if (!machine_.candidates(path.back()).test(node.byte)) {
      i = node.skip;
      continue;
    }
    if (with_text) text.resize(length + path.size() - 1);
    const StateId s = step_real(path.back(), text, node.byte);
    if (s == kDeadState) {
      i = node.skip;
      continue;
    }
    for (uint32_t p = node.tokens; p < node.tokens + node.ends; ++p)
      set_bit(out, static_cast<uint32_t>(order[p]));
    path.push_back(s);
    ++i;
  }
  if (with_text) text.resize(length);
}

void MaskBuilder::check_tokens(StateId state, std::string_view text, std::vector<uint32_t>& places,
                               std::span<uint64_t> out) {
  std::erase_if(places, [&](uint32_t p) {
    const auto id = static_cast<uint32_t>(trie_.order()[p]);
    return ((out[id >> 6] >> (id & 63)) & 1) != 0;
  });
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const bool with_text = machine_.program().needs_text;
  std::string output(with_text ? text : std::string_view{});
  std::vector<StateId> path{state};
  std::string_view before;
  size_t valid = 0;  // bytes of `before` whose states are in `path`
  size_t dead = 0;   // if not 0: `before` died at its dead-th byte
  for (uint32_t place : places) {
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
      s = step_real(s, output, static_cast<uint8_t>(bytes[valid]));
      if (s == kDeadState) {
        dead = valid + 1;
        break;
      }
      path.push_back(s);
    }
    if (!dead) set_bit(out, static_cast<uint32_t>(trie_.order()[place]));
  }
}

namespace {

// Adds `base` but for the ids of `list`, which is ascending.
void apply_flipped(const std::vector<uint64_t>& base, const std::vector<uint32_t>& list,
                   std::span<uint64_t> out) {
  size_t w = 0;
  for (size_t next = 0; next < list.size();) {
    const size_t at = list[next] >> 6;
    for (; w < at; ++w) out[w] |= base[w];
    uint64_t flips = 0;
    for (; next < list.size() && list[next] >> 6 == at; ++next) flips |= uint64_t{1} << (list[next] & 63);
    out[w] |= base[w] ^ flips;
    ++w;
  }
  for (; w < out.size(); ++w) out[w] |= base[w];
}

}  // namespace

void MaskBuilder::apply(const PlaceMask& mask, std::span<uint64_t> out) const {
  switch (mask.form) {
    case PlaceMask::Form::kAccepted:
      for (uint32_t id : mask.list) set_bit(out, id);
      break;
    case PlaceMask::Form::kBits:
      for (size_t w = 0; w < out.size(); ++w) out[w] |= mask.bits[w];
      break;
    case PlaceMask::Form::kRejected:
      return apply_flipped(trie_.text_mask(), mask.list, out);
    case PlaceMask::Form::kPlain:
      return apply_flipped(trie_.plain_at_most(mask.room), mask.list, out);
  }
}

void MaskBuilder::apply_stand(const Stand& stand, const Item& item, const PlaceMask& mask,
                              std::span<uint64_t> out, std::vector<uint32_t>& doubtful) {
  const uint64_t room = machine_.plain_room(item);
  own_.assign(out.size(), 0);
  apply(mask, own_);
  for (uint32_t p : trie_.longest_first()) {
    if (trie_.bytes_of(p).size() <= stand.exact_bytes) break;
    const auto id = static_cast<uint32_t>(trie_.order()[p]);
    uint64_t& word = own_[id >> 6];
    // Plain tokens need no look at their characters where a string takes any.
    if (room > 0 && trie_.plain(p).odd_end == 0) {
      word &= ~(uint64_t{1} << (id & 63));
      if (trie_.plain(p).chars <= room) word |= uint64_t{1} << (id & 63);
      continue;
    }
    // A stand-in with more room allows at least what the place does; one below its minimum says nothing here.
    if (!stand.allows_more || ((word >> (id & 63)) & 1)) doubtful.push_back(p);
    word &= ~(uint64_t{1} << (id & 63));
  }
  for (size_t w = 0; w < own_.size(); ++w) out[w] |= own_[w];
}

void MaskBuilder::fill_below(StateId state, std::string& text, uint32_t top, std::span<uint64_t> out) {
  std::vector<Item> items;
  machine_.closure(state, items);
  if (items.size() > kMostPlaces) return walk_real(state, text, top, out);
  std::vector<uint32_t> doubts, doubtful;
  for (const Item& item : items) {
    if (item.position == kEscaped || item.position == kDone) continue;
    Stand stand = stand_in(item);
    if (top != kWhole) stand = {item, trie_.max_token_bytes(), true};
    const std::shared_ptr<const PlaceMask> mask = place(stand.item, top);
    if (stand.exact_bytes < trie_.max_token_bytes()) {
      apply_stand(stand, item, *mask, out, doubtful);
    } else {
      apply(*mask, out);
    }
    doubts.insert(doubts.end(), mask->doubts.begin(), mask->doubts.end());
  }
  if (!doubtful.empty()) check_tokens(state, text, doubtful, out);
  if (doubts.empty()) return;
  std::sort(doubts.begin(), doubts.end());
  const auto& nodes = trie_.nodes();
  const size_t length = text.size();
  uint32_t done = 0;
  for (uint32_t d : doubts) {
    if (d < done) continue;  // below an earlier one, or the same
    done = nodes[d].skip;
    const std::string_view bytes = std::string_view(trie_.bytes_of(nodes[d].tokens))
                                       .substr(depth_of(top), nodes[d].depth - depth_of(top));
    StateId s = state;
    for (size_t i = 0; i < bytes.size() && s != kDeadState; ++i)
      s = step_real(s, text, static_cast<uint8_t>(bytes[i]));
    if (s != kDeadState) {
      for (uint32_t p = nodes[d].tokens; p < nodes[d].tokens + nodes[d].ends; ++p)
        set_bit(out, static_cast<uint32_t>(trie_.order()[p]));
      if (done - d > kSmallSubtree) {
        fill_below(s, text, d, out);
      } else if (done > d + 1) {
        walk_real(s, text, d, out);
      }
    }
    if (machine_.program().needs_text) text.resize(length);
  }
}

void MaskBuilder::fill(StateId state, std::string_view text, std::span<uint64_t> out) {
  std::fill(out.begin(), out.end(), 0);
  used_text_ = false;
  if (state == kDeadState) return;
  std::string output(machine_.program().needs_text ? text : std::string_view{});
  fill_below(state, output, kWhole, out);
}

void MaskBuilder::prepare(StateId state) {
  std::vector<Item> items;
  machine_.closure(state, items);
  if (items.size() > kMostPlaces) return;
  for (const Item& item : items)
    if (item.position != kEscaped && item.position != kDone) place(stand_in(item).item, kWhole);
}

}  // namespace millrace::grammar
