#include "grammar/usable.h"

#include <algorithm>

namespace millrace::grammar {
namespace {

struct Verdict {
  bool usable, nullable;
};

class Solver {
 public:
  Solver(const Grammar& g, Budget& budget) : g_(g), budget_(budget) {
    result_.usable.assign(g.rules.size(), 0);
    result_.nullable.assign(g.rules.size(), 0);
  }

  Usable run() {
    const auto n = static_cast<RuleId>(g_.rules.size());
    std::vector<std::vector<RuleId>> users(n);
    for (RuleId r = 0; r < n; ++r)
      for_each_reference(g_, r, [&](RuleId t) {
        if (users[t].empty() || users[t].back() != r) users[t].push_back(r);
        budget_.tick();
      });
    std::vector<RuleId> work(n);
    std::vector<uint8_t> queued(n, 1);
    for (RuleId r = 0; r < n; ++r) work[r] = n - 1 - r;
    while (!work.empty()) {
      const RuleId r = work.back();
      work.pop_back();
      queued[r] = 0;
      const Verdict v = of_rule(r);
      if (v.usable == bool(result_.usable[r]) && v.nullable == bool(result_.nullable[r])) continue;
      result_.usable[r] = v.usable;
      result_.nullable[r] = v.nullable;
      for (RuleId u : users[r])
        if (!queued[u]) queued[u] = 1, work.push_back(u);
    }
    return std::move(result_);
  }

 private:
  Verdict of_rule(RuleId r) {
    const Rule& rule = g_.rules[r];
    budget_.tick();
    switch (rule.kind) {
      case RuleKind::kString: {
        const StringRule& s = g_.strings[rule.index];
        if (s.dfa->never() || s.min > s.max) return {false, false};
        return {LengthOracle(*s.dfa, s.min, s.max, budget_).alive(0, 0), false};
      }
      case RuleKind::kObject:
        return {object_usable(g_.objects[rule.index], result_.usable), false};
      case RuleKind::kArray:
        return {array_usable(g_.arrays[rule.index], result_.usable), false};
      case RuleKind::kExpr:
        if (rule.automaton)
          return {!rule.automaton->never(), !rule.automaton->never() && rule.automaton->accept[0]};
        if (!g_.counted.empty() && g_.counted[r].is) {
          const Counted& c = g_.counted[r];
          const bool nullable = c.min == 0 || result_.nullable[c.body];
          return {nullable || result_.usable[c.body], nullable};
        }
        return of_expr(rule.expr, 0);
    }
    return {false, false};
  }

  Verdict of_expr(ExprId id, size_t depth) {
    const Expr& e = g_.exprs[id];
    budget_.tick();
    budget_.check_depth(depth / 4);
    switch (e.kind) {
      case ExprKind::kNever:
        return {false, false};
      case ExprKind::kClass:
      case ExprKind::kByte:
        return {true, false};
      case ExprKind::kLiteral:
        return {true, g_.literals[e.index].empty()};
      case ExprKind::kRule:
        return {result_.usable[e.index] != 0, result_.nullable[e.index] != 0};
      case ExprKind::kRepeat: {
        const Verdict v = of_expr(e.children[0], depth + 1);
        return {e.min == 0 || v.usable, e.min == 0 || v.nullable};
      }
      case ExprKind::kSequence: {
        Verdict all{true, true};
        for (ExprId c : e.children) {
          const Verdict v = of_expr(c, depth + 1);
          all.usable &= v.usable;
          all.nullable &= v.nullable;
        }
        return all;
      }
      case ExprKind::kChoice: {
        Verdict any{false, false};
        for (ExprId c : e.children) {
          const Verdict v = of_expr(c, depth + 1);
          any.usable |= v.usable;
          any.nullable |= v.nullable;
        }
        return any;
      }
      default:
        return {true, true};
    }
  }

  const Grammar& g_;
  Budget& budget_;
  Usable result_;
};

bool class_usable(const KeyClass& k, const std::vector<uint8_t>& usable) {
  if (k.value != kNone && usable[k.value]) return true;
  return std::any_of(k.claims.begin(), k.claims.end(), [&](const auto& c) { return usable[c.first] != 0; });
}

}  // namespace

Usable find_usable(const Grammar& g, Budget& budget) { return Solver(g, budget).run(); }

bool object_usable(const ObjectRule& o, const std::vector<uint8_t>& usable) {
  std::vector<uint8_t> bit(o.num_tracked, 0);
  bool untracked = false;
  uint64_t claimable = 0;
  for (const KeyClass& k : o.classes) {
    const bool ok = class_usable(k, usable);
    if (k.tracked) {
      bit[k.bit] = ok;
    } else {
      untracked |= ok;
    }
    for (const auto& c : k.claims)
      if (usable[c.first]) claimable |= c.second;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [from, to] : o.implies)
      if (bit[from] && !bit[to]) bit[from] = 0, changed = true;
  }
  std::vector<uint8_t> needed(o.num_tracked, 0);
  std::vector<uint32_t> stack = o.required;
  size_t num_needed = 0;
  while (!stack.empty()) {
    const uint32_t b = stack.back();
    stack.pop_back();
    if (needed[b]) continue;
    if (!bit[b]) return false;
    needed[b] = 1;
    ++num_needed;
    for (const auto& [from, to] : o.implies)
      if (from == b) stack.push_back(to);
  }
  const size_t tracked = static_cast<size_t>(std::count(bit.begin(), bit.end(), 1));
  if (num_needed > o.max_properties || o.min_properties > o.max_properties) return false;
  if (!untracked && tracked < o.min_properties) return false;
  const uint64_t all = o.num_witnesses == 0 ? 0 : ~uint64_t{0} >> (64 - o.num_witnesses);
  return (claimable & all) == all &&
         (o.num_witnesses == 0 || num_needed + o.num_witnesses <= o.max_properties);
}

bool array_usable(const ArrayRule& a, const std::vector<uint8_t>& usable) {
  auto any = [&](const std::vector<ArrayChoice>& list) {
    return std::any_of(list.begin(), list.end(), [&](const ArrayChoice& c) { return usable[c.value] != 0; });
  };
  uint64_t longest = 0;
  bool open = true;
  std::vector<uint64_t> chances(a.contains.size(), 0);
  auto count = [&](const std::vector<ArrayChoice>& list, uint64_t weight) {
    for (size_t j = 0; j < a.contains.size(); ++j)
      for (const ArrayChoice& c : list)
        if (usable[c.value] && ((c.contains >> j) & 1)) {
          chances[j] += weight;
          break;
        }
  };
  for (const auto& list : a.prefix) {
    if (!any(list)) {
      open = false;
      break;
    }
    if (longest >= a.max_items) break;
    ++longest;
    count(list, 1);
  }
  if (open && any(a.rest) && a.max_items > longest) {
    count(a.rest, a.max_items == kUnlimited ? kUnlimited : a.max_items - longest);
    longest = a.max_items == kUnlimited ? ~uint64_t{0} : a.max_items;
  }
  if (longest < a.min_items || a.min_items > a.max_items) return false;
  uint64_t sum = 0;
  for (size_t j = 0; j < a.contains.size(); ++j) {
    if (a.contains[j].min > a.contains[j].max || chances[j] < a.contains[j].min) return false;
    sum = std::max<uint64_t>(sum, a.contains[j].min);
  }
  return sum <= longest;
}

void prune_members(Grammar& g, const std::vector<uint8_t>& usable) {
  for (ObjectRule& o : g.objects)
    for (KeyClass& k : o.classes) {
      if (k.value != kNone && !usable[k.value]) k.value = kNone;
      std::erase_if(k.claims, [&](const auto& c) { return !usable[c.first]; });
    }
  for (ArrayRule& a : g.arrays) {
    auto clean = [&](std::vector<ArrayChoice>& list) {
      std::erase_if(list, [&](const ArrayChoice& c) { return !usable[c.value]; });
    };
    for (auto& list : a.prefix) clean(list);
    clean(a.rest);
    for (size_t i = 0; i < a.prefix.size(); ++i)
      if (a.prefix[i].empty()) {
        a.prefix.resize(i);
        a.rest.clear();
      }
    uint64_t longest = a.prefix.size();
    if (a.rest.empty() && a.max_items > longest) a.max_items = static_cast<uint32_t>(longest);
  }
}

}  // namespace millrace::grammar
