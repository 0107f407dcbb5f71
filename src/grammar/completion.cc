#include "grammar/completion.h"

#include <algorithm>
#include <deque>
#include <queue>

#include "grammar/string_step.h"

namespace millrace::grammar {
namespace {

uint64_t plus(uint64_t a, uint64_t b) { return std::min(CompletionCost::kNever, a + b); }

// Bytes that the character being read still needs beyond the one that the distance of its state counts (which
// has not moved yet where the target is open).
uint64_t bytes_of_phase(uint32_t phase) {
  using namespace string_phase;
  switch (phase) {
    case kTail1:
    case kHexTail1:
    case kBits2:
    case kHex2:
    case kLow2:
      return 1;
    case kTail2:
    case kTailE0:
    case kTailEd:
    case kHexTail2:
    case kBits3:
    case kHex3:
    case kLow3:
    case kLowTail3:
      return 2;
    case kTail3:
    case kTailF0:
    case kTailF4:
    case kHexTail3:
    case kHex4:
    case kLow4:
    case kLowTail4:
      return 3;
    case kLowU:
    case kLowTailU:
      return 4;
    case kLowBackslash:
    case kLowTailBackslash:
      return 5;
    default:
      return 0;
  }
}

}  // namespace

std::vector<uint64_t> CompletionCost::distances(const Dfa& dfa) {
  std::vector<std::vector<uint32_t>> in(dfa.size());
  std::vector<uint64_t> d(dfa.size(), kNever);
  std::deque<uint32_t> queue;
  for (uint32_t s = 0; s < dfa.size(); ++s) {
    for (const auto& e : dfa.out(s)) in[e.target].push_back(s);
    if (dfa.accept[s]) d[s] = 0, queue.push_back(s);
  }
  while (!queue.empty()) {
    const uint32_t s = queue.front();
    queue.pop_front();
    for (uint32_t t : in[s])
      if (d[t] == kNever) d[t] = d[s] + 1, queue.push_back(t);
  }
  return d;
}

CompletionCost::CompletionCost(const Program& program) : p_(program) {
  rule_.assign(p_.rules.size(), kNever);
  position_.assign(p_.num_positions(), kNever);
  for (const CompiledString& s : p_.strings) string_.push_back(distances(*s.dfa));
  for (const CompiledObject& o : p_.objects) {
    std::vector<uint64_t> length(o.rule.classes.size(), kNever);
    std::vector<uint64_t> depth(o.rule.keys->size(), kNever);
    std::deque<uint32_t> queue;
    if (!depth.empty()) depth[0] = 0, queue.push_back(0);
    while (!queue.empty()) {
      const uint32_t s = queue.front();
      queue.pop_front();
      const uint32_t c = o.rule.accept_class[s];
      if (c != kNone) length[c] = std::min(length[c], depth[s]);
      for (const auto& e : o.rule.keys->out(s))
        if (depth[e.target] == kNever) depth[e.target] = depth[s] + 1, queue.push_back(e.target);
    }
    key_length_.push_back(std::move(length));
  }
  for (int round = 0; round < 2000 && relax(); ++round) {
  }
}

uint64_t CompletionCost::class_cost(const KeyClass& k) const {
  uint64_t best = k.value == kNone ? kNever : rule_[k.value];
  for (const auto& c : k.claims) best = std::min(best, rule_[c.first]);
  return best;
}

bool CompletionCost::relax() {
  bool changed = false;
  const auto lower = [&](uint64_t& slot, uint64_t v) {
    if (v < slot) slot = v, changed = true;
  };
  for (uint32_t r = p_.rules.size(); r-- > 0;) {
    const ProgramRule& rule = p_.rules[r];
    if (rule.positions == 0) continue;
    switch (rule.kind) {
      case ProgramRuleKind::kString:
        lower(rule_[r], of_string(p_.strings[rule.index], 0, 0));
        break;
      case ProgramRuleKind::kObject: {
        const CompiledObject& o = p_.objects[rule.index];
        lower(rule_[r], of_object(o, object_at::kOpen, std::vector<uint64_t>(4 + o.words, 0), 0));
        break;
      }
      case ProgramRuleKind::kArray: {
        const ArrayRule& a = p_.arrays[rule.index];
        lower(rule_[r], of_array(a, array_at::kOpen, std::vector<uint64_t>(2 + a.contains.size(), 0)));
        break;
      }
      case ProgramRuleKind::kAutomaton: {
        for (Position q = rule.start + rule.positions; q-- > rule.start;) {
          if (p_.accept[q]) lower(position_[q], 0);
          for (uint32_t e = p_.edge_first[q]; e < p_.edge_first[q + 1]; ++e)
            lower(position_[q], plus(1, position_[p_.edges[e].target]));
          for (uint32_t c = p_.call_first[q]; c < p_.call_first[q + 1]; ++c)
            lower(position_[q], plus(rule_[p_.calls[c].rule], position_[p_.calls[c].target]));
        }
        uint64_t cost = position_[rule.start];
        if (rule.counted && rule.min > 1 && cost < kNever)
          cost = plus(cost, (rule.min - 1) * std::max<uint64_t>(cost, 1));
        lower(rule_[r], cost);
        break;
      }
    }
  }
  return changed;
}

uint64_t CompletionCost::of_string(const CompiledString& s, uint32_t state, uint64_t reg) const {
  const StringRegister r = StringRegister::unpack(reg);
  uint64_t cost = string_[static_cast<size_t>(&s - p_.strings.data())][state];
  const uint64_t min = s.lengths->min();
  if (min > r.count) cost = std::max(cost, min - r.count);
  switch (r.phase) {
    case string_phase::kOpen:
      return plus(cost, 2);
    case string_phase::kChar:
      return plus(cost, 1);
    default:
      return plus(cost, 1 + bytes_of_phase(r.phase));
  }
}

uint64_t CompletionCost::of_object(const CompiledObject& o, Position at, std::span<const uint64_t> record,
                                   uint64_t key) const {
  using namespace object_at;
  const auto& lengths = key_length_[static_cast<size_t>(&o - p_.objects.data())];
  const auto seen = [&](uint32_t b) { return ((record[4 + (b >> 6)] >> (b & 63)) & 1) != 0; };
  const auto property = [&](uint32_t cls) {
    return plus(plus(lengths[cls], class_cost(o.rule.classes[cls])), 4);
  };
  // What is owed: required keys and what they and the seen ones imply, witnesses, and the minimum count.
  std::vector<uint8_t> owed(o.rule.num_tracked, 0);
  std::vector<uint32_t> stack(o.rule.required.begin(), o.rule.required.end());
  for (uint32_t b = 0; b < o.rule.num_tracked; ++b)
    if (seen(b)) stack.insert(stack.end(), o.implied_by[b].begin(), o.implied_by[b].end());
  uint64_t cost = 1, count = 0;
  while (!stack.empty()) {
    const uint32_t b = stack.back();
    stack.pop_back();
    if (owed[b] || seen(b)) continue;
    owed[b] = 1;
    ++count;
    cost = plus(cost, property(o.bit_class[b]));
    stack.insert(stack.end(), o.implied_by[b].begin(), o.implied_by[b].end());
  }
  const uint64_t all = o.rule.num_witnesses == 0 ? 0 : ~uint64_t{0} >> (64 - o.rule.num_witnesses);
  for (uint32_t w = 0; w < o.rule.num_witnesses; ++w) {
    if (((record[3] >> w) & 1) || !((all >> w) & 1)) continue;
    uint64_t best = kNever;
    for (uint32_t c = 0; c < o.rule.classes.size(); ++c)
      for (const auto& claim : o.rule.classes[c].claims)
        if ((claim.second >> w) & 1) best = std::min(best, plus(plus(lengths[c], rule_[claim.first]), 4));
    cost = plus(cost, best);
    ++count;
  }
  if (record[0] + count < o.rule.min_properties) {
    uint64_t cheapest = kNever;
    for (uint32_t c = 0; c < o.rule.classes.size(); ++c)
      if (!o.rule.classes[c].tracked || !(seen(o.rule.classes[c].bit) || owed[o.rule.classes[c].bit]))
        cheapest = std::min(cheapest, property(c));
    cost = plus(cost, std::min(kNever, (o.rule.min_properties - record[0] - count) *
                                           std::min(cheapest, kNever >> 20)));
    count = o.rule.min_properties - record[0];
  }
  switch (at) {
    case kOpen:
      return plus(cost, 1);
    case kFirst:
    case kAfterValue:
      return cost;
    case kNext:
      return count > 0 ? cost - 1 : plus(cost, 6);  // what is owed has its comma counted
    case kColon:
    case kUntrackedKey:
      return plus(plus(cost, class_cost(o.rule.classes[record[1]])), 1);
    case kValue:
      return plus(cost, class_cost(o.rule.classes[record[1]]));
    default:
      break;
  }
  // Inside a key: the nearest usable one, an owed one being a gain.
  uint64_t best = kNever;
  std::deque<std::pair<uint32_t, uint64_t>> queue{{at - kKey, 0}};
  std::vector<uint8_t> visited(o.rule.keys->size(), 0);
  visited[at - kKey] = 1;
  while (!queue.empty()) {
    const auto [s, depth] = queue.front();
    queue.pop_front();
    const uint32_t c = o.rule.accept_class[s];
    if (c != kNone) {
      const KeyClass& k = o.rule.classes[c];
      if (!k.tracked || (!seen(k.bit) && o.bit_usable[k.bit])) {
        uint64_t here = plus(plus(depth, class_cost(k)), plus(cost, 2));
        if (k.tracked && owed[k.bit]) here -= std::min(here, property(c));
        best = std::min(best, here);
      }
    }
    for (const auto& e : o.rule.keys->out(s))
      if (!visited[e.target]) visited[e.target] = 1, queue.push_back({e.target, depth + 1});
  }
  return plus(best, bytes_of_phase(StringRegister::unpack(key).phase));
}

uint64_t CompletionCost::of_array(const ArrayRule& a, Position at, std::span<const uint64_t> record) const {
  using namespace array_at;
  const auto cheapest = [&](const std::vector<ArrayChoice>& list, uint32_t want) {
    uint64_t best = kNever;
    for (const ArrayChoice& c : list)
      if ((c.contains & want) == want) best = std::min(best, rule_[c.value]);
    return best;
  };
  uint64_t index = record[0], cost = 1;
  uint64_t debts = 0;
  for (size_t j = 0; j < a.contains.size(); ++j)
    if (record[1 + j] < a.contains[j].min) {
      const uint64_t n = a.contains[j].min - record[1 + j];
      uint64_t each = cheapest(a.rest, 1u << j);
      for (const auto& list : a.prefix) each = std::min(each, cheapest(list, 1u << j));
      cost = plus(cost, std::min(kNever, n * std::min(plus(each, 1), kNever >> 24)));
      debts += n;
    }
  for (uint64_t i = index + debts; i < a.min_items && i < index + 5000; ++i)
    cost = plus(cost, plus(1, cheapest(i < a.prefix.size() ? a.prefix[i] : a.rest, 0)));
  if (at == kOpen) return plus(cost, 1);
  if (at == kNext && (index < a.min_items || debts > 0)) return cost - 1;
  if (at == kNext && index >= a.min_items && debts == 0)
    return plus(cost, cheapest(index < a.prefix.size() ? a.prefix[index] : a.rest, 0));
  return cost;
}

uint64_t CompletionCost::of_item(const Machine& m, const Item& i) {
  const ProgramRule& rule = p_.rules[p_.rule_of[i.position]];
  switch (rule.kind) {
    case ProgramRuleKind::kAutomaton: {
      uint64_t cost = i.position == kDone ? 0 : position_[i.position];
      if (rule.counted && i.reg < rule.min)
        cost =
            plus(cost, std::min(kNever, (rule.min - i.reg) * std::max<uint64_t>(position_[rule.start], 1)));
      return cost;
    }
    case ProgramRuleKind::kString:
      return of_string(p_.strings[rule.index], i.position - rule.start, i.reg);
    case ProgramRuleKind::kObject:
      return of_object(p_.objects[rule.index], i.position - rule.start, m.record(i.reg),
                       Machine::key_register(i.reg));
    case ProgramRuleKind::kArray:
      return of_array(p_.arrays[rule.index], i.position - rule.start, m.record(i.reg));
  }
  return kNever;
}

uint64_t CompletionCost::of_node(const Machine& m, NodeId node) {
  if (node <= kUnknown) return 0;
  const auto it = nodes_.find(node);
  if (it != nodes_.end()) return it->second;
  // Callers have smaller numbers: resolve from below, without recursion.
  std::vector<NodeId> stack{node};
  while (!stack.empty()) {
    const NodeId n = stack.back();
    bool ready = true;
    uint64_t best = kNever;
    for (const Item& c : m.callers(n)) {
      if (c.node > kUnknown && nodes_.count(c.node) == 0) {
        stack.push_back(c.node);
        ready = false;
        continue;
      }
      if (ready) best = std::min(best, plus(of_item(m, c), c.node > kUnknown ? nodes_[c.node] : 0));
    }
    if (!ready) continue;
    nodes_[n] = best;
    stack.pop_back();
  }
  return nodes_[node];
}

uint64_t CompletionCost::of_state(const Machine& m, StateId state) {
  uint64_t best = kNever;
  if (generation_ != m.generation()) {
    nodes_.clear();
    generation_ = m.generation();
  }
  for (const Item& i : m.items(state)) {
    if (i.position == kEscaped) continue;
    best = std::min(best, plus(of_item(m, i), of_node(m, i.node)));
  }
  return best;
}

}  // namespace millrace::grammar
