// Grammar to program. Each step is a pass over the rules; none recurses along the grammar, so that chains of
// thousands of rules cost stack nowhere.

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "grammar/components.h"
#include "grammar/identity.h"
#include "grammar/plain_room.h"
#include "grammar/program.h"
#include "grammar/usable.h"

namespace millrace::grammar {
namespace {

constexpr uint32_t kInlineStates = 96, kInlineEdges = 512;

struct CountedRule {
  uint32_t min = 0, max = 0;
  RuleId body = 0;
};

class Lowering {
 public:
  Lowering(Grammar grammar, Budget& budget) : g_(std::move(grammar)), budget_(budget) {}

  std::shared_ptr<const Program> run() {
    add_counted_rules();
    const Usable usable = find_usable(g_, budget_);
    usable_ = usable.usable;
    nullable_ = usable.nullable;
    require(usable_[g_.root] || nullable_[g_.root], ErrorCode::kInvalidArgument,
            "the grammar matches no text at all");
    prune_members(g_, usable_);
    order_rules();
    build_automata();
    remove_left_recursion();
    make_deterministic();
    emit();
    return program_;
  }

 private:
  bool is_expr(RuleId r) const { return g_.rules[r].kind == RuleKind::kExpr; }

  // Large repetitions become rules of their own before anything else, so that later passes see every rule.
  void add_counted_rules() {
    std::vector<uint64_t> size(g_.exprs.size(), 0);
    // Children have smaller numbers than their parents, except that rule references stop here anyway.
    const size_t n = g_.exprs.size();
    for (ExprId id = 0; id < n; ++id) {
      budget_.tick();
      Expr& e = g_.exprs[id];
      uint64_t s = 1;
      switch (e.kind) {
        case ExprKind::kClass:
          s = 2 + 2 * g_.classes[e.index].ranges().size();
          break;
        case ExprKind::kLiteral:
          s = g_.literals[e.index].size();
          break;
        case ExprKind::kSequence:
        case ExprKind::kChoice:
          for (ExprId c : e.children) s += size[c];
          break;
        case ExprKind::kRepeat: {
          const uint64_t copies = e.max == kUnlimited ? uint64_t{e.min} + 1 : e.max;
          const uint64_t one = size[e.children[0]] + 1;
          if (copies > 1 && (copies > 2 || e.min != 0 || e.max != kUnlimited) &&
              one * copies > kRepeatCopyStates) {
            const RuleId body = g_.add_rule("(round)", e.children[0]);
            const RuleId counted = g_.add_rule("(repeat)", id);
            counted_[counted] = {e.min, e.max, body};
            // Every use of this expression becomes a call of the new rule; the rule keeps the counts.
            g_.exprs[id] = {ExprKind::kRule, counted, 0, 0, {}};
            s = 2;
          } else {
            s = 2 + one * copies;
          }
          break;
        }
        default:
          break;
      }
      size[id] = std::min<uint64_t>(s, 1u << 30);
    }
    require(g_.rules.size() <= budget_.limits().rules, ErrorCode::kLimitExceeded,
            "the grammar has {} rules, more than {} (limit on rules)", g_.rules.size(),
            budget_.limits().rules);
    g_.counted.clear();
    g_.counted.resize(g_.rules.size());
    for (const auto& [rule, c] : counted_) g_.counted[rule] = {true, c.min, c.max, c.body};
  }

  void order_rules() {
    std::vector<std::vector<uint32_t>> refs(g_.rules.size());
    for (RuleId r = 0; r < g_.rules.size(); ++r)
      for_each_reference(g_, r, [&](RuleId t) { refs[r].push_back(t); });
    const auto component = components(refs, order_);
    std::vector<uint32_t> members(g_.rules.size(), 0);
    for (uint32_t c : component) ++members[c];
    recursive_.assign(g_.rules.size(), 0);
    for (RuleId r = 0; r < g_.rules.size(); ++r) {
      recursive_[r] = members[component[r]] > 1;
      for (RuleId t : refs[r]) recursive_[r] |= t == r;
    }
    // Only what the root reaches is built.
    needed_.assign(g_.rules.size(), 0);
    std::vector<RuleId> stack{g_.root};
    needed_[g_.root] = 1;
    while (!stack.empty()) {
      const RuleId r = stack.back();
      stack.pop_back();
      for (RuleId t : refs[r])
        if (!needed_[t] && usable_[t]) needed_[t] = 1, stack.push_back(t);
    }
  }

  void build_automata() {
    nfas_.resize(g_.rules.size());
    NfaHooks hooks;
    hooks.inlined = [this](RuleId r) -> const Nfa* {
      if (!is_expr(r) || g_.counted[r].is || recursive_[r] || r == g_.root || !built_[r]) return nullptr;
      const Nfa& n = nfas_[r];
      return n.size() <= kInlineStates && n.edges.size() <= kInlineEdges ? &n : nullptr;
    };
    hooks.rule_nullable = [this](RuleId r) { return nullable_[r] != 0; };
    built_.assign(g_.rules.size(), 0);
    for (RuleId r : order_) {
      if (!needed_[r] || !is_expr(r)) continue;
      budget_.tick();
      Nfa nfa;
      nfa.start = nfa.add_state();
      if (const Dfa* d = g_.rules[r].automaton.get()) {
        nfa.final = nfa.add_state();
        const uint32_t base = nfa.size();
        for (uint32_t s = 0; s < d->size(); ++s) nfa.add_state();
        for (uint32_t s = 0; s < d->size(); ++s) {
          for (const auto& e : d->out(s))
            nfa.add_edge(base + s, Nfa::Kind::kRange, e.lo, e.hi, base + e.target);
          if (d->accept[s]) nfa.epsilon(base + s, nfa.final);
        }
        budget_.add_memory(d->size() * 8 + d->edges.size() * sizeof(Nfa::Edge));
        nfa.epsilon(nfa.start, base);
      } else if (g_.counted[r].is) {
        // Two calls in a row stand for the loop until emit() knows the body's automaton.
        const uint32_t loop = nfa.add_state();
        nfa.add_edge(nfa.start, Nfa::Kind::kCall, g_.counted[r].body, 0, loop);
        nfa.add_edge(loop, Nfa::Kind::kCall, g_.counted[r].body, 0, loop);
        nfa.final = loop;
      } else {
        const uint32_t entry = nfa.add_state();
        nfa.epsilon(nfa.start, entry);
        nfa.final = build_nfa(g_, g_.rules[r].expr, Alphabet::kBytes, hooks, nfa, entry, budget_);
      }
      nfas_[r] = std::move(nfa);
      built_[r] = 1;
    }
  }

  // Calls that a rule can make before consuming anything, as (callee, state after).
  void left_calls(const Nfa& nfa, std::vector<std::pair<RuleId, uint32_t>>& calls,
                  std::vector<uint32_t>& closure) {
    closure.assign(1, nfa.start);
    std::vector<uint8_t> seen(nfa.size(), 0);
    seen[nfa.start] = 1;
    for (size_t i = 0; i < closure.size(); ++i)
      for (uint32_t e = nfa.head[closure[i]]; e != kNone; e = nfa.edges[e].next) {
        const Nfa::Edge& edge = nfa.edges[e];
        if (edge.kind == Nfa::Kind::kCall) {
          calls.push_back({edge.lo, edge.target});
        } else if (edge.kind != Nfa::Kind::kRange && !seen[edge.target]) {
          seen[edge.target] = 1;
          closure.push_back(edge.target);
        }
      }
    budget_.tick(nfa.size());
  }

  // Within a group of rules that begin with one another, a match of A is: some rule of the group that begins
  // otherwise, then up the chain of callers until A. In automata: all rules' states side by side, entered at
  // every rule's other beginnings; the end of a rule leads to where its callers at the left go on.
  void remove_left_recursion() {
    const size_t n = g_.rules.size();
    std::vector<std::vector<uint32_t>> left(n);
    std::vector<std::vector<std::pair<RuleId, uint32_t>>> calls(n);
    std::vector<uint32_t> closure;
    for (RuleId r = 0; r < n; ++r) {
      if (!needed_[r] || !is_expr(r)) continue;
      left_calls(nfas_[r], calls[r], closure);
      for (const auto& [callee, target] : calls[r])
        if (is_expr(callee) && needed_[callee]) left[r].push_back(callee);
    }
    std::vector<uint32_t> order;
    const auto component = components(left, order);
    std::map<uint32_t, std::vector<RuleId>> groups;
    for (RuleId r : order) {
      bool self = false;
      for (uint32_t t : left[r]) self |= component[t] == component[r];
      if (self) groups[component[r]].push_back(r);
    }
    std::vector<std::pair<RuleId, Nfa>> replaced;
    for (const auto& [id, group] : groups) {
      for (RuleId r : group)
        require(!g_.counted[r].is, ErrorCode::kUnsupported,
                "a repetition with bounds begins with itself (left recursion through rule '{}')",
                g_.rules[r].name);
      for (RuleId entry : group) replaced.push_back({entry, unfold(group, entry, component, calls)});
    }
    for (auto& [rule, nfa] : replaced) nfas_[rule] = std::move(nfa);
  }

  Nfa unfold(const std::vector<RuleId>& group, RuleId entry, const std::vector<uint32_t>& component,
             const std::vector<std::vector<std::pair<RuleId, uint32_t>>>& calls) {
    Nfa out;
    out.start = out.add_state();
    std::unordered_map<RuleId, uint32_t> base;
    for (RuleId b : group) {
      base[b] = out.size();
      for (uint32_t s = 0; s < nfas_[b].size(); ++s) out.add_state();
      budget_.add_memory(nfas_[b].size() * 4 + nfas_[b].edges.size() * sizeof(Nfa::Edge));
    }
    for (RuleId b : group) {
      const Nfa& nfa = nfas_[b];
      for (uint32_t s = 0; s < nfa.size(); ++s)
        for (uint32_t e = nfa.head[s]; e != kNone; e = nfa.edges[e].next)
          out.add_edge(base[b] + s, nfa.edges[e].kind, nfa.edges[e].lo, nfa.edges[e].hi,
                       base[b] + nfa.edges[e].target);
      budget_.tick(nfa.size());
      std::vector<std::pair<RuleId, uint32_t>> ignored;
      std::vector<uint32_t> closure;
      left_calls(nfa, ignored, closure);
      for (uint32_t s : closure)
        for (uint32_t e = nfa.head[s]; e != kNone; e = nfa.edges[e].next) {
          const Nfa::Edge& edge = nfa.edges[e];
          if (edge.kind == Nfa::Kind::kRange)
            out.add_edge(out.start, edge.kind, edge.lo, edge.hi, base[b] + edge.target);
          if (edge.kind == Nfa::Kind::kCall && component[edge.lo] != component[b])
            out.add_edge(out.start, edge.kind, edge.lo, edge.hi, base[b] + edge.target);
        }
      for (const auto& [callee, target] : calls[b])
        if (component[callee] == component[b])
          out.epsilon(base[callee] + nfas_[callee].final, base[b] + target);
    }
    out.final = base[entry] + nfas_[entry].final;
    return out;
  }

  void make_deterministic() {
    automata_.resize(g_.rules.size());
    const auto usable = [this](RuleId r) { return usable_[r] != 0; };
    for (RuleId r = 0; r < g_.rules.size(); ++r) {
      if (!needed_[r] || !is_expr(r)) continue;
      Nfa nfa = std::move(nfas_[r]);
      if (!g_.counted[r].is) {
        // A start that nothing returns to: called rules never match the empty text.
        const uint32_t start = nfa.add_state();
        nfa.epsilon(start, nfa.start);
        nfa.start = start;
      }
      bool exceeded = false;
      Automaton a = determinize(nfa, std::max<size_t>(600, 4 * nfa.size()), &exceeded, budget_);
      if (exceeded) a = without_epsilon(nfa, budget_);
      if (a.size()) a.accept[0] = 0;
      automata_[r] = minimize(trim(a, usable), budget_);
      budget_.tick(nfa.size());
    }
  }

  void emit();
  void emit_automaton(RuleId r, ProgramRule& rule);
  void emit_counted(RuleId r, ProgramRule& rule);
  void emit_string(uint32_t index, ProgramRule& rule);
  void emit_object(RuleId r, ProgramRule& rule);
  void emit_array(RuleId r, ProgramRule& rule);
  uint32_t key_rest_rule(const ObjectRule& object, uint32_t cls);
  void open_rule(ProgramRule& rule, uint32_t positions);
  void add_position(bool accept, bool loop_head, bool counted);
  void rank_rules();
  void compute_first();
  void compute_follow();
  uint32_t id_of(RuleId r) const { return program_id_[r]; }

  Grammar g_;
  Budget& budget_;
  std::map<RuleId, CountedRule> counted_;
  std::vector<uint8_t> usable_, nullable_, recursive_, needed_, built_;
  std::vector<RuleId> order_;
  std::vector<Nfa> nfas_;
  std::vector<Automaton> automata_;
  std::vector<uint32_t> program_id_;
  std::shared_ptr<Program> program_;
  uint32_t free_string_rule_ = kNone;
};

void Lowering::open_rule(ProgramRule& rule, uint32_t positions) {
  rule.start = program_->num_positions();
  rule.positions = positions;
  budget_.add_states(positions);
}

void Lowering::add_position(bool accept, bool loop_head, bool counted) {
  Program& p = *program_;
  const bool idle = p.edge_first.back() == p.edges.size() && p.call_first.back() == p.calls.size();
  p.edge_first.push_back(static_cast<uint32_t>(p.edges.size()));
  p.call_first.push_back(static_cast<uint32_t>(p.calls.size()));
  p.rule_of.push_back(static_cast<uint32_t>(p.rules.size()));
  p.accept.push_back(accept);
  p.loop_head.push_back(loop_head);
  p.only_returns.push_back(accept && idle && !counted);
}

void Lowering::emit_automaton(RuleId r, ProgramRule& rule) {
  const Automaton& a = automata_[r];
  open_rule(rule, a.size());
  for (uint32_t s = 0; s < a.size(); ++s) {
    for (const auto& e : a.out(s))
      program_->edges.push_back(
          {static_cast<uint8_t>(e.lo), static_cast<uint8_t>(e.hi), false, rule.start + e.target});
    for (const auto& c : a.out_calls(s))
      program_->calls.push_back({id_of(c.rule), false, rule.start + c.target});
    add_position(a.accept[s], false, false);
  }
}

// A body that no match of it is a prefix of another's is copied into the loop: its accepting edges count. Any
// other body is called, so that where a round ends may stay open.
void Lowering::emit_counted(RuleId r, ProgramRule& rule) {
  const auto& c = g_.counted[r];
  rule.counted = true;
  rule.min = nullable_[c.body] ? 0 : c.min;
  rule.max = c.max;
  const Automaton& body = automata_[c.body];
  bool prefix_free = is_expr(c.body) && !g_.counted[c.body].is && body.size() > 0;
  for (uint32_t s = 0; s < body.size() && prefix_free; ++s)
    if (body.accept[s] && (!body.out(s).empty() || !body.out_calls(s).empty())) prefix_free = false;
  if (!prefix_free) {
    open_rule(rule, 2);
    for (int s = 0; s < 2; ++s) {
      program_->calls.push_back({id_of(c.body), true, rule.start + 1});
      add_position(s == 1, true, true);
    }
    return;
  }
  // Accepting states melt into one position, last, which begins again like the start.
  std::vector<uint32_t> place(body.size(), 0);
  uint32_t count = 0;
  for (uint32_t s = 0; s < body.size(); ++s)
    if (!body.accept[s]) place[s] = count++;
  open_rule(rule, count + 1);
  auto copy_edges = [&](uint32_t s) {
    for (const auto& e : body.out(s)) {
      const bool ends = body.accept[e.target];
      program_->edges.push_back({static_cast<uint8_t>(e.lo), static_cast<uint8_t>(e.hi), ends,
                                 rule.start + (ends ? count : place[e.target])});
    }
    for (const auto& call : body.out_calls(s)) {
      const bool ends = body.accept[call.target];
      program_->calls.push_back({id_of(call.rule), ends, rule.start + (ends ? count : place[call.target])});
    }
  };
  for (uint32_t s = 0; s < body.size(); ++s) {
    if (body.accept[s]) continue;
    copy_edges(s);
    add_position(false, s == 0, true);
  }
  copy_edges(0);
  add_position(true, true, true);
}

void Lowering::emit_string(uint32_t index, ProgramRule& rule) {
  const StringRule& s = g_.strings[index];
  CompiledString c;
  c.dfa = s.dfa;
  c.lengths = std::make_shared<LengthOracle>(*s.dfa, s.min, s.max, budget_);
  c.farthest = farthest_accept(*s.dfa);
  c.any_text = is_universal(*s.dfa);
  c.plain_room = plain_rooms(*s.dfa, nullptr, budget_);
  rule.kind = ProgramRuleKind::kString;
  rule.index = static_cast<uint32_t>(program_->strings.size());
  program_->strings.push_back(std::move(c));
  open_rule(rule, s.dfa->size());
  for (uint32_t i = 0; i < s.dfa->size(); ++i) add_position(false, false, false);
}

// The string rule that reads the rest of an untracked key once no tracked key can come of it any more.
// Sharing one rule lets all objects share its masks.
uint32_t Lowering::key_rest_rule(const ObjectRule& object, uint32_t cls) {
  ProgramRule rule;
  rule.name = "(key)";
  rule.kind = ProgramRuleKind::kString;
  rule.index = static_cast<uint32_t>(program_->strings.size());
  CompiledString c;
  Dfa dfa = *object.keys;
  for (uint32_t s = 0; s < dfa.size(); ++s) dfa.accept[s] = object.accept_class[s] == cls;
  c.dfa = std::make_shared<Dfa>(std::move(dfa));
  c.lengths = std::make_shared<LengthOracle>(*c.dfa, 0, ~uint64_t{0}, budget_);
  c.plain_room = plain_rooms(*c.dfa, nullptr, budget_);
  program_->strings.push_back(c);
  open_rule(rule, c.dfa->size());
  for (uint32_t i = 0; i < c.dfa->size(); ++i) add_position(false, false, false);
  program_->rules.push_back(rule);
  return static_cast<uint32_t>(program_->rules.size() - 1);
}

void Lowering::emit_object(RuleId r, ProgramRule& rule) {
  CompiledObject c;
  c.rule = g_.objects[g_.rules[r].index];
  ObjectRule& o = c.rule;
  for (KeyClass& k : o.classes) {
    if (k.value != kNone) k.value = id_of(k.value);
    for (auto& claim : k.claims) claim.first = id_of(claim.first);
  }
  const uint32_t states = o.keys->size();
  c.words = (o.num_tracked + 63) / 64;
  c.bit_class.assign(o.num_tracked, kNone);
  c.bit_usable.assign(o.num_tracked, 0);
  c.implied_by.resize(o.num_tracked);
  c.required.assign(c.words, 0);
  for (uint32_t b : o.required) c.required[b >> 6] |= uint64_t{1} << (b & 63);
  auto usable_class = [&](const KeyClass& k) { return k.value != kNone || !k.claims.empty(); };
  for (uint32_t i = 0; i < o.classes.size(); ++i) {
    const KeyClass& k = o.classes[i];
    if (k.tracked) {
      c.bit_class[k.bit] = i;
      c.bit_usable[k.bit] = usable_class(k);
    } else if (usable_class(k)) {
      ++c.untracked_usable;
    }
  }
  // A key whose demands cannot be met cannot be used itself.
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [from, to] : o.implies)
      if (c.bit_usable[from] && !c.bit_usable[to]) c.bit_usable[from] = 0, changed = true;
    budget_.tick(o.implies.size());
  }
  for (const auto& [from, to] : o.implies) c.implied_by[from].push_back(to);
  // What can still come of each key state, backwards from the accepting ones.
  c.reach_tracked.assign(size_t{states} * c.words, 0);
  c.reach_untracked.assign(states, 0);
  budget_.add_memory(c.reach_tracked.size() * 8);
  std::vector<std::vector<uint32_t>> in(states);
  std::vector<uint32_t> work;
  for (uint32_t s = 0; s < states; ++s) {
    for (const auto& e : o.keys->out(s)) in[e.target].push_back(s);
    const uint32_t k = o.accept_class[s];
    if (k == kNone) continue;
    if (o.classes[k].tracked) {
      const uint32_t b = o.classes[k].bit;
      if (c.bit_usable[b]) c.reach_tracked[size_t{s} * c.words + (b >> 6)] |= uint64_t{1} << (b & 63);
    } else if (usable_class(o.classes[k])) {
      c.reach_untracked[s] = 1;
    }
    work.push_back(s);
  }
  std::vector<uint8_t> queued(states, 0);
  std::deque<uint32_t> queue(work.begin(), work.end());
  for (uint32_t s : work) queued[s] = 1;
  while (!queue.empty()) {
    const uint32_t s = queue.front();
    queue.pop_front();
    queued[s] = 0;
    for (uint32_t p : in[s]) {
      bool grew = c.reach_untracked[s] && !c.reach_untracked[p];
      c.reach_untracked[p] |= c.reach_untracked[s];
      for (uint32_t w = 0; w < c.words; ++w) {
        uint64_t& to = c.reach_tracked[size_t{p} * c.words + w];
        const uint64_t from = c.reach_tracked[size_t{s} * c.words + w];
        grew |= (from & ~to) != 0;
        to |= from;
      }
      if (grew && !queued[p]) queued[p] = 1, queue.push_back(p);
    }
    budget_.tick(in[s].size() + 1);
  }
  c.plain_room = plain_rooms(*o.keys, &c.reach_untracked, budget_);
  // States beyond every tracked key where one untracked class is left.
  c.free_string.assign(states, kNone);
  c.free_class.assign(states, kNone);
  std::vector<uint64_t> classes_of(states, 0);  // set of untracked classes (the first 63) that can come
  for (uint32_t s = 0; s < states; ++s) {
    const uint32_t k = o.accept_class[s];
    if (k != kNone) classes_of[s] |= uint64_t{1} << std::min<uint32_t>(k, 63);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t s = states; s-- > 0;) {
      uint64_t set = classes_of[s];
      for (const auto& e : o.keys->out(s)) set |= classes_of[e.target];
      if (set != classes_of[s]) classes_of[s] = set, changed = true;
    }
    budget_.tick(states + o.keys->edges.size());
  }
  std::map<uint32_t, uint32_t> rest_rules;
  for (uint32_t s = 0; s < states; ++s) {
    bool tracked = false;
    for (uint32_t w = 0; w < c.words; ++w) tracked |= c.reach_tracked[size_t{s} * c.words + w] != 0;
    if (tracked || !c.reach_untracked[s] || std::popcount(classes_of[s]) != 1 || (classes_of[s] >> 63))
      continue;
    const auto cls = static_cast<uint32_t>(std::countr_zero(classes_of[s]));
    if (o.classes[cls].tracked) continue;
    const auto list = o.keys->out(s);
    const bool universal =
        o.accept_class[s] == cls && list.size() >= 1 &&
        std::all_of(list.begin(), list.end(), [&](const Dfa::Edge& e) { return e.target == s; }) &&
        list.front().lo == 0 && list.back().hi >= kMaxCodepoint &&
        (list.size() == 1 || (list.size() == 2 && list[0].hi >= 0xd7ff && list[1].lo <= 0xe000));
    c.free_class[s] = cls;
    if (universal) {
      c.free_string[s] = program_->rules[free_string_rule_].start;
    } else {
      auto it = rest_rules.find(cls);
      if (it == rest_rules.end()) it = rest_rules.emplace(cls, key_rest_rule(o, cls)).first;
      c.free_string[s] = program_->rules[it->second].start + s;
    }
  }
  c.looping.assign(states, 0);
  for (uint32_t s = 0; s < states; ++s)
    for (const auto& e : o.keys->out(s)) c.looping[s] |= e.target == s && c.free_string[s] == kNone;
  rule.kind = ProgramRuleKind::kObject;
  rule.index = static_cast<uint32_t>(program_->objects.size());
  program_->needs_text |= o.remember_keys;
  program_->objects.push_back(std::move(c));
  open_rule(rule, object_at::kKey + states);
  for (uint32_t i = 0; i < rule.positions; ++i) add_position(false, false, false);
}

void Lowering::emit_array(RuleId r, ProgramRule& rule) {
  ArrayRule a = g_.arrays[g_.rules[r].index];
  for (auto& choices : a.prefix)
    for (ArrayChoice& c : choices) c.value = id_of(c.value);
  for (ArrayChoice& c : a.rest) c.value = id_of(c.value);
  rule.kind = ProgramRuleKind::kArray;
  rule.index = static_cast<uint32_t>(program_->arrays.size());
  program_->needs_text |= a.unique_by_text;
  program_->arrays.push_back(std::move(a));
  open_rule(rule, array_at::kPositions);
  for (uint32_t i = 0; i < rule.positions; ++i) add_position(false, false, false);
}

void Lowering::emit() {
  program_ = std::make_shared<Program>();
  Program& p = *program_;
  p.whitespace = g_.whitespace;
  p.edge_first.push_back(0);
  p.call_first.push_back(0);
  // Position 0 belongs to a rule of its own that only returns.
  p.rules.push_back({});
  p.rules[0].name = "(done)";
  p.rules[0].positions = 1;
  p.rule_of.push_back(0);
  p.edge_first.push_back(0);
  p.call_first.push_back(0);
  p.accept.push_back(1);
  p.loop_head.push_back(0);
  p.only_returns.push_back(1);

  program_id_.assign(g_.rules.size(), kNone);
  uint32_t next = 1;
  bool objects = false;
  for (RuleId r = 0; r < g_.rules.size(); ++r)
    if (needed_[r]) objects |= g_.rules[r].kind == RuleKind::kObject;
  if (objects) ++next;
  for (RuleId r = 0; r < g_.rules.size(); ++r)
    if (needed_[r]) program_id_[r] = next++;
  p.rules.resize(next);
  // Rules get their positions in an order of their own; each writes its place in p.rules at the end, because
  // helper rules may be appended meanwhile.
  auto place = [&](uint32_t id, ProgramRule&& rule) {
    for (Position q = rule.start; q < rule.start + rule.positions; ++q) p.rule_of[q] = id;
    p.rules[id] = std::move(rule);
  };
  if (objects) {
    free_string_rule_ = 1;
    StringRule s;
    s.dfa = std::make_shared<Dfa>(any_text());
    g_.strings.push_back(s);
    ProgramRule rule;
    rule.name = "(any key)";
    emit_string(static_cast<uint32_t>(g_.strings.size() - 1), rule);
    place(1, std::move(rule));
  }
  for (RuleId r = 0; r < g_.rules.size(); ++r) {
    if (!needed_[r]) continue;
    budget_.tick();
    ProgramRule rule;
    rule.name = g_.rules[r].name;
    switch (g_.rules[r].kind) {
      case RuleKind::kExpr:
        g_.counted[r].is ? emit_counted(r, rule) : emit_automaton(r, rule);
        break;
      case RuleKind::kString:
        emit_string(g_.rules[r].index, rule);
        break;
      case RuleKind::kObject:
        emit_object(r, rule);
        break;
      case RuleKind::kArray:
        emit_array(r, rule);
        break;
    }
    place(program_id_[r], std::move(rule));
  }
  // Helper rules appended by objects took positions while "the last rule" was not yet known to them.
  for (uint32_t id = 0; id < p.rules.size(); ++id)
    for (Position q = p.rules[id].start; q < p.rules[id].start + p.rules[id].positions; ++q)
      p.rule_of[q] = id;
  p.root = id_of(g_.root);
  p.root_nullable = nullable_[g_.root];
  rank_rules();
  compute_first();
  compute_follow();
  p.identity = rule_identities(p, budget_);
  p.bytes = p.edges.size() * sizeof(ByteEdge) + p.calls.size() * sizeof(CallEdge) +
            p.rules.size() * sizeof(ProgramRule) + p.num_positions() * 16;
  for (const auto& s : p.strings)
    p.bytes += s.dfa->edges.size() * sizeof(Dfa::Edge) + s.dfa->size() * 8 + s.lengths->bytes();
  for (const auto& o : p.objects)
    p.bytes +=
        o.reach_tracked.size() * 8 + o.rule.keys->edges.size() * sizeof(Dfa::Edge) + o.rule.keys->size() * 20;
}

void Lowering::rank_rules() {
  Program& p = *program_;
  std::vector<std::vector<uint32_t>> left(p.rules.size());
  for (uint32_t r = 0; r < p.rules.size(); ++r) {
    if (p.rules[r].kind != ProgramRuleKind::kAutomaton || p.rules[r].positions == 0) continue;
    const Position q = p.rules[r].start;
    for (uint32_t c = p.call_first[q]; c < p.call_first[q + 1]; ++c) left[r].push_back(p.calls[c].rule);
  }
  std::vector<uint32_t> order;
  const auto component = components(left, order);
  std::vector<uint32_t> members(p.rules.size(), 0);
  for (uint32_t c : component) ++members[c];
  for (uint32_t r = 0; r < p.rules.size(); ++r)
    require(members[component[r]] == 1, ErrorCode::kUnsupported,
            "rule '{}' begins with itself through a bounded repetition", p.rules[r].name);
  for (uint32_t i = 0; i < order.size(); ++i)
    p.rules[order[i]].rank = static_cast<uint32_t>(order.size()) - i;
}

void Lowering::compute_first() {
  Program& p = *program_;
  std::vector<uint32_t> by_rank(p.rules.size());
  for (uint32_t r = 0; r < p.rules.size(); ++r) by_rank[r] = r;
  std::sort(by_rank.begin(), by_rank.end(),
            [&](uint32_t a, uint32_t b) { return p.rules[a].rank > p.rules[b].rank; });
  for (uint32_t r : by_rank) {
    ProgramRule& rule = p.rules[r];
    switch (rule.kind) {
      case ProgramRuleKind::kString:
        rule.first.set('"');
        break;
      case ProgramRuleKind::kObject:
        rule.first.set('{');
        break;
      case ProgramRuleKind::kArray:
        rule.first.set('[');
        break;
      case ProgramRuleKind::kAutomaton: {
        if (rule.positions == 0 || r == 0) break;
        const Position q = rule.start;
        for (uint32_t e = p.edge_first[q]; e < p.edge_first[q + 1]; ++e)
          rule.first.set_range(p.edges[e].lo, p.edges[e].hi);
        for (uint32_t c = p.call_first[q]; c < p.call_first[q + 1]; ++c)
          rule.first |= p.rules[p.calls[c].rule].first;
        budget_.tick(p.call_first[q + 1] - p.call_first[q]);
        break;
      }
    }
  }
}

void Lowering::compute_follow() {
  Program& p = *program_;
  // Constraints follow(a) >= follow(b), solved by a worklist.
  std::vector<std::vector<uint32_t>> passes_to(p.rules.size());
  ByteSet after_value, after_key, white;
  for (char c : {' ', '\t', '\n', '\r'}) white.set(static_cast<uint8_t>(c));
  if (p.whitespace == Whitespace::kFlexible) after_value = after_key = white;
  ByteSet after_item = after_value;
  after_value.set(','), after_value.set('}');
  after_item.set(','), after_item.set(']');
  after_key.set(':');
  for (uint32_t r = 0; r < p.rules.size(); ++r) {
    const ProgramRule& rule = p.rules[r];
    if (rule.kind == ProgramRuleKind::kObject) {
      for (const KeyClass& k : p.objects[rule.index].rule.classes) {
        if (k.value != kNone) p.rules[k.value].follow |= after_value;
        for (const auto& claim : k.claims) p.rules[claim.first].follow |= after_value;
      }
      for (uint32_t s : p.objects[rule.index].free_string)
        if (s != kNone) p.rules[p.rule_of[s]].follow |= after_key;
    } else if (rule.kind == ProgramRuleKind::kArray) {
      const ArrayRule& a = p.arrays[rule.index];
      for (const auto& choices : a.prefix)
        for (const auto& c : choices) p.rules[c.value].follow |= after_item;
      for (const auto& c : a.rest) p.rules[c.value].follow |= after_item;
    } else if (rule.kind == ProgramRuleKind::kAutomaton) {
      for (Position q = rule.start; q < rule.start + rule.positions; ++q)
        for (uint32_t c = p.call_first[q]; c < p.call_first[q + 1]; ++c) {
          ProgramRule& callee = p.rules[p.calls[c].rule];
          const Position t = p.calls[c].target;
          for (uint32_t e = p.edge_first[t]; e < p.edge_first[t + 1]; ++e)
            callee.follow.set_range(p.edges[e].lo, p.edges[e].hi);
          for (uint32_t d = p.call_first[t]; d < p.call_first[t + 1]; ++d)
            callee.follow |= p.rules[p.calls[d].rule].first;
          if (p.accept[t]) passes_to[r].push_back(p.calls[c].rule);
          budget_.tick();
        }
    }
  }
  std::vector<uint32_t> work(p.rules.size());
  for (uint32_t r = 0; r < p.rules.size(); ++r) work[r] = r;
  while (!work.empty()) {
    const uint32_t r = work.back();
    work.pop_back();
    for (uint32_t t : passes_to[r]) {
      if (p.rules[r].follow.subset_of(p.rules[t].follow)) continue;
      p.rules[t].follow |= p.rules[r].follow;
      work.push_back(t);
    }
    budget_.tick(passes_to[r].size() + 1);
  }
  // What follows a JSON value differs from grammar to grammar by a byte or two. One set for all lets grammars
  // share the masks of equal values; the bytes too many are found out where masks are completed.
  ByteSet json = after_value;
  json |= after_item;
  json |= after_key;
  const bool has_json = std::any_of(p.rules.begin(), p.rules.end(), [](const ProgramRule& r) {
    return r.kind != ProgramRuleKind::kAutomaton;
  });
  for (ProgramRule& rule : p.rules)
    if (has_json && rule.follow.subset_of(json)) rule.follow = json;
  ByteSet any;
  any.set_range(0, 255);
  p.rules[0].follow = any;
}

}  // namespace

std::shared_ptr<const Program> lower(Grammar grammar, Budget& budget) {
  Lowering l(std::move(grammar), budget);
  return l.run();
}

}  // namespace millrace::grammar
