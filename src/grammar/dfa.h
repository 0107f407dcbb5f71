// Deterministic automata over symbols (code points, or bytes) and their algebra: what schema strings, keys
// and numbers are computed with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/limits.h"
#include "grammar/sets.h"

namespace millrace::grammar {

/// State 0 is the start; an automaton without states accepts nothing. Every state of a trimmed automaton can
/// reach an accepting one. Edges of a state are sorted and disjoint; a missing edge rejects.
struct Dfa {
  struct Edge {
    uint32_t lo, hi, target;
    bool operator==(const Edge&) const = default;
  };
  static constexpr uint32_t kDead = ~uint32_t{0};

  std::vector<uint32_t> first{0};  ///< edges of state s: [first[s], first[s + 1])
  std::vector<Edge> edges;
  std::vector<uint8_t> accept;

  uint32_t size() const { return static_cast<uint32_t>(accept.size()); }
  bool never() const { return accept.empty(); }
  std::span<const Edge> out(uint32_t s) const { return {edges.data() + first[s], first[s + 1] - first[s]}; }
  /// Target of `symbol`, or kDead. `s` may be kDead.
  uint32_t step(uint32_t s, uint32_t symbol) const;
  bool accepts(std::span<const uint32_t> symbols) const;
  bool accepts_utf8(std::string_view text) const;
  /// Appends a state with the edges already pushed to `edges`; returns its number.
  uint32_t close_state(bool accepting) {
    first.push_back(static_cast<uint32_t>(edges.size()));
    accept.push_back(accepting);
    return size() - 1;
  }
  bool operator==(const Dfa&) const = default;
};

enum class SetOperation : uint8_t { kAnd, kOr, kMinus };

/// Trimmed and (when small) minimal automaton of the two languages combined.
Dfa combine(const Dfa& a, const Dfa& b, SetOperation operation, Budget& budget);
/// Every text over [lo, hi] ranges of `alphabet`.
Dfa any_text(const CodepointSet& alphabet = CodepointSet::all());
/// The given texts, each as symbols.
Dfa from_words(const std::vector<std::u32string>& words, Budget& budget);
/// Drops states that are unreachable or cannot accept.
Dfa trim(const Dfa& dfa);
/// Smallest equivalent automaton; gives back the input unchanged when it is large.
Dfa minimize(const Dfa& dfa, Budget& budget);
/// Members, when there are at most `limit`; nullopt for more (or infinitely many).
std::optional<std::vector<std::u32string>> enumerate(const Dfa& dfa, size_t limit);
bool is_universal(const Dfa& dfa);
/// Over all states of a trimmed automaton, the longest of their shortest ways to an accepting one, in
/// symbols.
uint64_t farthest_accept(const Dfa& dfa);

std::u32string decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);

/// Which lengths of a rest can be accepted from each state: what keeps a length window from meeting dead
/// ends.
class LengthOracle {
 public:
  LengthOracle(const Dfa& dfa, uint64_t min, uint64_t max, Budget& budget);
  /// Whether from `state`, with `count` symbols read, some accepted text has a length within the window.
  bool alive(uint32_t state, uint64_t count) const;
  /// Counts beyond this behave alike (an unlimited window above min); callers may clamp to it.
  uint64_t clamp(uint64_t count) const { return max_ == ~uint64_t{0} && count > min_ ? min_ : count; }
  bool trivial() const { return trivial_; }
  uint64_t min() const { return min_; }
  uint64_t max() const { return max_; }
  size_t bytes() const { return next_.size() * sizeof(uint32_t); }

 private:
  uint64_t min_, max_;
  bool trivial_ = false;
  uint32_t states_ = 0;
  uint64_t horizon_ =
      0;  ///< lengths [0, horizon_) are tabulated; from loop_ on they repeat every horizon_ - loop_
  uint64_t loop_ = 0;
  std::vector<uint32_t>
      next_;  ///< [length][state]: smallest accepted length >= length, tabulated; kNoLength if none
};

}  // namespace millrace::grammar
