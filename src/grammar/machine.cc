#include "grammar/machine.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "grammar/plain_room.h"
#include "grammar/string_step.h"
#include "grammar/value_hash.h"

namespace millrace::grammar {
namespace {

constexpr size_t kMaxItems = 20'000;
constexpr uint32_t kVisitsBeforeTable = 24;
constexpr uint16_t kAsksBeforeLoops = 3;

}  // namespace

Machine::Machine(std::shared_ptr<const Program> program) : program_(std::move(program)) { reset(); }

void Machine::reset() {
  states_.clear();
  state_items_.clear();
  nodes_.clear();
  node_items_.clear();
  records_.clear();
  record_words_.clear();
  node_index_.clear();
  state_index_.clear();
  record_index_.clear();
  memo_.clear();
  dense_.clear();
  loops_.clear();
  candidates_.clear();
  object_facts_.clear();
  facts_of_.clear();
  nodes_.push_back({0, 0, 0xb0});
  nodes_.push_back({0, 0, 0xb1});
  states_.push_back({});  // dead
  start_ = kDeadState;
  static std::atomic<uint64_t> generations{0};
  generation_ = ++generations;
}

StateId Machine::start() {
  if (start_ == kDeadState) {
    std::vector<Item> items;
    if (program_->rules[program_->root].positions)
      items.push_back({program_->rules[program_->root].start, kBottom, initial_register(program_->root)});
    if (program_->root_nullable) items.push_back({kDone, kBottom, 0});
    start_ = intern_state(items);
  }
  return start_;
}

bool Machine::has_record(Position p) const {
  if (p == kEscaped) return false;
  const ProgramRuleKind kind = program_->rules[program_->rule_of[p]].kind;
  return kind == ProgramRuleKind::kObject || kind == ProgramRuleKind::kArray;
}

uint64_t Machine::item_hash(const Item& i) const {
  uint64_t h = mix_hash(0x51, i.position);
  h = mix_hash(h, has_record(i.position) ? records_[static_cast<uint32_t>(i.reg)].hash +
                                               key_register(i.reg) * 0x9e3779b97f4a7c15ULL
                                         : i.reg);
  return mix_hash(h, nodes_[i.node].hash);
}

void Machine::normalise(std::vector<Item>& items) {
  if (items.size() <= 1) return;
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  require(items.size() <= kMaxItems, ErrorCode::kLimitExceeded,
          "the grammar is in more than {} places at once (limit on ambiguity)", kMaxItems);
  // A counted frame in the same place with another count: often one of the two can do all that the other can.
  size_t kept = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (kept > 0 && items[i].position == items[kept - 1].position && items[i].node == items[kept - 1].node &&
        items[i].position != kEscaped) {
      const ProgramRule& rule = program_->rules[program_->rule_of[items[i].position]];
      if (rule.counted && rule.max == kUnlimited) {
        items[kept - 1] = items[i];  // more rounds done is better
        continue;
      }
      if (rule.counted && rule.min <= 1) continue;  // fewer rounds used is better
    }
    items[kept++] = items[i];
  }
  items.resize(kept);
}

NodeId Machine::intern_node(std::vector<Item>& callers) {
  normalise(callers);
  if (callers.size() == 1 && callers[0].position == kDone) return callers[0].node;
  uint64_t h = 0x61;
  for (const Item& i : callers) h = mix_hash(h, item_hash(i));
  const uint32_t known = node_index_.find(h, [&](uint32_t id) {
    const Node& x = nodes_[id];
    return x.hash == h && x.count == callers.size() &&
           std::equal(callers.begin(), callers.end(), node_items_.begin() + x.first);
  });
  if (known != HashIndex::kNone) return known;
  const auto id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back({static_cast<uint32_t>(node_items_.size()), static_cast<uint32_t>(callers.size()), h});
  node_items_.insert(node_items_.end(), callers.begin(), callers.end());
  node_index_.insert(h, id);
  return id;
}

StateId Machine::intern_state(std::vector<Item>& items) {
  normalise(items);
  if (items.empty()) return kDeadState;
  uint64_t h = 0x71;
  for (const Item& i : items)
    h += item_hash(i) * 0x9e3779b97f4a7c15ULL;  // order depends on node numbers: sum
  h = mix_hash(h, items.size());
  const uint32_t known = state_index_.find(h, [&](uint32_t id) {
    const State& x = states_[id];
    return x.hash == h && x.count == items.size() &&
           std::equal(items.begin(), items.end(), state_items_.begin() + x.first);
  });
  if (known != HashIndex::kNone) return known;
  const auto id = static_cast<StateId>(states_.size());
  State s;
  s.first = static_cast<uint32_t>(state_items_.size());
  s.count = static_cast<uint32_t>(items.size());
  s.hash = h;
  for (const Item& i : items) {
    if (i.position == kEscaped) {
      s.escaped = true;
      continue;
    }
    if (!program_->needs_text) continue;
    const ProgramRule& rule = program_->rules[program_->rule_of[i.position]];
    const Position at = i.position - rule.start;
    if (rule.kind == ProgramRuleKind::kObject) s.guarded |= at == object_at::kUntrackedKey;
    if (rule.kind == ProgramRuleKind::kArray)
      s.guarded |= (at >= array_at::kCheckSpace && at <= array_at::kCheckOpen) || at >= array_at::kCheckNext;
  }
  states_.push_back(s);
  state_items_.insert(state_items_.end(), items.begin(), items.end());
  state_index_.insert(h, id);
  return id;
}

uint64_t Machine::intern_record(const std::vector<uint64_t>& words) {
  uint64_t h = 0x81;
  for (uint64_t w : words) h = mix_hash(h, w);
  const uint32_t known = record_index_.find(h, [&](uint32_t id) {
    const Record& x = records_[id];
    return x.hash == h && x.count == words.size() &&
           std::equal(words.begin(), words.end(), record_words_.begin() + x.first);
  });
  if (known != HashIndex::kNone) return known;
  const auto id = static_cast<uint32_t>(records_.size());
  records_.push_back({static_cast<uint32_t>(record_words_.size()), static_cast<uint32_t>(words.size()), h});
  record_words_.insert(record_words_.end(), words.begin(), words.end());
  record_index_.insert(h, id);
  return id;
}

StateId Machine::step(StateId state, uint8_t byte) {
  if (state == kDeadState) return kDeadState;
  State& s = states_[state];
  if (s.candidates != ~uint32_t{0} && !candidates_[s.candidates].test(byte)) return kDeadState;
  if (s.dense != ~uint32_t{0}) {
    StateId& t = dense_[s.dense][byte];
    if (t != ~StateId{0}) return t;
    const uint32_t table = s.dense;
    const StateId computed = compute_step(state, byte);
    dense_[table][byte] = computed;
    return computed;
  }
  const uint64_t key = uint64_t{state} << 8 | byte;
  if (++s.visits >= kVisitsBeforeTable) {
    s.dense = static_cast<uint32_t>(dense_.size());
    dense_.emplace_back();
    dense_.back().fill(~StateId{0});
    return step(state, byte);
  }
  const uint32_t known = memo_.find(key);
  if (known != NumberMap::kNone) return known;
  const StateId t = compute_step(state, byte);
  memo_.insert(key, t);
  return t;
}

bool Machine::may_accept(const Item& i) const {
  if (!program_->accept[i.position]) return false;
  const ProgramRule& rule = program_->rules[program_->rule_of[i.position]];
  return !rule.counted || i.reg >= rule.min;
}

// The items given plus every frame they fall back to. A set guards against shared callers once the list is
// long. With a byte: whether one of them leaves the known part of the stack for it.
void Machine::add_returns(std::vector<Item>& items, const uint8_t* byte, bool& escaped) {
  std::set<Item> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item item = items[i];
    if (item.position == kEscaped) {
      escaped = true;
      continue;
    }
    if (!may_accept(item)) continue;
    if (item.node == kUnknown) {
      escaped |= byte && program_->rules[program_->rule_of[item.position]].follow.test(*byte);
      continue;
    }
    const Node n = nodes_[item.node];
    for (uint32_t k = 0; k < n.count; ++k) {
      const Item caller = node_items_[n.first + k];
      if (items.size() < 48) {
        if (std::find(items.begin(), items.end(), caller) != items.end()) continue;
      } else {
        if (seen.empty()) seen.insert(items.begin(), items.end());
        if (!seen.insert(caller).second) continue;
      }
      items.push_back(caller);
    }
    require(items.size() <= kMaxItems, ErrorCode::kLimitExceeded,
            "the grammar is in more than {} places at once (limit on ambiguity)", kMaxItems);
  }
}

StateId Machine::compute_step(StateId state, uint8_t byte) {
  active_.clear();
  results_.clear();
  num_pending_ = 0;
  pending_of_.clear();
  queue_.clear();
  bool escaped = false;
  const State s = states_[state];
  for (uint32_t i = 0; i < s.count; ++i) active_.push_back(state_items_[s.first + i]);
  add_returns(active_, &byte, escaped);
  for (size_t i = 0; i < active_.size(); ++i)
    if (active_[i].position != kEscaped) step_item(active_[i], byte);
  run_calls(byte);
  if (escaped) results_.push_back({kEscaped, kUnknown, 0});
  return intern_state(results_);
}

void Machine::step_item(const Item& item, uint8_t byte) {
  const ProgramRule& rule = program_->rules[program_->rule_of[item.position]];
  switch (rule.kind) {
    case ProgramRuleKind::kAutomaton:
      return step_automaton(item, byte);
    case ProgramRuleKind::kString:
      return step_string_item(item, byte);
    case ProgramRuleKind::kObject:
      return step_object(item, rule, byte);
    case ProgramRuleKind::kArray:
      return step_array(item, rule, byte);
  }
}

void Machine::step_automaton(const Item& item, uint8_t byte) {
  const Program& p = *program_;
  const Position q = item.position;
  const ProgramRule& rule = p.rules[p.rule_of[q]];
  if (rule.counted && p.loop_head[q] && item.reg >= rule.max) return;
  const auto counted = [&](bool counts) -> uint64_t {
    if (!rule.counted) return 0;
    const uint64_t n = item.reg + (counts ? 1 : 0);
    return rule.max == kUnlimited ? std::min<uint64_t>(n, rule.min) : n;
  };
  for (uint32_t e = p.edge_first[q]; e < p.edge_first[q + 1]; ++e)
    if (p.edges[e].lo <= byte && byte <= p.edges[e].hi)
      emit(p.only_returns[p.edges[e].target] ? kDone : p.edges[e].target, item.node,
           counted(p.edges[e].counts));
  for (uint32_t c = p.call_first[q]; c < p.call_first[q + 1]; ++c)
    if (p.rules[p.calls[c].rule].first.test(byte)) {
      const Position t = p.calls[c].target;
      add_call(p.calls[c].rule, {p.only_returns[t] ? kDone : t, item.node, counted(p.calls[c].counts)});
    }
}

void Machine::step_string_item(const Item& item, uint8_t byte) {
  const Program& p = *program_;
  const ProgramRule& rule = p.rules[p.rule_of[item.position]];
  const CompiledString& s = p.strings[rule.index];
  uint32_t state = item.position - rule.start;
  StringRegister r = StringRegister::unpack(item.reg);
  const LengthOracle& lengths = *s.lengths;
  const bool counts = !lengths.trivial();
  const StringResult result = step_string(
      *s.dfa, state, r, byte, [&](uint32_t t, uint64_t n) { return lengths.alive(t, n); },
      [&](uint64_t n) { return counts ? lengths.clamp(n) : 0; },
      [&](uint32_t t, uint64_t n) {
        return s.dfa->accept[t] && (!counts || (n >= lengths.min() && n <= lengths.max()));
      });
  if (result == StringResult::kInside) emit(rule.start + state, item.node, r.pack());
  if (result != StringResult::kClosed) return;
  finish(item.node, results_);
}

// Whether `caller` compares what was called, and so must know at once that it ended.
bool Machine::compares_end(const Item& caller) const {
  if (caller.position == kEscaped) return false;
  const ProgramRule& rule = program_->rules[program_->rule_of[caller.position]];
  const Position at = caller.position - rule.start;
  return rule.kind == ProgramRuleKind::kObject  ? at == object_at::kUntrackedKey
         : rule.kind == ProgramRuleKind::kArray ? at == array_at::kReturned
                                                : false;
}

void Machine::finish(NodeId node, std::vector<Item>& out) {
  if (program_->needs_text && node > kUnknown) {
    const std::vector<Item> above(callers(node).begin(), callers(node).end());
    std::vector<Item> others;
    for (Item c : above) {
      if (!compares_end(c)) {
        others.push_back(c);
        continue;
      }
      const ProgramRule& rule = program_->rules[program_->rule_of[c.position]];
      if (rule.kind == ProgramRuleKind::kArray) c.position = rule.start + array_at::kCheckEnd;
      out.push_back(c);
    }
    if (others.empty()) return;
    if (others.size() < above.size()) node = intern_node(others);
  }
  out.push_back({kDone, node, 0});
}

void Machine::add_call(uint32_t rule, const Item& caller) {
  const auto [it, fresh] = pending_of_.try_emplace(rule, static_cast<uint32_t>(num_pending_));
  if (fresh) {
    if (num_pending_ == pending_.size()) pending_.emplace_back();
    pending_[num_pending_].rule = rule;
    pending_[num_pending_].callers.clear();
    queue_.push_back({program_->rules[rule].rank, static_cast<uint32_t>(num_pending_)});
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
    ++num_pending_;
  }
  std::vector<Item>& callers = pending_[it->second].callers;
  // A caller with nothing left to do is skipped: its own callers are returned to. So right recursion keeps
  // the stack flat.
  if (caller.position == kDone && caller.node > kUnknown) {
    const Node n = nodes_[caller.node];
    for (uint32_t k = 0; k < n.count; ++k) callers.push_back(node_items_[n.first + k]);
    require(callers.size() <= 8 * kMaxItems, ErrorCode::kLimitExceeded,
            "the grammar is in more than {} places at once (limit on ambiguity)", kMaxItems);
  } else {
    callers.push_back(caller);
  }
}

void Machine::run_calls(uint8_t byte) {
  // By rank: when a rule's turn comes, everyone that calls it here has been seen.
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const uint32_t k = queue_.back().second;
    queue_.pop_back();
    std::vector<Item> callers = std::move(pending_[k].callers);
    const uint32_t rule = pending_[k].rule;
    const NodeId node = intern_node(callers);
    callers.clear();
    pending_[k].callers = std::move(callers);
    if (program_->rules[rule].positions)
      step_item({program_->rules[rule].start, node, initial_register(rule)}, byte);
  }
}

bool Machine::can_end(StateId s) {
  if (s == kDeadState) return false;
  std::vector<Item> work(items(s).begin(), items(s).end());
  std::set<Item> seen;
  while (!work.empty()) {
    const Item i = work.back();
    work.pop_back();
    if (i.position == kEscaped || !may_accept(i)) continue;
    if (i.node == kBottom) return true;
    const Node& n = nodes_[i.node];
    for (uint32_t k = 0; k < n.count; ++k)
      if (n.count == 1 || seen.insert(node_items_[n.first + k]).second)
        work.push_back(node_items_[n.first + k]);
  }
  return false;
}

bool Machine::finished(StateId s) {
  if (s == kDeadState) return true;
  const ByteSet set = candidates(s);  // a copy: stepping may make new ones
  for (unsigned b = 0; b < 256; ++b)
    if (set.test(static_cast<uint8_t>(b)) && step(s, static_cast<uint8_t>(b)) != kDeadState) return false;
  return true;
}

// Puts what names the item into `key`, and gives it back with an unknown stack. What only matters when texts
// are compared is left out: where masks are made, a comparison is a doubt whatever it would say.
Item Machine::named(Item item, std::string& key) {
  const auto put = [&](uint64_t v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  item.node = kUnknown;
  const uint32_t r = program_->rule_of[item.position];
  const ProgramRule& rule = program_->rules[r];
  put(program_->identity[r].a);
  put(program_->identity[r].b);
  put(item.position - rule.start);
  if (!has_record(item.position)) {
    put(item.reg);
    return item;
  }
  const auto words = record(item.reg);
  const size_t shared = record_words_without_text(rule);
  std::vector<uint64_t> kept(words.begin(),
                             words.begin() + static_cast<ptrdiff_t>(std::min(shared, words.size())));
  for (uint64_t w : kept) put(w);
  put(key_register(item.reg));
  if (words.size() > shared) {
    // An array notes first where its item starts.
    if (rule.kind == ProgramRuleKind::kArray) kept.push_back(0);
    item.reg = key_register(item.reg) << 32 | intern_record(kept);
  }
  return item;
}

size_t Machine::record_words_without_text(const ProgramRule& rule) const {
  if (rule.kind == ProgramRuleKind::kObject) return 4 + program_->objects[rule.index].words;
  const ArrayRule& a = program_->arrays[rule.index];
  return 1 + a.contains.size() + (a.num_unique_bits + 63) / 64 + (a.repeats ? 1 : 0);
}

StateId Machine::cut(const Item& item, std::string& key) {
  key.clear();
  std::vector<Item> items{named(item, key)};
  // What will be compared when it ends: the frame below decides, so it stays.
  if (program_->needs_text && item.node > kUnknown && item.position != kDone) {
    const std::vector<Item> above(callers(item.node).begin(), callers(item.node).end());
    if (std::any_of(above.begin(), above.end(), [&](const Item& c) { return compares_end(c); })) {
      std::vector<Item> below;
      below.reserve(above.size());
      for (const Item& c : above) below.push_back(named(c, key));
      items[0].node = intern_node(below);
    }
  }
  return intern_state(items);
}

void Machine::closure(StateId s, std::vector<Item>& out) {
  out.assign(items(s).begin(), items(s).end());
  bool escaped = false;
  add_returns(out, nullptr, escaped);
}

StateId Machine::without_escape(StateId s) {
  if (!states_[s].escaped) return s;
  std::vector<Item> left;
  for (const Item& i : items(s))
    if (i.position != kEscaped) left.push_back(i);
  return intern_state(left);
}

uint64_t Machine::plain_room(const Item& i) const {
  const ProgramRule& rule = program_->rules[program_->rule_of[i.position]];
  if (rule.kind == ProgramRuleKind::kObject) return key_room(i, rule);
  if (rule.kind != ProgramRuleKind::kString) return 0;
  const CompiledString& text = program_->strings[rule.index];
  const StringRegister r = StringRegister::unpack(i.reg);
  if (r.phase != string_phase::kChar) return 0;
  const uint64_t max = text.lengths->max(), room = text.plain_room[i.position - rule.start];
  if (max != ~uint64_t{0}) return text.any_text ? max - std::min(max, r.count) : 0;
  if (room == kEndless) return ~uint64_t{0};
  return text.lengths->trivial() ? room : 0;
}

uint64_t Machine::plain_room(StateId s) const {
  uint64_t most = 0;
  bool exact = !states_[s].escaped;
  for (const Item& i : items(s)) {
    const uint64_t room = i.position == kEscaped ? 0 : plain_room(i);
    if (room == ~uint64_t{0}) return room;
    exact &= room > 0;
    most = std::max(most, room);
  }
  return exact ? most : 0;
}

const Machine::Loops* Machine::loops(StateId s) {
  if (states_[s].loops != ~uint32_t{0}) return &loops_[states_[s].loops];
  if (states_[s].loop_asks++ < kAsksBeforeLoops) return nullptr;
  Loops l;
  for (unsigned b = 0; b < 128; ++b)
    if (step(s, static_cast<uint8_t>(b)) == s) l.ascii[b >> 6] |= uint64_t{1} << (b & 63);
  // Every well-formed character beyond ASCII must lead back. The decoder shares states between lead bytes, so
  // that this takes a few hundred steps where it holds, and fails early elsewhere.
  const auto all = [&](StateId from, unsigned lo, unsigned hi, StateId& to) {
    to = step(from, static_cast<uint8_t>(lo));
    for (unsigned b = lo; b <= hi; ++b)
      if (step(from, static_cast<uint8_t>(b)) != to) return false;
    return to != kDeadState;
  };
  const auto chain = [&](unsigned lead_lo, unsigned lead_hi, unsigned second_lo, unsigned second_hi,
                         int more) {
    StateId t;
    if (!all(s, lead_lo, lead_hi, t) || !all(t, second_lo, second_hi, t)) return false;
    for (int i = 0; i < more; ++i)
      if (!all(t, 0x80, 0xbf, t)) return false;
    return t == s;
  };
  l.utf8 = chain(0xc2, 0xdf, 0x80, 0xbf, 0) && chain(0xe0, 0xe0, 0xa0, 0xbf, 1) &&
           chain(0xe1, 0xec, 0x80, 0xbf, 1) && chain(0xed, 0xed, 0x80, 0x9f, 1) &&
           chain(0xee, 0xef, 0x80, 0xbf, 1) && chain(0xf0, 0xf0, 0x90, 0xbf, 2) &&
           chain(0xf1, 0xf3, 0x80, 0xbf, 2) && chain(0xf4, 0xf4, 0x80, 0x8f, 2);
  states_[s].loops = static_cast<uint32_t>(loops_.size());
  loops_.push_back(l);
  return &loops_.back();
}

size_t Machine::bytes() const {
  return states_.size() * sizeof(State) + state_items_.size() * sizeof(Item) + nodes_.size() * sizeof(Node) +
         node_items_.size() * sizeof(Item) + records_.size() * sizeof(Record) +
         (record_words_.size() + object_facts_.size()) * 8 + state_index_.bytes() + node_index_.bytes() +
         record_index_.bytes() + memo_.bytes() + dense_.size() * 1024 + candidates_.size() * sizeof(ByteSet);
}

void Machine::compact(const std::vector<StateId*>& keep) {
  const auto old_items = std::move(state_items_);
  const auto old_states = std::move(states_);
  const auto old_nodes = std::move(nodes_);
  const auto old_node_items = std::move(node_items_);
  const auto old_records = std::move(records_);
  const auto old_words = std::move(record_words_);
  reset();
  std::vector<uint8_t> live(old_nodes.size(), 0);
  live[kBottom] = live[kUnknown] = 1;
  for (const StateId* s : keep)
    for (uint32_t i = 0; i < old_states[*s].count; ++i) live[old_items[old_states[*s].first + i].node] = 1;
  // A node's callers have smaller numbers than the node itself.
  for (size_t n = old_nodes.size(); n-- > 2;)
    if (live[n])
      for (uint32_t k = 0; k < old_nodes[n].count; ++k) live[old_node_items[old_nodes[n].first + k].node] = 1;
  std::vector<NodeId> moved(old_nodes.size(), 0);
  moved[kUnknown] = kUnknown;
  const auto move_item = [&](Item i) {
    i.node = moved[i.node];
    if (has_record(i.position)) {
      const Record& r = old_records[static_cast<uint32_t>(i.reg)];
      i.reg = key_register(i.reg) << 32 |
              intern_record({old_words.begin() + r.first, old_words.begin() + r.first + r.count});
    }
    return i;
  };
  std::vector<Item> scratch;
  for (size_t n = 2; n < old_nodes.size(); ++n) {
    if (!live[n]) continue;
    scratch.clear();
    for (uint32_t k = 0; k < old_nodes[n].count; ++k)
      scratch.push_back(move_item(old_node_items[old_nodes[n].first + k]));
    moved[n] = intern_node(scratch);
  }
  for (StateId* s : keep) {
    if (*s == kDeadState) continue;
    scratch.clear();
    for (uint32_t i = 0; i < old_states[*s].count; ++i)
      scratch.push_back(move_item(old_items[old_states[*s].first + i]));
    *s = intern_state(scratch);
  }
}

}  // namespace millrace::grammar
