#include "grammar/nfa.h"

#include <algorithm>
#include <unordered_map>

#include "core/utf8.h"

namespace millrace::grammar {
namespace {

struct Builder {
  const Grammar& g;
  Alphabet alphabet;
  const NfaHooks& hooks;
  Nfa& nfa;
  Budget& budget;

  uint32_t state() {
    budget.add_memory(sizeof(uint32_t) + sizeof(Nfa::Edge));
    return nfa.add_state();
  }
  void range(uint32_t from, uint32_t lo, uint32_t hi, uint32_t to) {
    nfa.add_edge(from, Nfa::Kind::kRange, lo, hi, to);
  }

  uint32_t char_class(const CodepointSet& set, uint32_t from) {
    const uint32_t to = state();
    if (alphabet == Alphabet::kCodepoints) {
      for (const auto& [lo, hi] : set.ranges()) range(from, lo, hi, to);
      return to;
    }
    std::vector<Utf8Sequence> sequences;
    for (const auto& [lo, hi] : set.ranges()) split_utf8(lo, hi, sequences);
    // Equal tails share states: without that, "any character but one" alone would have dozens.
    std::map<std::vector<std::pair<uint8_t, uint8_t>>, uint32_t> tails;
    for (const Utf8Sequence& s : sequences) {
      uint32_t target = to;
      std::vector<std::pair<uint8_t, uint8_t>> tail;
      for (int i = s.length - 1; i >= 1; --i) {
        tail.insert(tail.begin(), s.bytes[i]);
        const auto [it, fresh] = tails.try_emplace(tail, 0);
        if (fresh) {
          it->second = state();
          range(it->second, s.bytes[i].first, s.bytes[i].second, target);
        }
        target = it->second;
      }
      range(from, s.bytes[0].first, s.bytes[0].second, target);
      budget.tick();
    }
    return to;
  }

  uint32_t literal(const std::string& text, uint32_t at) {
    if (alphabet == Alphabet::kCodepoints) {
      for (char32_t c : decode_utf8(text)) {
        const uint32_t to = state();
        range(at, c, c, to);
        at = to;
      }
      return at;
    }
    for (char ch : text) {
      const auto b = static_cast<uint8_t>(ch);
      const uint32_t to = state();
      range(at, b, b, to);
      at = to;
    }
    return at;
  }

  uint32_t copy(const Nfa& part, uint32_t from) {
    const uint32_t base = nfa.size();
    budget.add_memory(part.size() * 4 + part.edges.size() * sizeof(Nfa::Edge));
    for (uint32_t s = 0; s < part.size(); ++s) nfa.add_state();
    for (uint32_t s = 0; s < part.size(); ++s)
      for (uint32_t e = part.head[s]; e != kNone; e = part.edges[e].next)
        nfa.add_edge(base + s, part.edges[e].kind, part.edges[e].lo, part.edges[e].hi,
                     base + part.edges[e].target);
    nfa.epsilon(from, base + part.start);
    return base + part.final;
  }

  uint32_t call(RuleId rule, uint32_t from, bool nullable) {
    const uint32_t to = state();
    nfa.add_edge(from, Nfa::Kind::kCall, rule, 0, to);
    if (nullable) nfa.epsilon(from, to);
    return to;
  }

  uint32_t star(ExprId child, uint32_t from, size_t depth) {
    const uint32_t loop = state(), out = state();
    nfa.epsilon(from, loop);
    nfa.epsilon(build(child, loop, depth + 1), loop);
    nfa.epsilon(loop, out);
    return out;
  }

  uint32_t repeat(ExprId id, uint32_t from, size_t depth) {
    const Expr e = g.exprs[id];  // a copy: `counted` may add expressions
    const ExprId child = e.children[0];
    if (e.min == 0 && e.max == kUnlimited) return star(child, from, depth);
    // Size one copy, then decide.
    const uint32_t states_before = nfa.size();
    const uint64_t copies = e.max == kUnlimited ? uint64_t{e.min} + 1 : e.max;
    uint32_t at = from;
    if (e.min == 0) {  // the first copy is optional as well
      at = state();
      nfa.epsilon(from, at);
    }
    std::vector<uint32_t> skips;
    if (e.min == 0) skips.push_back(at);
    const uint32_t first_entry = at;
    const size_t edges_before = nfa.edges.size();
    at = build(child, at, depth + 1);
    const uint64_t one = nfa.size() - states_before;
    if (copies > 1 && one * copies > kRepeatCopyStates && hooks.counted) {
      // Unhook the trial copy (its states stay behind, unreachable) and count instead.
      unhook(first_entry, edges_before);
      const RuleId rule = hooks.counted(id);
      return call(rule, from, hooks.rule_nullable && hooks.rule_nullable(rule));
    }
    const uint32_t fixed = e.max == kUnlimited ? std::max<uint32_t>(e.min, 1) : e.max;
    for (uint32_t i = 1; i < fixed; ++i) {
      if (i >= e.min) skips.push_back(at);
      const uint32_t entry = state();
      nfa.epsilon(at, entry);
      at = build(child, entry, depth + 1);
      budget.tick();
    }
    if (e.max == kUnlimited) at = star(child, at, depth);
    const uint32_t out = state();
    nfa.epsilon(at, out);
    for (uint32_t s : skips) nfa.epsilon(s, out);
    return out;
  }

  // Removes the edges of `s` that were added since `edges_before`.
  void unhook(uint32_t s, size_t edges_before) {
    while (nfa.head[s] != kNone && nfa.head[s] >= edges_before) nfa.head[s] = nfa.edges[nfa.head[s]].next;
  }

  uint32_t build(ExprId id, uint32_t from, size_t depth) {
    budget.tick();
    budget.check_depth(depth / 4);
    const ExprKind kind = g.exprs[id].kind;
    switch (kind) {
      case ExprKind::kEmpty:
        return from;
      case ExprKind::kNever:
        return state();
      case ExprKind::kClass:
        return char_class(CodepointSet(g.classes[g.exprs[id].index]), from);
      case ExprKind::kByte: {
        const uint32_t to = state();
        range(from, g.exprs[id].min, g.exprs[id].max, to);
        return to;
      }
      case ExprKind::kLiteral:
        return literal(std::string(g.literals[g.exprs[id].index]), from);
      case ExprKind::kSequence: {
        uint32_t at = from;
        for (size_t i = 0; i < g.exprs[id].children.size(); ++i)
          at = build(g.exprs[id].children[i], at, depth + 1);
        return at;
      }
      case ExprKind::kChoice: {
        const uint32_t out = state();
        for (size_t i = 0; i < g.exprs[id].children.size(); ++i) {
          const uint32_t entry = state();
          nfa.epsilon(from, entry);
          nfa.epsilon(build(g.exprs[id].children[i], entry, depth + 1), out);
        }
        return out;
      }
      case ExprKind::kRepeat:
        return repeat(id, from, depth);
      case ExprKind::kRule: {
        const RuleId rule = g.exprs[id].index;
        const Nfa* body = hooks.inlined ? hooks.inlined(rule) : nullptr;
        if (body) return copy(*body, from);
        return call(rule, from, hooks.rule_nullable && hooks.rule_nullable(rule));
      }
      default: {
        const uint32_t to = state();
        const Nfa::Kind edge = kind == ExprKind::kBegin      ? Nfa::Kind::kBegin
                               : kind == ExprKind::kEnd      ? Nfa::Kind::kEnd
                               : kind == ExprKind::kBoundary ? Nfa::Kind::kBoundary
                                                             : Nfa::Kind::kNotBoundary;
        nfa.add_edge(from, edge, 0, 0, to);
        return to;
      }
    }
  }
};

bool is_word(uint32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// What assertions see at one place.
struct Place {
  bool at_begin;
  bool previous_word;
  bool next_word;  ///< false also at the end
};

// States reachable without consuming. An entry is state * 2 + (an end was asserted: nothing more may be
// consumed).
class Closure {
 public:
  explicit Closure(const Nfa& nfa) : nfa_(nfa), mark_(nfa.size() * 2, 0) {}

  void run(const std::vector<uint32_t>& from, const Place& place, std::vector<uint32_t>& out) {
    ++stamp_;
    out.clear();
    for (uint32_t k : from) push(k, out);
    for (size_t i = 0; i < out.size(); ++i) {
      const uint32_t s = out[i] >> 1, ended = out[i] & 1;
      for (uint32_t e = nfa_.head[s]; e != kNone; e = nfa_.edges[e].next) {
        const Nfa::Edge& edge = nfa_.edges[e];
        const bool boundary = place.previous_word != (ended ? false : place.next_word);
        switch (edge.kind) {
          case Nfa::Kind::kEpsilon:
            push(edge.target * 2 + ended, out);
            break;
          case Nfa::Kind::kBegin:
            if (place.at_begin) push(edge.target * 2 + ended, out);
            break;
          case Nfa::Kind::kEnd:
            push(edge.target * 2 + 1, out);
            break;
          case Nfa::Kind::kBoundary:
            if (boundary) push(edge.target * 2 + ended, out);
            break;
          case Nfa::Kind::kNotBoundary:
            if (!boundary) push(edge.target * 2 + ended, out);
            break;
          default:
            break;
        }
      }
    }
  }

 private:
  void push(uint32_t k, std::vector<uint32_t>& out) {
    if (mark_[k] == stamp_) return;
    mark_[k] = stamp_;
    out.push_back(k);
  }
  const Nfa& nfa_;
  std::vector<uint32_t> mark_;
  uint32_t stamp_ = 0;
};

struct VectorHash {
  size_t operator()(const std::vector<uint32_t>& v) const {
    uint64_t h = 0x9e3779b97f4a7c15ULL + v.size();
    for (uint32_t x : v) h = (h ^ x) * 0x9fb21c651e98df25ULL, h ^= h >> 29;
    return h;
  }
};

class Determinizer {
 public:
  Determinizer(const Nfa& nfa, size_t max_states, Budget& budget)
      : nfa_(nfa), max_states_(max_states), budget_(budget), closure_(nfa) {
    for (const auto& e : nfa.edges)
      if (e.kind == Nfa::Kind::kBoundary || e.kind == Nfa::Kind::kNotBoundary) boundaries_ = true;
  }

  Automaton run(bool* exceeded) {
    Automaton a;
    id_of({nfa_.start * 2}, true, false);
    for (size_t at = 0; at < todo_.size(); ++at) {
      if (todo_.size() > max_states_) {
        *exceeded = true;
        return {};
      }
      expand(at, a);
    }
    return a;
  }

 private:
  struct Piece {
    uint32_t lo, hi, target;
  };

  // A key is the sorted kernel, then two flags: at the begin, and after a word character.
  uint32_t id_of(std::vector<uint32_t> kernel, bool at_begin, bool previous_word) {
    std::sort(kernel.begin(), kernel.end());
    kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
    kernel.push_back(at_begin ? 1 : 0);
    kernel.push_back(previous_word && boundaries_ ? 1 : 0);
    const auto [it, fresh] = ids_.try_emplace(std::move(kernel), static_cast<uint32_t>(todo_.size()));
    if (fresh) {
      todo_.push_back(&it->first);
      budget_.add_memory(it->first.size() * 4 + 80);
    }
    return it->second;
  }

  void collect(const std::vector<uint32_t>& from, const Place& place, bool want_word, bool want_other) {
    closure_.run(from, place, reached_);
    budget_.tick(reached_.size() + 1);
    for (uint32_t k : reached_) {
      if (k & 1) continue;
      for (uint32_t e = nfa_.head[k >> 1]; e != kNone; e = nfa_.edges[e].next) {
        const Nfa::Edge& edge = nfa_.edges[e];
        if (edge.kind == Nfa::Kind::kCall && want_other) calls_.push_back({edge.lo, edge.target});
        if (edge.kind != Nfa::Kind::kRange) continue;
        if (want_word && want_other) {
          pieces_.push_back({edge.lo, edge.hi, edge.target});
          continue;
        }
        static constexpr std::pair<uint32_t, uint32_t> kWord[4] = {
            {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
        uint32_t at = edge.lo;
        for (const auto& [lo, hi] : kWord) {
          if (edge.hi < lo || at > hi) continue;
          if (want_other && at < lo) pieces_.push_back({at, lo - 1, edge.target});
          if (want_word) pieces_.push_back({std::max(at, lo), std::min(edge.hi, hi), edge.target});
          at = hi + 1;
          if (at > edge.hi) break;
        }
        if (want_other && at <= edge.hi) pieces_.push_back({at, edge.hi, edge.target});
      }
    }
  }

  void expand(size_t at, Automaton& a) {
    std::vector<uint32_t> kernel = *todo_[at];
    const bool previous_word = kernel.back();
    kernel.pop_back();
    const bool at_begin = kernel.back();
    kernel.pop_back();
    pieces_.clear();
    calls_.clear();
    if (boundaries_) collect(kernel, {at_begin, previous_word, true}, true, false);
    collect(kernel, {at_begin, previous_word, false}, !boundaries_, true);
    bool accepting = false;
    for (uint32_t k : reached_) accepting |= (k >> 1) == nfa_.final;
    emit_ranges(a);
    std::sort(calls_.begin(), calls_.end());
    for (size_t i = 0; i < calls_.size();) {
      size_t j = i;
      std::vector<uint32_t> next;
      for (; j < calls_.size() && calls_[j].first == calls_[i].first; ++j)
        next.push_back(calls_[j].second * 2);
      a.calls.push_back({calls_[i].first, id_of(std::move(next), false, false)});
      i = j;
    }
    a.close_state(accepting);
    budget_.add_states(1);
  }

  void emit_ranges(Automaton& a) {
    if (pieces_.empty()) return;
    std::vector<uint64_t> cuts;
    cuts.reserve(pieces_.size() * 2);
    for (const Piece& p : pieces_) {
      cuts.push_back(p.lo);
      cuts.push_back(uint64_t{p.hi} + 1);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::sort(pieces_.begin(), pieces_.end(), [](const Piece& x, const Piece& y) { return x.lo < y.lo; });
    const size_t begin = a.edges.size();
    std::vector<const Piece*> active;
    size_t next_piece = 0;
    std::vector<uint32_t> next;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto lo = static_cast<uint32_t>(cuts[i]), hi = static_cast<uint32_t>(cuts[i + 1] - 1);
      active.erase(std::remove_if(active.begin(), active.end(), [&](const Piece* p) { return p->hi < lo; }),
                   active.end());
      while (next_piece < pieces_.size() && pieces_[next_piece].lo <= lo)
        active.push_back(&pieces_[next_piece++]);
      if (active.empty()) continue;
      next.clear();
      for (const Piece* p : active) next.push_back(p->target * 2);
      budget_.tick(active.size());
      const uint32_t t = id_of(next, false, boundaries_ && is_word(lo));
      if (a.edges.size() > begin && a.edges.back().target == t && a.edges.back().hi + 1 == lo) {
        a.edges.back().hi = hi;
      } else {
        a.edges.push_back({lo, hi, t});
      }
    }
  }

  const Nfa& nfa_;
  size_t max_states_;
  Budget& budget_;
  Closure closure_;
  bool boundaries_ = false;
  std::unordered_map<std::vector<uint32_t>, uint32_t, VectorHash> ids_;
  std::vector<const std::vector<uint32_t>*> todo_;
  std::vector<uint32_t> reached_;
  std::vector<Piece> pieces_;
  std::vector<std::pair<uint32_t, uint32_t>> calls_;
};

}  // namespace

uint32_t build_nfa(const Grammar& grammar, ExprId expr, Alphabet alphabet, const NfaHooks& hooks, Nfa& nfa,
                   uint32_t from, Budget& budget, size_t depth) {
  Builder b{grammar, alphabet, hooks, nfa, budget};
  return b.build(expr, from, depth);
}

Automaton determinize(const Nfa& nfa, size_t max_states, bool* exceeded, Budget& budget) {
  *exceeded = false;
  Determinizer d(nfa, max_states, budget);
  return d.run(exceeded);
}

Automaton without_epsilon(const Nfa& nfa, Budget& budget) {
  // Entries are (state, at the begin?); only the start is at the begin. Assertions about words need
  // determinize().
  Closure closure(nfa);
  std::vector<uint32_t> reached;
  std::vector<uint32_t> id(nfa.size() + 1, kNone), order;
  Automaton a;
  auto id_of = [&](uint32_t s) {
    if (id[s] == kNone) {
      id[s] = static_cast<uint32_t>(order.size());
      order.push_back(s);
    }
    return id[s];
  };
  const uint32_t begin = nfa.size();
  id_of(begin);
  for (size_t at = 0; at < order.size(); ++at) {
    const bool at_begin = order[at] == begin;
    closure.run({(at_begin ? nfa.start : order[at]) * 2}, {at_begin, false, false}, reached);
    bool accepting = false;
    for (uint32_t k : reached) {
      accepting |= (k >> 1) == nfa.final;
      if (k & 1) continue;
      for (uint32_t e = nfa.head[k >> 1]; e != kNone; e = nfa.edges[e].next) {
        const Nfa::Edge& edge = nfa.edges[e];
        if (edge.kind == Nfa::Kind::kRange) a.edges.push_back({edge.lo, edge.hi, id_of(edge.target)});
        if (edge.kind == Nfa::Kind::kCall) a.calls.push_back({edge.lo, id_of(edge.target)});
      }
    }
    a.close_state(accepting);
    budget.add_states(1);
    budget.add_memory((a.out(a.size() - 1).size()) * sizeof(Dfa::Edge));
    budget.tick(reached.size());
  }
  return a;
}

Automaton trim(const Automaton& a, const std::function<bool(RuleId)>& usable) {
  const uint32_t n = a.size();
  std::vector<std::vector<uint32_t>> in(n);
  for (uint32_t s = 0; s < n; ++s) {
    for (const auto& e : a.out(s)) in[e.target].push_back(s);
    for (const auto& c : a.out_calls(s))
      if (usable(c.rule)) in[c.target].push_back(s);
  }
  std::vector<uint8_t> useful(n, 0);
  std::vector<uint32_t> stack;
  for (uint32_t s = 0; s < n; ++s)
    if (a.accept[s]) useful[s] = 1, stack.push_back(s);
  while (!stack.empty()) {
    const uint32_t s = stack.back();
    stack.pop_back();
    for (uint32_t p : in[s])
      if (!useful[p]) useful[p] = 1, stack.push_back(p);
  }
  Automaton out;
  if (n == 0 || !useful[0]) return out;
  std::vector<uint32_t> id(n, kNone), order{0};
  id[0] = 0;
  auto id_of = [&](uint32_t t) {
    if (id[t] == kNone) id[t] = static_cast<uint32_t>(order.size()), order.push_back(t);
    return id[t];
  };
  for (size_t at = 0; at < order.size(); ++at) {
    for (const auto& e : a.out(order[at]))
      if (useful[e.target]) out.edges.push_back({e.lo, e.hi, id_of(e.target)});
    for (const auto& c : a.out_calls(order[at]))
      if (useful[c.target] && usable(c.rule)) out.calls.push_back({c.rule, id_of(c.target)});
    out.close_state(a.accept[order[at]]);
  }
  return out;
}

Automaton minimize(const Automaton& a, Budget& budget) {
  const uint32_t n = a.size();
  if (n <= 1 || n > 4000) return a;
  std::vector<uint32_t> cls(n), next(n);
  for (uint32_t s = 0; s < n; ++s)
    cls[s] = a.accept[s] | (s == 0 ? 2 : 0);  // the start keeps a state of its own
  size_t num_classes = 0, work = 0;
  std::vector<uint32_t> key;
  for (;;) {
    std::unordered_map<std::vector<uint32_t>, uint32_t, VectorHash> ids;
    for (uint32_t s = 0; s < n; ++s) {
      key.assign(1, cls[s]);
      for (const auto& e : a.out(s)) {
        if (key.size() > 3 && key.back() == cls[e.target] && key[key.size() - 2] + 1 == e.lo) {
          key[key.size() - 2] = e.hi;
        } else {
          key.insert(key.end(), {e.lo, e.hi, cls[e.target]});
        }
      }
      key.push_back(kNone);
      for (const auto& c : a.out_calls(s)) key.insert(key.end(), {c.rule, cls[c.target]});
      next[s] = ids.try_emplace(key, static_cast<uint32_t>(ids.size())).first->second;
    }
    work += n + a.edges.size();
    budget.tick(n + a.edges.size());
    cls.swap(next);
    if (ids.size() == num_classes) break;
    num_classes = ids.size();
    if (num_classes == n || work > 400'000) return a;
  }
  std::vector<uint32_t> representative(num_classes, kNone), id(num_classes, kNone), order;
  for (uint32_t s = n; s-- > 0;) representative[cls[s]] = s;
  auto id_of = [&](uint32_t c) {
    if (id[c] == kNone) id[c] = static_cast<uint32_t>(order.size()), order.push_back(c);
    return id[c];
  };
  id_of(cls[0]);
  Automaton out;
  for (size_t at = 0; at < order.size(); ++at) {
    const uint32_t s = representative[order[at]];
    const size_t begin = out.edges.size();
    for (const auto& e : a.out(s)) {
      const uint32_t t = id_of(cls[e.target]);
      if (out.edges.size() > begin && out.edges.back().target == t && out.edges.back().hi + 1 == e.lo) {
        out.edges.back().hi = e.hi;
      } else {
        out.edges.push_back({e.lo, e.hi, t});
      }
    }
    for (const auto& c : a.out_calls(s)) out.calls.push_back({c.rule, id_of(cls[c.target])});
    out.close_state(a.accept[s]);
  }
  return out;
}

Dfa expr_to_dfa(const Grammar& grammar, ExprId expr, bool search, Budget& budget) {
  Nfa nfa;
  nfa.start = nfa.add_state();
  NfaHooks hooks;
  uint32_t from = nfa.start;
  const auto all = CodepointSet::all();
  if (search) {
    from = nfa.add_state();
    nfa.epsilon(nfa.start, from);
    for (const auto& [lo, hi] : all.ranges()) nfa.add_edge(nfa.start, Nfa::Kind::kRange, lo, hi, nfa.start);
  }
  const uint32_t to = build_nfa(grammar, expr, Alphabet::kCodepoints, hooks, nfa, from, budget);
  nfa.final = to;
  if (search) {
    nfa.final = nfa.add_state();
    nfa.epsilon(to, nfa.final);
    for (const auto& [lo, hi] : all.ranges()) nfa.add_edge(nfa.final, Nfa::Kind::kRange, lo, hi, nfa.final);
  }
  bool exceeded = false;
  const Automaton a = determinize(nfa, 20'000, &exceeded, budget);
  require(!exceeded, ErrorCode::kLimitExceeded,
          "a pattern needs more than 20000 automaton states (limit on states)");
  Dfa d;
  d.first = a.first;
  d.edges = a.edges;
  d.accept = a.accept;
  return minimize(trim(d), budget);
}

}  // namespace millrace::grammar
