// Expressions to nondeterministic automata (Thompson), and those to deterministic ones (subsets).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "grammar/ir.h"

namespace millrace::grammar {

struct Nfa {
  enum class Kind : uint8_t { kEpsilon, kRange, kCall, kBegin, kEnd, kBoundary, kNotBoundary };
  struct Edge {
    Kind kind;
    uint32_t lo = 0, hi = 0;  ///< kRange: symbols; kCall: lo is the rule
    uint32_t target = 0;
    uint32_t next = kNone;  ///< next edge of the same state
  };
  std::vector<uint32_t> head;  ///< first edge of each state
  std::vector<Edge> edges;
  uint32_t start = 0, final = 0;

  uint32_t add_state() {
    head.push_back(kNone);
    return static_cast<uint32_t>(head.size() - 1);
  }
  void add_edge(uint32_t from, Kind kind, uint32_t lo, uint32_t hi, uint32_t to) {
    edges.push_back({kind, lo, hi, to, head[from]});
    head[from] = static_cast<uint32_t>(edges.size() - 1);
  }
  void epsilon(uint32_t from, uint32_t to) { add_edge(from, Kind::kEpsilon, 0, 0, to); }
  uint32_t size() const { return static_cast<uint32_t>(head.size()); }
};

/// A rule's automaton: ranges of symbols and calls of rules. Deterministic in both when it comes from
/// determinize().
struct Automaton {
  struct Call {
    uint32_t rule, target;
    bool operator==(const Call&) const = default;
  };
  std::vector<uint32_t> first{0}, first_call{0};
  std::vector<Dfa::Edge> edges;
  std::vector<Call> calls;
  std::vector<uint8_t> accept;

  uint32_t size() const { return static_cast<uint32_t>(accept.size()); }
  std::span<const Dfa::Edge> out(uint32_t s) const {
    return {edges.data() + first[s], first[s + 1] - first[s]};
  }
  std::span<const Call> out_calls(uint32_t s) const {
    return {calls.data() + first_call[s], first_call[s + 1] - first_call[s]};
  }
  void close_state(bool accepting) {
    first.push_back(static_cast<uint32_t>(edges.size()));
    first_call.push_back(static_cast<uint32_t>(calls.size()));
    accept.push_back(accepting);
  }
};

enum class Alphabet : uint8_t { kBytes, kCodepoints };

/// What building needs to know about rules; all may be null when the expression has no references and small
/// counts.
struct NfaHooks {
  /// Copies the rule's automaton in place of a call; null result: make a call.
  std::function<const Nfa*(RuleId)> inlined;
  /// A repetition too large to copy: gives a rule for it (which never matches the empty text).
  std::function<RuleId(ExprId repeat)> counted;
  /// Whether the rule (or expression) matches the empty text, which calls never do: the builder adds a way
  /// past.
  std::function<bool(RuleId)> rule_nullable;
};

/// Copies of a repeated expression may have this many states in all before a counter is used.
inline constexpr size_t kRepeatCopyStates = 192;

/// Appends the expression between `from` and a new state, which is returned. Literals and classes become
/// UTF-8 bytes or code points.
uint32_t build_nfa(const Grammar& grammar, ExprId expr, Alphabet alphabet, const NfaHooks& hooks, Nfa& nfa,
                   uint32_t from, Budget& budget, size_t depth = 0);

/// Subset construction. When it would have more than `max_states` states the result is empty and `*exceeded`
/// is set.
Automaton determinize(const Nfa& nfa, size_t max_states, bool* exceeded, Budget& budget);

/// Removes epsilon edges only; the result may be nondeterministic.
Automaton without_epsilon(const Nfa& nfa, Budget& budget);

/// Drops states that are unreachable or cannot accept. Calls of rules for which `usable` is false count as
/// missing.
Automaton trim(const Automaton& a, const std::function<bool(RuleId)>& usable);
Automaton minimize(const Automaton& a, Budget& budget);

/// An expression over code points without rule references, as an automaton. Anchors have their meaning; when
/// `search`, the text matches if it holds a match anywhere.
Dfa expr_to_dfa(const Grammar& grammar, ExprId expr, bool search, Budget& budget);

}  // namespace millrace::grammar
