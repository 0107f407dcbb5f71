// Multiples. Readers that hold numbers as doubles divide with rounding, so that 0.07 is no multiple of 0.01
// for them though it is one: the members that are sure are those that both ways of reading accept.

#include <cmath>
#include <mutex>
#include <numeric>

#include "grammar/hash_index.h"
#include "grammar/number_set.h"
#include "grammar/regex.h"

namespace millrace::grammar {
namespace {

// At most `digits` digits, and a fraction of zeros.
Dfa short_integers(uint32_t digits) {
  const uint32_t point = digits + 2, zeros = point + 1;
  Dfa d;
  d.edges.push_back({'-', '-', 1});
  d.edges.push_back({'0', '9', 2});
  d.close_state(false);
  d.edges.push_back({'0', '9', 2});
  d.close_state(false);
  for (uint32_t n = 1; n <= digits; ++n) {
    d.edges.push_back({'.', '.', point});
    if (n < digits) d.edges.push_back({'0', '9', n + 2});
    d.close_state(true);
  }
  d.edges.push_back({'0', '0', zeros});
  d.close_state(false);
  d.edges.push_back({'0', '0', zeros});
  d.close_state(true);
  return d;
}

constexpr uint32_t kMostCore = 10'000;
constexpr size_t kMostDecimals = 18;
constexpr uint32_t kDigits = 6;  ///< decimals up to so many digits are tried one by one

// The decimals below 10^kDigits units of 10^-places that `member` accepts, as a tree of digits whose equal
// subtrees are one: tree[level][class] are the classes of a subtree with `level` digits left.
class DigitTree {
 public:
  template <typename Member>
  DigitTree(uint32_t step, Member&& member) {
    uint32_t count = 1;
    for (uint32_t i = 0; i < kDigits; ++i) count *= 10;
    std::vector<uint32_t> classes(count, 0);
    for (uint32_t n = 0; n < count; n += step) classes[n] = member(n);
    levels_.push_back({{}, {}});
    for (uint32_t level = 1; level <= kDigits; ++level) {
      std::vector<std::array<uint32_t, 10>> kinds;
      HashIndex index;
      for (uint32_t node = 0; node * 10 < count; ++node) {
        std::array<uint32_t, 10> children;
        uint64_t hash = 1;
        for (uint32_t c = 0; c < 10; ++c) {
          children[c] = classes[node * 10 + c];
          hash = (hash ^ children[c]) * 0x9e3779b97f4a7c15ULL;
          hash ^= hash >> 32;
        }
        uint32_t id = index.find(hash, [&](uint32_t i) { return kinds[i] == children; });
        if (id == HashIndex::kNone) {
          id = static_cast<uint32_t>(kinds.size());
          kinds.push_back(children);
          index.insert(hash, id);
        }
        classes[node] = id;
      }
      count /= 10;
      levels_.push_back(std::move(kinds));
    }
  }
  uint32_t child(uint32_t level, uint32_t cls, uint32_t digit) const { return levels_[level][cls][digit]; }
  size_t size(uint32_t level) const { return level == 0 ? 2 : levels_[level].size(); }
  /// Whether only zeros may follow.
  bool zeros(uint32_t level, uint32_t cls) const {
    for (; level > 0; --level) cls = child(level, cls, 0);
    return cls != 0;
  }

 private:
  std::vector<std::vector<std::array<uint32_t, 10>>> levels_;
};

// Texts whose integer part has exactly `whole` digits, the last `places` digits of the tree being the
// fraction.
Dfa texts_of(const DigitTree& tree, uint32_t whole, uint32_t places) {
  constexpr uint32_t kZeros = 8;  // after the last place
  const uint32_t fraction = std::min(places, kDigits);
  // States in order: the start, whole parts by level, the point, zeros before the tree, fractions by level,
  // zeros.
  struct State {
    std::vector<Dfa::Edge> edges;
    bool accepting = false;
  };
  std::vector<State> states(1);
  const auto add = [&](bool accepting) {
    states.push_back({{}, accepting});
    return static_cast<uint32_t>(states.size() - 1);
  };
  std::vector<uint32_t> zero_run(kZeros + 1);
  for (uint32_t i = 0; i <= kZeros; ++i) zero_run[i] = add(true);
  for (uint32_t i = 0; i < kZeros; ++i) states[zero_run[i]].edges.push_back({'0', '0', zero_run[i + 1]});
  // Fractions, from the last level up.
  std::vector<uint32_t> below{Dfa::kDead, zero_run[0]};
  for (uint32_t level = 1; level <= fraction; ++level) {
    std::vector<uint32_t> here, points;
    for (uint32_t c = 0; c < tree.size(level); ++c) {
      const uint32_t s = add(tree.zeros(level, c));
      for (uint32_t digit = 0; digit < 10; ++digit)
        if (const uint32_t t = below[tree.child(level, c, digit)]; t != Dfa::kDead)
          states[s].edges.push_back({'0' + digit, '0' + digit, t});
      here.push_back(s);
    }
    below = std::move(here);
  }
  // A point needs a digit after it, so it is a state of its own that does not accept.
  const auto after_point = [&](uint32_t s) {
    const uint32_t point = add(false);
    states[point].edges = states[s].edges;
    return point;
  };
  if (places >= kDigits) {
    uint32_t s = below[0];
    for (uint32_t i = kDigits; i < places; ++i) {
      const uint32_t before = add(true);
      states[before].edges.push_back({'0', '0', s});
      s = before;
    }
    const uint32_t zero = add(true), point = after_point(s);
    states[zero].edges.push_back({'.', '.', point});
    states[0].edges.push_back({'0', '0', zero});
  } else {
    for (uint32_t& s : below) {
      const uint32_t point = after_point(s), accepting = add(states[s].accepting);
      states[accepting].edges.push_back({'.', '.', point});
      s = accepting;
    }
    for (uint32_t level = fraction + 1; level <= fraction + whole; ++level) {
      std::vector<uint32_t> here;
      const bool first = level == fraction + whole;
      for (uint32_t c = 0; c < tree.size(level); ++c) {
        const uint32_t s = first ? 0 : add(false);
        for (uint32_t digit = first && whole > 1 ? 1 : 0; digit < 10 && !first; ++digit)
          states[s].edges.push_back({'0' + digit, '0' + digit, below[tree.child(level, c, digit)]});
        here.push_back(s);
      }
      if (first) {
        uint32_t c = 0;
        for (uint32_t up = kDigits; up > level; --up) c = tree.child(up, c, 0);
        for (uint32_t digit = whole > 1 ? 1 : 0; digit < 10; ++digit)
          states[0].edges.push_back({'0' + digit, '0' + digit, below[tree.child(level, c, digit)]});
      }
      below = std::move(here);
    }
  }
  Dfa d;
  for (const State& s : states) {
    d.edges.insert(d.edges.end(), s.edges.begin(), s.edges.end());
    d.close_state(s.accepting);
  }
  return d;
}

// Unsigned decimals divisible by core * 10^-places, by their digits.
Dfa exact_multiples(uint32_t core, uint32_t places) {
  std::vector<uint32_t> power(places + 1, 1 % core);
  for (uint32_t i = 1; i <= places; ++i) power[i] = power[i - 1] * 10 % core;
  // 0: start, 1: "0", 2: zeros after the last place, then whole parts, points and fractions by remainder.
  Dfa d;
  const auto whole = [&](uint32_t r) { return 3 + r; };
  const auto fraction = [&](uint32_t place, uint32_t r) { return 3 + core * (1 + place) + r; };
  const auto digit_edges = [&](uint32_t from, uint32_t r, auto&& target) {
    for (uint32_t c = from; c < 10; ++c) d.edges.push_back({'0' + c, '0' + c, target((r * 10 + c) % core)});
  };
  const auto next_place = [&](uint32_t place) {
    return [&, place](uint32_t r) {
      if (place < places) return fraction(place, r);
      return r == 0 ? uint32_t{2} : fraction(places, 0);  // the latter leads nowhere
    };
  };
  d.edges.push_back({'0', '0', 1});
  digit_edges(1, 0, whole);
  d.close_state(false);
  d.edges.push_back({'.', '.', fraction(0, 0)});
  d.close_state(true);
  d.edges.push_back({'0', '0', 2});
  d.close_state(true);
  for (uint32_t r = 0; r < core; ++r) {
    d.edges.push_back({'.', '.', fraction(0, r)});
    digit_edges(0, r, whole);
    d.close_state(uint64_t{r} * power[places] % core == 0);
  }
  for (uint32_t place = 0; place < places; ++place)
    for (uint32_t r = 0; r < core; ++r) {
      digit_edges(0, r, next_place(place + 1));
      d.close_state(place > 0 && uint64_t{r} * power[places - place] % core == 0);
    }
  d.close_state(false);
  return d;
}

}  // namespace

// Texts of integers divisible by core * 10^tens. A state is the remainder of the digits before the last run
// of zeros, and that run.
Dfa NumberSets::integer_multiples(uint32_t core, uint32_t tens) {
  const uint32_t runs = tens + 1;
  // 0: start, 1: after '-', 2: "0", 3: ".", 4: ".0+", then remainder * runs + zeros.
  Dfa d;
  const uint32_t base = 5;
  const auto id = [&](uint32_t remainder, uint32_t zeros) { return base + remainder * runs + zeros; };
  d.edges.push_back({'-', '-', 1});
  const auto leading = [&] {
    d.edges.push_back({'0', '0', 2});
    for (uint32_t c = 1; c <= 9; ++c) d.edges.push_back({'0' + c, '0' + c, id(c % core, 0)});
  };
  leading();
  d.close_state(false);
  leading();
  d.close_state(false);
  d.edges.push_back({'.', '.', 3});
  d.close_state(true);
  d.edges.push_back({'0', '0', 4});
  d.close_state(false);
  d.edges.push_back({'0', '0', 4});
  d.close_state(true);
  for (uint32_t r = 0; r < core; ++r)
    for (uint32_t z = 0; z < runs; ++z) {
      const bool whole = z == tens && r == 0;
      if (whole) d.edges.push_back({'.', '.', 3});
      uint64_t scaled = r;
      for (uint32_t i = 0; i < z; ++i) scaled = scaled * 10 % core;
      for (uint32_t c = 0; c <= 9; ++c) {
        uint32_t target;
        if (c == 0) {
          target = z < tens ? id(r, z + 1) : id(r * 10 % core, z);
        } else {
          target = id(static_cast<uint32_t>((scaled * 10 + c) % core), 0);
        }
        d.edges.push_back({'0' + c, '0' + c, target});
      }
      d.close_state(whole);
      budget_.tick();
    }
  return minimize(trim(d), budget_);
}

FuzzySet NumberSets::multiples(const Decimal& divisor) {
  require(!divisor.negative && !divisor.is_zero(), ErrorCode::kInvalidArgument, "must be above zero");
  if (!divisor.is_integer()) return fraction_multiples(divisor);
  std::string digits = divisor.digits;
  uint32_t tens = 0;
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back(), ++tens;
  require(digits.size() <= 5 && std::stoul(digits) <= kMostCore, ErrorCode::kUnsupported,
          "multipleOf {} cannot be enforced: its part without tens is above {}", divisor.text(), kMostCore);
  const Dfa all = integer_multiples(static_cast<uint32_t>(std::stoul(digits)), tens);
  // Readers that hold numbers as doubles lose the last digits of longer integers.
  const Dfa exact = combine(*base_.integers.sure, short_integers(15), SetOperation::kAnd, budget_);
  Dfa sure = combine(all, exact, SetOperation::kAnd, budget_);
  // Surely no multiple: other plain integers, and what surely is no integer.
  Dfa no_integer = combine(*base_.any.sure, *base_.integers.maybe, SetOperation::kMinus, budget_);
  Dfa not_multiple =
      combine(combine(exact, all, SetOperation::kMinus, budget_), no_integer, SetOperation::kOr, budget_);
  return FuzzySet::between(std::move(sure),
                           combine(*base_.any.sure, not_multiple, SetOperation::kMinus, budget_));
}

// A quotient of doubles is the whole number that it should be
// - when the dividend is exact and the divisor is within 2^-54 of its decimal: integers, and halves,
// quarters, ...
// - where trying it shows so: decimals of up to six digits.
FuzzySet NumberSets::fraction_multiples(const Decimal& divisor) {
  static std::mutex mutex;
  static std::map<std::string, FuzzySet> made;
  const std::string name = divisor.text();
  const std::lock_guard lock(mutex);
  if (const auto it = made.find(name); it != made.end()) return it->second;

  const auto places = static_cast<uint32_t>(divisor.fraction.size());
  std::string digits = divisor.digits + divisor.fraction;
  digits.erase(0, digits.find_first_not_of('0'));
  require(places <= kMostDecimals && digits.size() <= 15, ErrorCode::kUnsupported,
          "multipleOf {} cannot be enforced: it has more than {} places or 15 digits", name, kMostDecimals);
  const uint64_t core = std::stoull(digits);
  const double rounded = std::strtod(name.c_str(), nullptr), power = std::pow(10.0, places);
  const double off = std::fma(rounded, power, -static_cast<double>(core)) / static_cast<double>(core);

  // Small divisors are tried with fewer places too, which reach further.
  Dfa positive;
  for (const uint32_t tried : {places, 4u, 2u}) {
    if (tried > places) continue;
    uint64_t step = core;
    for (uint32_t i = tried; i < places; ++i) step /= std::gcd<uint64_t>(step, 10);
    const double unit = std::pow(10.0, tried);
    const DigitTree tree(static_cast<uint32_t>(std::min<uint64_t>(step, 1'000'000)), [&](uint32_t n) {
      const double quotient = n / unit / rounded;
      return quotient == std::floor(quotient);
    });
    budget_.tick(100'000);
    for (uint32_t whole = 1; whole <= (tried < kDigits ? kDigits - tried : 1); ++whole)
      positive = combine(positive, texts_of(tree, whole, tried), SetOperation::kOr, budget_);
    if (tried <= 2) break;
  }

  FuzzySet out;
  std::shared_ptr<const Dfa> maybe = base_.any.sure;
  if (core * (places + 2) <= 40'000) {
    const Dfa exact = exact_multiples(static_cast<uint32_t>(core), places);
    if (std::abs(off) <= 0x1p-54) {
      const uint32_t most = std::min(15u, 20 - places);
      std::string binary = fmt::format("(0|[1-9][0-9]{{0,{}}})(\\.0{{1,8}}", most - 1);
      if (most >= 12) {
        const uint32_t bits = std::min(places, 5u);
        for (uint32_t i = 1; i < 1u << bits; ++i)
          binary += "|\\." + fmt::format("{}", i / static_cast<double>(1u << bits)).substr(2) + "0{0,8}";
      }
      const Dfa exact_doubles =
          combine(whole_text(binary + ")?", budget_), whole_text("[0-9]{1,12}\\.[0-9]+|[0-9]+", budget_),
                  SetOperation::kAnd, budget_);
      positive = combine(positive, combine(exact_doubles, exact, SetOperation::kAnd, budget_),
                         SetOperation::kOr, budget_);
    }
    const std::string few =
        fmt::format("(0|[1-9][0-9]{{0,{}}})(\\.[0-9]{{1,4}})?", places < 8 ? 7 - places : 0);
    const Dfa others = combine(whole_text(few, budget_), exact, SetOperation::kMinus, budget_);
    maybe = std::make_shared<const Dfa>(
        combine(*base_.any.sure, signed_set(&others, &others), SetOperation::kMinus, budget_));
  }
  out = {std::make_shared<const Dfa>(signed_set(&positive, &positive)), std::move(maybe)};
  if (made.size() >= 32) made.clear();
  made.emplace(name, out);
  return out;
}

}  // namespace millrace::grammar
