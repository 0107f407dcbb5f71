#include "grammar/number_set.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "grammar/regex.h"

namespace millrace::grammar {

std::string Decimal::text() const {
  std::string s = negative && !is_zero() ? "-" : "";
  s += digits;
  if (!fraction.empty()) s += "." + fraction;
  return s;
}

Decimal decimal_of(const nlohmann::json& number) {
  std::string text = number.is_number_float() ? fmt::format("{}", number.get<double>()) : number.dump();
  if (number.is_number_float())
    require(std::isfinite(number.get<double>()), ErrorCode::kUnsupported,
            "a number of the schema is beyond a double");
  Decimal d;
  size_t i = 0;
  if (text[0] == '-') d.negative = true, ++i;
  std::string digits, fraction;
  for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); ++i) digits += text[i];
  if (i < text.size() && text[i] == '.')
    for (++i; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); ++i) fraction += text[i];
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    int exponent = std::atoi(text.c_str() + i + 1);
    require(std::abs(exponent) <= 340, ErrorCode::kUnsupported,
            "a number of the schema has more than 400 digits");
    for (; exponent > 0; --exponent) {
      digits += fraction.empty() ? '0' : fraction[0];
      if (!fraction.empty()) fraction.erase(0, 1);
    }
    for (; exponent < 0; ++exponent) {
      fraction.insert(fraction.begin(), digits.empty() ? '0' : digits.back());
      if (!digits.empty()) digits.pop_back();
    }
  }
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  d.digits = digits.empty() ? "0" : digits;
  d.fraction = fraction;
  if (d.is_zero()) d.negative = false;
  return d;
}

NumberSets::Base::Base() {
  // Small and fixed; two exponent digits keep every number within a double.
  Budget budget;
  const auto set = [&](const char* pattern) {
    return std::make_shared<const Dfa>(whole_text(pattern, budget));
  };
  plain_unsigned = set("(0|[1-9][0-9]*)(\\.[0-9]+)?");
  exponents = set("-?(0|[1-9][0-9]*)(\\.[0-9]+)?[eE][-+]?[0-9]{1,2}");
  nonnegative_exponents = set("(0|[1-9][0-9]*)(\\.[0-9]+)?[eE][-+]?[0-9]{1,2}");
  plain_integers = set("-?(0|[1-9][0-9]*)");
  // Decimals that every double tells apart: at most 15 digits.
  safe_decimals = set("-?(0|[1-9][0-9]{0,6})(\\.[0-9]{1,8})?");
  any = FuzzySet::crisp(whole_text("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]{1,2})?", budget));
  Dfa sure = whole_text("-?((0|[1-9][0-9]*)|(0|[1-9][0-9]{0,14})\\.0{1,15})", budget);
  // Anything but a fraction that is surely none may be an integer: exponents, and long fractions that round.
  Dfa surely_not = combine(*safe_decimals, *set("-?[0-9]+(\\.0+)?"), SetOperation::kMinus, budget);
  integers = FuzzySet::between(std::move(sure), combine(*any.sure, surely_not, SetOperation::kMinus, budget));
}

const NumberSets::Base& NumberSets::base() {
  static const Base made;
  return made;
}

NumberSets::NumberSets(SetAlgebra& algebra, Budget& budget)
    : algebra_(algebra), budget_(budget), base_(base()) {}

// "-" before texts of `negative`, or texts of `positive`.
Dfa NumberSets::signed_set(const Dfa* positive, const Dfa* negative) {
  Dfa out;
  if (negative && !negative->never()) {
    out.edges.push_back({'-', '-', 1});
    out.close_state(false);
    for (uint32_t s = 0; s < negative->size(); ++s) {
      for (auto e : negative->out(s)) {
        e.target += 1;
        out.edges.push_back(e);
      }
      out.close_state(negative->accept[s]);
    }
  }
  return positive ? combine(out, *positive, SetOperation::kOr, budget_) : out;
}

FuzzySet NumberSets::value(const Decimal& d) {
  std::string digits;
  for (char c : d.digits) digits += c;
  std::string pattern = d.negative ? "-" : d.is_zero() ? "-?" : "";
  pattern += digits;
  if (!d.fraction.empty()) {
    pattern += "\\." + d.fraction + "0{0,15}";
  } else if (d.digits.size() <= 15) {
    pattern += "(\\.0{1,15})?";
  }
  Dfa sure = whole_text(pattern, budget_);
  // Not this value: plain integers compare exactly, short decimals safely.
  Dfa others = combine(combine(*base_.safe_decimals, *base_.plain_integers, SetOperation::kOr, budget_), sure,
                       SetOperation::kMinus, budget_);
  return FuzzySet::between(std::move(sure), combine(*base_.any.sure, others, SetOperation::kMinus, budget_));
}

// Unsigned plain texts of value at most (below, when strict) the magnitude of `bound`.
Dfa NumberSets::magnitude_at_most(const Decimal& bound, bool strict) {
  const std::string& b = bound.digits;
  const std::string& f = bound.fraction;
  const size_t length = b.size(), places = f.size();
  // States: start; zero-led; integer digits (n read, comparison so far); after the point: free or tight at a
  // place.
  std::vector<std::vector<Dfa::Edge>> out(1);
  std::vector<uint8_t> accept(1, 0);
  const auto add = [&](bool accepting) {
    out.emplace_back();
    accept.push_back(accepting);
    return static_cast<uint32_t>(out.size() - 1);
  };
  const auto edge = [&](uint32_t s, char lo, char hi, uint32_t t) {
    if (lo <= hi) out[s].push_back({static_cast<uint32_t>(lo), static_cast<uint32_t>(hi), t});
  };
  const uint32_t free = add(true), free_point = add(false);
  edge(free, '0', '9', free);
  edge(free_point, '0', '9', free);
  std::vector<uint32_t> tight(places + 1), tight_point(1);
  for (size_t j = 0; j <= places; ++j)
    tight[j] = add(j < places || !strict);  // digits left over make it less
  const uint32_t point = add(false);
  const auto fraction_edges = [&](uint32_t s, size_t j) {
    const char want = j < places ? f[j] : '0';
    if (want > '0') edge(s, '0', static_cast<char>(want - 1), free);
    edge(s, want, want, tight[std::min(j + 1, places)]);
  };
  for (size_t j = 0; j <= places; ++j) fraction_edges(tight[j], j);
  fraction_edges(point, 0);
  // cmp: 0 less, 1 equal, 2 greater, of the first n digits.
  std::vector<std::array<uint32_t, 3>> digits(length + 1);
  const auto at_end = [&](size_t n, int cmp) {
    return n < length || cmp == 0 || (cmp == 1 && (!f.empty() || !strict));
  };
  for (size_t n = 1; n <= length; ++n)
    for (int cmp = 0; cmp < 3; ++cmp) digits[n][static_cast<size_t>(cmp)] = add(at_end(n, cmp));
  const auto point_edge = [&](uint32_t s, size_t n, int cmp) {
    if (n < length || cmp == 0)
      edge(s, '.', '.', free_point);
    else if (cmp == 1)
      edge(s, '.', '.', point);
  };
  const auto digit_edges = [&](uint32_t s, size_t n, int cmp, char lo) {
    if (n == length) return;
    const char want = b[n];
    if (cmp != 1) {
      edge(s, lo, '9', digits[n + 1][static_cast<size_t>(cmp)]);
      return;
    }
    edge(s, lo, static_cast<char>(want - 1), digits[n + 1][0]);
    if (want >= lo) edge(s, want, want, digits[n + 1][1]);
    edge(s, std::max<char>(lo, static_cast<char>(want + 1)), '9', digits[n + 1][2]);
  };
  const int zero_cmp = '0' < b[0] ? 0 : 1;
  const uint32_t zero = add(at_end(1, zero_cmp));
  point_edge(zero, 1, zero_cmp);
  edge(0, '0', '0', zero);
  digit_edges(0, 0, 1, '1');
  for (size_t n = 1; n <= length; ++n)
    for (int cmp = 0; cmp < 3; ++cmp) {
      const uint32_t s = digits[n][static_cast<size_t>(cmp)];
      point_edge(s, n, cmp);
      digit_edges(s, n, cmp, '0');
    }
  Dfa d;
  for (uint32_t s = 0; s < out.size(); ++s) {
    std::sort(out[s].begin(), out[s].end(), [](const auto& x, const auto& y) { return x.lo < y.lo; });
    d.edges.insert(d.edges.end(), out[s].begin(), out[s].end());
    d.close_state(accept[s]);
  }
  return minimize(trim(d), budget_);
}

FuzzySet NumberSets::compare(const Decimal& bound, bool strict, bool below) {
  // Exact comparison of plain texts.
  const auto exact = [&](const Decimal& b, bool s) {
    const bool toward = b.negative == below;  // the bound limits the magnitude from below
    if (b.is_zero()) {
      const Dfa nonzero =
          combine(*base_.plain_unsigned, magnitude_at_most(b, false), SetOperation::kMinus, budget_);
      const Dfa zero = magnitude_at_most(b, false);
      if (below) return signed_set(s ? nullptr : &zero, s ? &nonzero : base_.plain_unsigned.get());
      return s ? nonzero : signed_set(base_.plain_unsigned.get(), &zero);
    }
    if (toward) {
      const Dfa large =
          combine(*base_.plain_unsigned, magnitude_at_most(b, !s), SetOperation::kMinus, budget_);
      return below ? signed_set(nullptr, &large) : large;
    }
    const Dfa small = magnitude_at_most(b, s);
    return below ? signed_set(&small, base_.plain_unsigned.get())
                 : signed_set(base_.plain_unsigned.get(), &small);
  };
  Dfa sure;
  if (!strict || bound.is_zero()) {
    sure = exact(bound, strict);
  } else {
    // A decimal just inside a strict bound may round onto it: integers compare exactly, fractions up to the
    // next double.
    const double b = std::strtod(bound.text().c_str(), nullptr);
    const double next = std::nextafter(b, below ? -HUGE_VAL : HUGE_VAL);
    sure = combine(exact(bound, true), *base_.plain_integers, SetOperation::kAnd, budget_);
    sure = combine(sure, exact(decimal_of(nlohmann::json(next)), false), SetOperation::kOr, budget_);
  }
  // A sign alone decides numbers with exponents.
  const bool all_nonnegative = !below && (bound.negative || (bound.is_zero() && !strict));
  const bool all_negative = below && !bound.negative && !(bound.is_zero() && strict);
  if (all_nonnegative) sure = combine(sure, *base_.nonnegative_exponents, SetOperation::kOr, budget_);
  if (all_negative)
    sure =
        combine(sure, combine(*base_.exponents, *base_.nonnegative_exponents, SetOperation::kMinus, budget_),
                SetOperation::kOr, budget_);
  return FuzzySet::crisp(std::move(sure));
}

FuzzySet NumberSets::at_most(const Decimal& bound, bool strict) {
  FuzzySet in = compare(bound, strict, true);
  // Surely outside is what surely lies beyond.
  const FuzzySet beyond = compare(bound, !strict, false);
  in.maybe =
      std::make_shared<const Dfa>(combine(*base_.any.sure, *beyond.sure, SetOperation::kMinus, budget_));
  return in;
}

FuzzySet NumberSets::at_least(const Decimal& bound, bool strict) {
  FuzzySet in = compare(bound, strict, false);
  const FuzzySet beyond = compare(bound, !strict, true);
  in.maybe =
      std::make_shared<const Dfa>(combine(*base_.any.sure, *beyond.sure, SetOperation::kMinus, budget_));
  return in;
}

namespace {

// At most 15 digits, and a fraction of zeros.
Dfa short_integers() {
  constexpr uint32_t kDigits = 15, kPoint = kDigits + 2, kZeros = kPoint + 1;
  Dfa d;
  d.edges.push_back({'-', '-', 1});
  d.edges.push_back({'0', '9', 2});
  d.close_state(false);
  d.edges.push_back({'0', '9', 2});
  d.close_state(false);
  for (uint32_t n = 1; n <= kDigits; ++n) {
    d.edges.push_back({'.', '.', kPoint});
    if (n < kDigits) d.edges.push_back({'0', '9', n + 2});
    d.close_state(true);
  }
  d.edges.push_back({'0', '0', kZeros});
  d.close_state(false);
  d.edges.push_back({'0', '0', kZeros});
  d.close_state(true);
  return d;
}

}  // namespace

FuzzySet NumberSets::multiples(const Decimal& divisor) {
  require(divisor.is_integer() && !divisor.negative && !divisor.is_zero(), ErrorCode::kUnsupported,
          "multipleOf {} cannot be enforced: only positive integers can", divisor.text());
  // divisor = core * 10^tens. A state is the remainder of the digits before the last run of zeros, and that
  // run.
  std::string digits = divisor.digits;
  uint32_t tens = 0;
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back(), ++tens;
  require(digits.size() <= 4 && std::stoul(digits) <= 2000, ErrorCode::kUnsupported,
          "multipleOf {} cannot be enforced: its part without tens is above 2000", divisor.text());
  const auto core = static_cast<uint32_t>(std::stoul(digits));
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
  Dfa all = minimize(trim(d), budget_);
  // Readers that hold numbers as doubles lose the last digits of longer integers.
  const Dfa exact = combine(*base_.integers.sure, short_integers(), SetOperation::kAnd, budget_);
  Dfa sure = combine(all, exact, SetOperation::kAnd, budget_);
  // Surely no multiple: other plain integers, and what surely is no integer.
  Dfa no_integer = combine(*base_.any.sure, *base_.integers.maybe, SetOperation::kMinus, budget_);
  Dfa not_multiple =
      combine(combine(exact, all, SetOperation::kMinus, budget_), no_integer, SetOperation::kOr, budget_);
  return FuzzySet::between(std::move(sure),
                           combine(*base_.any.sure, not_multiple, SetOperation::kMinus, budget_));
}

}  // namespace millrace::grammar
