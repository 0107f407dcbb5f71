#include "grammar/dfa.h"

#include <algorithm>
#include <unordered_map>

#include "core/utf8.h"

namespace millrace::grammar {

uint32_t Dfa::step(uint32_t s, uint32_t symbol) const {
  if (s == kDead) return kDead;
  const auto list = out(s);
  size_t lo = 0, hi = list.size();
  while (lo < hi) {
    const size_t mid = (lo + hi) / 2;
    (list[mid].hi < symbol) ? lo = mid + 1 : hi = mid;
  }
  return lo < list.size() && list[lo].lo <= symbol ? list[lo].target : kDead;
}

bool Dfa::accepts(std::span<const uint32_t> symbols) const {
  if (never()) return false;
  uint32_t s = 0;
  for (uint32_t c : symbols) s = step(s, c);
  return s != kDead && accept[s];
}

bool Dfa::accepts_utf8(std::string_view text) const {
  if (never()) return false;
  uint32_t s = 0;
  for (size_t at = 0; at < text.size();) s = step(s, utf8::next(text, at));
  return s != kDead && accept[s];
}

namespace {

struct PairHash {
  size_t operator()(const std::pair<uint32_t, uint32_t>& p) const {
    return (p.first * 0x9e3779b97f4a7c15ULL) ^ (p.second * 0xc2b2ae3d27d4eb4fULL);
  }
};

// Appends [lo, hi] -> target, melting with the edge before when they touch. `begin` is the state's first
// edge.
void push_edge(Dfa& d, size_t begin, uint32_t lo, uint32_t hi, uint32_t target) {
  if (d.edges.size() > begin) {
    Dfa::Edge& last = d.edges.back();
    if (last.target == target && last.hi + 1 == lo) {
      last.hi = hi;
      return;
    }
  }
  d.edges.push_back({lo, hi, target});
}

// Calls f(lo, hi, target in a or kDead, target in b or kDead) over the pieces where at least one has an edge.
template <typename F>
void for_each_piece(std::span<const Dfa::Edge> a, std::span<const Dfa::Edge> b, F&& f) {
  size_t i = 0, j = 0;
  uint64_t at = 0;
  while (i < a.size() || j < b.size()) {
    while (i < a.size() && a[i].hi < at) ++i;
    while (j < b.size() && b[j].hi < at) ++j;
    if (i == a.size() && j == b.size()) break;
    uint64_t start = ~uint64_t{0};
    if (i < a.size()) start = std::min<uint64_t>(start, std::max<uint64_t>(at, a[i].lo));
    if (j < b.size()) start = std::min<uint64_t>(start, std::max<uint64_t>(at, b[j].lo));
    uint64_t end = ~uint64_t{0};
    uint32_t ta = Dfa::kDead, tb = Dfa::kDead;
    if (i < a.size()) {
      if (a[i].lo <= start) {
        ta = a[i].target;
        end = std::min<uint64_t>(end, a[i].hi);
      } else {
        end = std::min<uint64_t>(end, a[i].lo - 1);
      }
    }
    if (j < b.size()) {
      if (b[j].lo <= start) {
        tb = b[j].target;
        end = std::min<uint64_t>(end, b[j].hi);
      } else {
        end = std::min<uint64_t>(end, b[j].lo - 1);
      }
    }
    f(static_cast<uint32_t>(start), static_cast<uint32_t>(end), ta, tb);
    at = end + 1;
  }
}

}  // namespace

Dfa combine(const Dfa& a, const Dfa& b, SetOperation operation, Budget& budget) {
  using Key = std::pair<uint32_t, uint32_t>;
  Dfa out;
  std::unordered_map<Key, uint32_t, PairHash> ids;
  std::vector<Key> todo;
  auto id_of = [&](uint32_t x, uint32_t y) -> uint32_t {
    const bool live_a = x != Dfa::kDead, live_b = y != Dfa::kDead;
    const bool live = operation == SetOperation::kAnd  ? live_a && live_b
                      : operation == SetOperation::kOr ? live_a || live_b
                                                       : live_a;
    if (!live) return Dfa::kDead;
    const auto [it, fresh] = ids.try_emplace({x, y}, static_cast<uint32_t>(todo.size()));
    if (fresh) {
      todo.push_back({x, y});
      require(todo.size() <= budget.limits().states, ErrorCode::kLimitExceeded,
              "combining two patterns needs more than {} states (limit on states)", budget.limits().states);
      budget.tick(4);
    }
    return it->second;
  };
  if (id_of(a.never() ? Dfa::kDead : 0, b.never() ? Dfa::kDead : 0) == Dfa::kDead) return out;
  for (size_t at = 0; at < todo.size(); ++at) {
    const Key k = todo[at];
    const size_t begin = out.edges.size();
    for_each_piece(k.first == Dfa::kDead ? std::span<const Dfa::Edge>{} : a.out(k.first),
                   k.second == Dfa::kDead ? std::span<const Dfa::Edge>{} : b.out(k.second),
                   [&](uint32_t lo, uint32_t hi, uint32_t ta, uint32_t tb) {
                     const uint32_t t = id_of(ta, tb);
                     if (t != Dfa::kDead) push_edge(out, begin, lo, hi, t);
                   });
    const bool in_a = k.first != Dfa::kDead && a.accept[k.first],
               in_b = k.second != Dfa::kDead && b.accept[k.second];
    out.close_state(operation == SetOperation::kAnd  ? in_a && in_b
                    : operation == SetOperation::kOr ? in_a || in_b
                                                     : in_a && !in_b);
    budget.tick(out.edges.size() - begin);
  }
  return minimize(trim(out), budget);
}

Dfa any_text(const CodepointSet& alphabet) {
  Dfa d;
  for (const auto& [lo, hi] : alphabet.ranges()) d.edges.push_back({lo, hi, 0});
  d.close_state(true);
  return d;
}

Dfa from_words(const std::vector<std::u32string>& words, Budget& budget) {
  std::vector<std::u32string> sorted = words;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  if (sorted.empty()) return {};
  // Breadth first over (range of words, depth), so that each state's edges come out in order.
  struct Node {
    size_t begin, end, depth;
  };
  std::vector<Node> nodes{{0, sorted.size(), 0}};
  Dfa d;
  for (size_t at = 0; at < nodes.size(); ++at) {
    const Node n = nodes[at];
    size_t i = n.begin;
    bool accepting = false;
    if (sorted[i].size() == n.depth) {
      accepting = true;
      ++i;
    }
    while (i < n.end) {
      const char32_t c = sorted[i][n.depth];
      size_t j = i;
      while (j < n.end && sorted[j][n.depth] == c) ++j;
      d.edges.push_back({c, c, static_cast<uint32_t>(nodes.size())});
      nodes.push_back({i, j, n.depth + 1});
      i = j;
    }
    d.close_state(accepting);
    budget.tick();
  }
  return d;
}

Dfa trim(const Dfa& dfa) {
  const uint32_t n = dfa.size();
  if (n == 0) return {};
  std::vector<uint32_t> in_first(n + 2, 0), in_list(dfa.edges.size());
  for (const auto& e : dfa.edges) ++in_first[e.target + 1];
  for (uint32_t s = 0; s < n; ++s) in_first[s + 1] += in_first[s];
  std::vector<uint32_t> fill(in_first.begin(), in_first.end() - 1);
  for (uint32_t s = 0; s < n; ++s)
    for (const auto& e : dfa.out(s)) in_list[fill[e.target]++] = s;
  std::vector<uint8_t> useful(n, 0);
  std::vector<uint32_t> stack;
  for (uint32_t s = 0; s < n; ++s)
    if (dfa.accept[s]) {
      useful[s] = 1;
      stack.push_back(s);
    }
  while (!stack.empty()) {
    const uint32_t s = stack.back();
    stack.pop_back();
    for (uint32_t k = in_first[s]; k < in_first[s + 1]; ++k)
      if (!useful[in_list[k]]) {
        useful[in_list[k]] = 1;
        stack.push_back(in_list[k]);
      }
  }
  if (!useful[0]) return {};
  std::vector<uint32_t> id(n, Dfa::kDead), order{0};
  id[0] = 0;
  Dfa out;
  for (size_t at = 0; at < order.size(); ++at) {
    const size_t begin = out.edges.size();
    for (const auto& e : dfa.out(order[at])) {
      if (!useful[e.target]) continue;
      if (id[e.target] == Dfa::kDead) {
        id[e.target] = static_cast<uint32_t>(order.size());
        order.push_back(e.target);
      }
      push_edge(out, begin, e.lo, e.hi, id[e.target]);
    }
    out.close_state(dfa.accept[order[at]]);
  }
  return out;
}

std::optional<std::vector<std::u32string>> enumerate(const Dfa& dfa, size_t limit) {
  std::vector<std::u32string> words;
  if (dfa.never()) return words;
  // A trimmed automaton with a cycle has infinitely many members; paths longer than its states prove a cycle.
  struct Frame {
    uint32_t state;
    size_t edge;
    uint32_t symbol;
  };
  std::u32string prefix;
  std::vector<Frame> stack{{0, 0, dfa.out(0).empty() ? 0 : dfa.out(0)[0].lo}};
  if (dfa.accept[0]) words.push_back(prefix);
  size_t steps = 0;
  while (!stack.empty()) {
    Frame& f = stack.back();
    const auto list = dfa.out(f.state);
    if (f.edge >= list.size()) {
      stack.pop_back();
      if (!prefix.empty()) prefix.pop_back();
      continue;
    }
    const uint32_t symbol = f.symbol, target = list[f.edge].target;
    if (f.symbol < list[f.edge].hi) {
      ++f.symbol;
    } else if (++f.edge < list.size()) {
      f.symbol = list[f.edge].lo;
    }
    prefix.push_back(symbol);
    if (prefix.size() > dfa.size() || ++steps > 64 * (limit + 1)) return std::nullopt;
    if (dfa.accept[target]) {
      if (words.size() == limit) return std::nullopt;
      words.push_back(prefix);
    }
    stack.push_back({target, 0, dfa.out(target).empty() ? 0 : dfa.out(target)[0].lo});
  }
  return words;
}

bool is_universal(const Dfa& dfa) {
  if (dfa.size() != 1 || !dfa.accept[0]) return false;
  const auto all = CodepointSet::all().ranges();
  const auto list = dfa.out(0);
  if (list.size() == 1) return list[0].lo == 0 && list[0].hi >= kMaxCodepoint;
  if (list.size() != all.size()) return false;
  for (size_t i = 0; i < all.size(); ++i)
    if (list[i].lo != all[i].first || list[i].hi != all[i].second) return false;
  return true;
}

uint64_t farthest_accept(const Dfa& dfa) {
  std::vector<std::vector<uint32_t>> in(dfa.size());
  std::vector<uint32_t> now, next;
  std::vector<uint8_t> seen(dfa.size(), 0);
  for (uint32_t s = 0; s < dfa.size(); ++s) {
    for (const auto& e : dfa.out(s)) in[e.target].push_back(s);
    if (dfa.accept[s]) seen[s] = 1, now.push_back(s);
  }
  uint64_t distance = 0;
  for (;; ++distance) {
    next.clear();
    for (uint32_t s : now)
      for (uint32_t t : in[s])
        if (!seen[t]) seen[t] = 1, next.push_back(t);
    if (next.empty()) return distance;
    now.swap(next);
  }
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = utf8::next(text, at);
    require(c != utf8::kInvalid, ErrorCode::kInvalidArgument, "the grammar holds ill-formed UTF-8 at byte {}",
            at - 1);
    out.push_back(c);
  }
  return out;
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  for (char32_t c : text) utf8::append(out, c);
  return out;
}

namespace {
constexpr uint32_t kNoLength = ~uint32_t{0};
}

LengthOracle::LengthOracle(const Dfa& dfa, uint64_t min, uint64_t max, Budget& budget)
    : min_(min), max_(max) {
  states_ = dfa.size();
  if (states_ == 0 || (min == 0 && max == ~uint64_t{0})) {
    trivial_ = true;
    return;
  }
  // reach(r) = states that accept some text of exactly r symbols. The sequence is eventually periodic; it is
  // followed until it repeats or until the window's end.
  const size_t words = (states_ + 63) / 64;
  std::vector<std::vector<uint64_t>> reach;
  std::unordered_map<std::string, uint64_t> seen;
  std::vector<uint64_t> now(words, 0);
  for (uint32_t s = 0; s < states_; ++s)
    if (dfa.accept[s]) now[s >> 6] |= uint64_t{1} << (s & 63);
  const uint64_t last = max == ~uint64_t{0} ? ~uint64_t{0} : max;
  bool repeats = false;
  for (uint64_t r = 0;; ++r) {
    std::string key(reinterpret_cast<const char*>(now.data()), words * 8);
    const auto [it, fresh] = seen.try_emplace(std::move(key), r);
    if (!fresh) {
      loop_ = it->second;
      repeats = true;
      break;
    }
    if (r > last) break;
    reach.push_back(now);
    budget.add_memory(words * 24 + states_ * 4 + 64);
    std::vector<uint64_t> before(words, 0);
    for (uint32_t s = 0; s < states_; ++s)
      for (const auto& e : dfa.out(s))
        if ((now[e.target >> 6] >> (e.target & 63)) & 1) {
          before[s >> 6] |= uint64_t{1} << (s & 63);
          break;
        }
    budget.tick(states_ + dfa.edges.size() / 4);
    now.swap(before);
  }
  horizon_ = reach.size();
  if (!repeats) loop_ = horizon_;
  next_.assign(horizon_ * states_, kNoLength);
  for (uint64_t r = horizon_; r-- > 0;)
    for (uint32_t s = 0; s < states_; ++s) {
      const bool here = (reach[r][s >> 6] >> (s & 63)) & 1;
      next_[r * states_ + s] = here               ? static_cast<uint32_t>(r)
                               : r + 1 < horizon_ ? next_[(r + 1) * states_ + s]
                                                  : kNoLength;
    }
  budget.release_memory(horizon_ * (words * 24 + 64));
}

bool LengthOracle::alive(uint32_t state, uint64_t count) const {
  if (trivial_) return true;
  if (count > max_) return false;
  const uint64_t from = count >= min_ ? 0 : min_ - count;
  const uint64_t to = max_ == ~uint64_t{0} ? max_ : max_ - count;
  const uint64_t period = horizon_ - loop_;
  if (from < horizon_) {
    const uint32_t r = next_[from * states_ + state];
    if (r != kNoLength) return r <= to;
    if (period == 0) return false;
    const uint32_t again = next_[loop_ * states_ + state];  // first hit of the next round of the loop
    return again != kNoLength && again + period <= to;
  }
  if (period == 0) return false;
  const uint64_t folded = loop_ + (from - loop_) % period;
  const uint64_t shift = from - folded;
  const uint32_t r = next_[folded * states_ + state];
  if (r != kNoLength) return r + shift <= to;
  const uint32_t again = next_[loop_ * states_ + state];
  return again != kNoLength && again + shift + period <= to;
}

}  // namespace millrace::grammar
