#include "grammar/number_set.h"

#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "grammar/regex.h"

namespace millrace::grammar {

// One digit, up to sixteen after the point, and an exponent of at least 16: an integer.
#define HUGE_NUMBER(exponent) "[1-9](\\.[0-9]{1,16})?[eE]\\+?" exponent

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
  return decimal_of_text(text);
}

Decimal decimal_of_text(std::string_view text) {
  Decimal d;
  size_t i = 0;
  if (text[0] == '-') d.negative = true, ++i;
  std::string digits, fraction;
  for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); ++i) digits += text[i];
  if (i < text.size() && text[i] == '.')
    for (++i; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); ++i) fraction += text[i];
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    int exponent = std::atoi(std::string(text.substr(i + 1)).c_str());
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

namespace {

// "|2\\.5[eE]-0?7" for a number that programs write with an exponent.
std::string with_exponent(const Decimal& d) {
  std::string text = fmt::format("{}", std::strtod(d.text().c_str(), nullptr));
  if (text.find('e') == std::string::npos && d.digits.size() >= 16 && d.fraction.empty())
    text = fmt::format("{}{}.{}e+{}", d.negative ? "-" : "", d.digits[0], d.digits.substr(1),
                       d.digits.size() - 1);
  const size_t e = text.find('e');
  if (e == std::string::npos || text.size() < e + 3) return "";
  std::string mantissa = text.substr(0, e);
  if (const size_t point = mantissa.find('.'); point != std::string::npos) {
    while (mantissa.back() == '0') mantissa.pop_back();
    mantissa.back() == '.' ? mantissa.pop_back() : void(mantissa.insert(point, "\\"));
  }
  std::string exponent = text.substr(e + 2);
  exponent.erase(0, std::min(exponent.find_first_not_of('0'), exponent.size() - 1));
  return fmt::format("|{}[eE]{}0?{}", mantissa, text[e + 1] == '-' ? "-" : "\\+?", exponent);
}

}  // namespace

NumberSets::Base::Base() {
  Budget budget;
  const auto set = [&](const char* pattern) {
    return std::make_shared<const Dfa>(whole_text(pattern, budget));
  };
  // Two digits of exponent keep every number within a double, three do after one digit.
#define PLAIN "(0|[1-9][0-9]*)(\\.[0-9]+)?"
  // Zero has no exponent: whatever followed, it would stay zero, and where values must differ that is a dead
  // end.
#define NONZERO "([1-9][0-9]*(\\.[0-9]+)?|0\\.0*[1-9][0-9]*)"
#define SCIENTIFIC "[1-9](\\.[0-9]+)?[eE](\\+?([12][0-9]{2}|30[0-7])|-([12][0-9]{2}|3[01][0-9]|32[0-4]))"
  plain_unsigned = set(PLAIN);
  nonnegative_exponents = set(NONZERO "[eE][-+]?[0-9]{1,2}|" SCIENTIFIC);
  exponents = set("-?(" NONZERO "[eE][-+]?[0-9]{1,2}|" SCIENTIFIC ")");
  plain_integers = set("-?(0|[1-9][0-9]*)");
  // Decimals that every double tells apart: at most 15 digits.
  safe_decimals = set("-?(0|[1-9][0-9]{0,6})(\\.[0-9]{1,8})?");
  // As programs write doubles of at least 1e15 and of at most 0.1.
#define HUGE_NUMBERS \
  "([1-9](\\.[0-9]{1,15})?[eE]\\+?15|" HUGE_NUMBER("(1[6-9]|[2-9][0-9]|[12][0-9]{2}|30[0-7])") ")"
  huge = set(HUGE_NUMBERS);
  tiny = set("[1-9](\\.[0-9]{1,17})?[eE]-(0?[2-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])");
  any = FuzzySet::crisp(whole_text("-?(" PLAIN "|" NONZERO "[eE][-+]?[0-9]{1,2}|" SCIENTIFIC ")", budget));
  const Dfa short_forms = *set("-?((0|[1-9][0-9]*)|(0|[1-9][0-9]{0,14})\\.0{1,15})");
  Dfa sure = combine(short_forms, *set("-?" HUGE_NUMBERS), SetOperation::kOr, budget);
  // Anything but a fraction that is surely none may be an integer: exponents, and long fractions that round.
  Dfa surely_not = combine(*safe_decimals, *set("-?[0-9]+(\\.0+)?"), SetOperation::kMinus, budget);
  surely_not = combine(surely_not, *set("-?[1-9](\\.[0-9]{1,17})?[eE]-(0?[2-9]|[1-9][0-9])"),
                       SetOperation::kOr, budget);
  integers = FuzzySet::between(std::move(sure), combine(*any.sure, surely_not, SetOperation::kMinus, budget));
}

const NumberSets::Base& NumberSets::base() {
  static const Base made;
  return made;
}

NumberSets::NumberSets(Budget& budget) : budget_(budget), base_(base()) {}

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
  } else if (d.digits.size() <= 15 || std::strtod(d.digits.c_str(), nullptr) <= 9007199254740992.0) {
    pattern += "(\\.0{1,15})?";
  }
  pattern += with_exponent(d);
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
  add_scientific(bound, below, sure);
  if (const std::string same = strict ? "" : with_exponent(bound); !same.empty())
    sure = combine(sure, whole_text(same.substr(1), budget_), SetOperation::kOr, budget_);
  return FuzzySet::crisp(std::move(sure));
}

// Huge and tiny numbers that are surely on one side of the bound.
void NumberSets::add_scientific(const Decimal& bound, bool below, Dfa& sure) {
  const auto add = [&](const Dfa& unsigned_set, bool negative) {
    sure = combine(sure, negative ? signed_set(nullptr, &unsigned_set) : unsigned_set, SetOperation::kOr,
                   budget_);
  };
  const auto huge = [&](size_t low, size_t high, bool negative) {
    if (low <= 15 && high == 307) return add(*base_.huge, negative);
    low = std::max<size_t>(low, 16);
    if (low > high) return;
    std::string exponents;
    for (size_t x = low; x <= high; ++x) exponents += (x > low ? "|" : "(") + std::to_string(x);
    add(whole_text(std::string("[1-9](\\.[0-9]{1,16})?[eE]\\+?") + exponents + ")", budget_), negative);
  };
  // With n digits before the point, 10^n is above the bound's magnitude and 10^(n - 1) is not.
  const size_t n = bound.digits.size();
  const bool zero = bound.is_zero();
  for (const bool negative : {false, true}) {
    const bool wanted_beyond = below == negative;  // a larger magnitude leads away from the bound
    if (zero || negative != bound.negative) {
      if (wanted_beyond) {
        huge(0, 307, negative);
        add(*base_.tiny, negative);
      }
      continue;
    }
    const bool tiny_within =
        n > 1 || bound.digits[0] > '0' || (!bound.fraction.empty() && bound.fraction[0] >= '2');
    if (wanted_beyond) {
      huge(n, 307, negative);
    } else {
      if (n >= 18) huge(16, n - 2, negative);
      if (tiny_within) add(*base_.tiny, negative);
    }
  }
}

FuzzySet NumberSets::bounded(const Decimal& bound, bool strict, bool below) {
  const std::string name = fmt::format("{}{}{}", below ? '<' : '>', strict ? '!' : '=', bound.text());
  if (const auto it = bounds_.find(name); it != bounds_.end()) return it->second;
  // Most schemas have the same few bounds: 0, 1, 100.
  static std::mutex mutex;
  static std::map<std::string, FuzzySet> common;
  const bool shared = name.size() <= 12;
  if (shared) {
    const std::lock_guard lock(mutex);
    if (const auto it = common.find(name); it != common.end())
      return bounds_.emplace(name, it->second).first->second;
  }
  FuzzySet in = compare(bound, strict, below);
  // Surely outside is what surely lies beyond.
  const FuzzySet beyond = compare(bound, !strict, !below);
  in.maybe =
      std::make_shared<const Dfa>(combine(*base_.any.sure, *beyond.sure, SetOperation::kMinus, budget_));
  budget_.add_memory((in.sure->edges.size() + in.maybe->edges.size()) * sizeof(Dfa::Edge) + 200);
  bounds_.emplace(name, in);
  if (shared) {
    const std::lock_guard lock(mutex);
    if (common.size() >= 256) common.clear();
    common.emplace(name, in);
  }
  return in;
}

}  // namespace millrace::grammar
