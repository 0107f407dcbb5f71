// Smallest deterministic automata. Sets of words, and what is left of all texts without them, have no cycles
// but states that lead to themselves: one pass from the ends backwards numbers their classes. Others are
// refined until nothing changes.

#include <algorithm>

#include "grammar/dfa.h"
#include "grammar/hash_index.h"

namespace millrace::grammar {
namespace {

constexpr uint32_t kSelf = ~uint32_t{0} - 1;
constexpr uint32_t kMostRefined = 4000;  ///< states; larger automata with cycles stay as they are
constexpr size_t kMostWork = 400'000;    ///< of refinement
constexpr uint32_t kMostBackwards = 200'000;

/// Numbers signatures of states: a label, and its edges by class of their target.
class Signatures {
 public:
  void clear() {
    index_.clear();
    entries_.clear();
    words_.clear();
  }
  void begin(uint32_t label) {
    current_ = words_.size();
    words_.push_back(label);
  }
  void edge(uint32_t lo, uint32_t hi, uint32_t target) {
    const size_t n = words_.size();
    if (n > current_ + 1 && words_[n - 1] == target && words_[n - 2] + 1 == lo) {
      words_[n - 2] = hi;
    } else {
      words_.insert(words_.end(), {lo, hi, target});
    }
  }
  /// Class of the signature just written, kNone when it is new; `keep` enters a new one as `cls`.
  uint32_t find() {
    hash_ = 0x243f6a8885a308d3ULL;
    for (size_t i = current_; i < words_.size(); ++i) {
      hash_ = (hash_ ^ words_[i]) * 0x9e3779b97f4a7c15ULL;
      hash_ ^= hash_ >> 31;
    }
    const size_t length = words_.size() - current_;
    const uint32_t entry = index_.find(hash_, [&](uint32_t i) {
      return entries_[i].length == length &&
             std::equal(words_.begin() + static_cast<ptrdiff_t>(current_), words_.end(),
                        words_.begin() + static_cast<ptrdiff_t>(entries_[i].from));
    });
    return entry == HashIndex::kNone ? HashIndex::kNone : entries_[entry].cls;
  }
  void drop() { words_.resize(current_); }
  void keep(uint32_t cls) {
    index_.insert(hash_, static_cast<uint32_t>(entries_.size()));
    entries_.push_back({current_, words_.size() - current_, cls});
    current_ = words_.size();
  }

 private:
  struct Entry {
    size_t from, length;
    uint32_t cls;
  };
  HashIndex index_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> words_;
  size_t current_ = 0;
  uint64_t hash_ = 0;
};

/// States so that every edge leads to an earlier one or to its own state; empty when a longer cycle exists.
std::vector<uint32_t> backwards(const Dfa& dfa) {
  const uint32_t n = dfa.size();
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> mark(n, kNew);
  std::vector<uint32_t> order;
  order.reserve(n);
  std::vector<std::pair<uint32_t, uint32_t>> stack;
  for (uint32_t root = 0; root < n; ++root) {
    if (mark[root] != kNew) continue;
    mark[root] = kOpen;
    stack.push_back({root, dfa.first[root]});
    while (!stack.empty()) {
      auto& [s, e] = stack.back();
      if (e == dfa.first[s + 1]) {
        mark[s] = kDone;
        order.push_back(s);
        stack.pop_back();
        continue;
      }
      const uint32_t t = dfa.edges[e++].target;
      if (t == s || mark[t] == kDone) continue;
      if (mark[t] == kOpen) return {};
      mark[t] = kOpen;
      stack.push_back({t, dfa.first[t]});
    }
  }
  return order;
}

/// Writes the signature of `s`; edges to itself get `self`.
void write(Signatures& signatures, const Dfa& dfa, const std::vector<uint32_t>& cls, uint32_t s,
           uint32_t self) {
  signatures.begin(dfa.accept[s]);
  for (const auto& e : dfa.out(s)) signatures.edge(e.lo, e.hi, e.target == s ? self : cls[e.target]);
}

// The first state of a class in `order` leads, within its class, only to itself. So a later state is of that
// class if its signature agrees with that one's once "itself" is written as the class, for both.
uint32_t classes_backwards(const Dfa& dfa, const std::vector<uint32_t>& order, std::vector<uint32_t>& cls) {
  Signatures signatures;
  uint32_t count = 0;
  std::vector<uint32_t> candidates;
  for (uint32_t s : order) {
    write(signatures, dfa, cls, s, kSelf);
    uint32_t c = signatures.find();
    signatures.drop();
    candidates.clear();
    bool loops = false;
    for (const auto& e : dfa.out(s)) {
      if (e.target == s)
        loops = true;
      else if (candidates.empty() || candidates.back() != cls[e.target])
        candidates.push_back(cls[e.target]);
    }
    if (loops && c == HashIndex::kNone) {
      std::sort(candidates.begin(), candidates.end());
      candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
      for (uint32_t candidate : candidates) {
        write(signatures, dfa, cls, s, candidate);
        const uint32_t found = signatures.find();
        signatures.drop();
        if (found == candidate) {
          c = found;
          break;
        }
      }
    }
    if (c == HashIndex::kNone) {
      c = count++;
      write(signatures, dfa, cls, s, kSelf);
      signatures.find();
      signatures.keep(c);
      if (loops) {
        write(signatures, dfa, cls, s, c);
        signatures.find();
        signatures.keep(c);
      }
    }
    cls[s] = c;
  }
  return count;
}

/// Refines acceptance until it is stable; 0 when nothing can be gained or it takes too long.
uint32_t classes_refined(const Dfa& dfa, std::vector<uint32_t>& cls, Budget& budget) {
  const uint32_t n = dfa.size();
  std::vector<uint32_t> next(n);
  for (uint32_t s = 0; s < n; ++s) cls[s] = dfa.accept[s];
  uint32_t num_classes = 0;
  size_t work = 0;
  Signatures signatures;
  for (;;) {
    signatures.clear();
    uint32_t count = 0;
    for (uint32_t s = 0; s < n; ++s) {
      signatures.begin(cls[s]);
      for (const auto& e : dfa.out(s)) signatures.edge(e.lo, e.hi, cls[e.target]);
      const uint32_t found = signatures.find();
      if (found == HashIndex::kNone) {
        next[s] = count++;
        signatures.keep(next[s]);
      } else {
        next[s] = found;
        signatures.drop();
      }
    }
    budget.tick(n + dfa.edges.size());
    work += n + dfa.edges.size();
    cls.swap(next);
    if (count == num_classes) return count;
    num_classes = count;
    if (num_classes == n || work > kMostWork) return 0;
  }
}

}  // namespace

Dfa minimize(const Dfa& dfa, Budget& budget) {
  const uint32_t n = dfa.size();
  if (n <= 1 || n > kMostBackwards) return dfa;
  std::vector<uint32_t> cls(n);
  const std::vector<uint32_t> order = backwards(dfa);
  budget.tick(n + dfa.edges.size());
  if (order.empty() && n > kMostRefined) return dfa;
  const uint32_t num_classes =
      order.empty() ? classes_refined(dfa, cls, budget) : classes_backwards(dfa, order, cls);
  if (num_classes == 0 || num_classes == n) return dfa;
  std::vector<uint32_t> representative(num_classes, Dfa::kDead), id(num_classes, Dfa::kDead), first;
  for (uint32_t s = n; s-- > 0;) representative[cls[s]] = s;
  id[cls[0]] = 0;
  first.push_back(cls[0]);
  Dfa out;
  for (size_t at = 0; at < first.size(); ++at) {
    const size_t begin = out.edges.size();
    const uint32_t s = representative[first[at]];
    for (const auto& e : dfa.out(s)) {
      const uint32_t c = cls[e.target];
      if (id[c] == Dfa::kDead) {
        id[c] = static_cast<uint32_t>(first.size());
        first.push_back(c);
      }
      if (out.edges.size() > begin && out.edges.back().target == id[c] && out.edges.back().hi + 1 == e.lo) {
        out.edges.back().hi = e.hi;
      } else {
        out.edges.push_back({e.lo, e.hi, id[c]});
      }
    }
    out.close_state(dfa.accept[s]);
  }
  return out;
}

}  // namespace millrace::grammar
