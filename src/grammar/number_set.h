// Sets of JSON numbers as automata over their text. A set of values is two sets of texts: those that surely
// denote a member for every reader (doubles included), and those that may. Forms outside the first (exponents
// under bounds, fractions too long for a double) are never generated.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "grammar/fuzzy_set.h"

namespace millrace::grammar {

/// An exact decimal.
struct Decimal {
  bool negative = false;
  std::string digits = "0";  ///< integer part, without leading zeros
  std::string fraction;      ///< without trailing zeros
  bool is_zero() const { return digits == "0" && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
  std::string text() const;
};

/// Errors: kUnsupported when it has more than 400 digits.
Decimal decimal_of(const nlohmann::json& number);
/// Of a JSON number's text.
Decimal decimal_of_text(std::string_view text);

/// Automata that many schemas share, made once.
class NumberSets {
 public:
  explicit NumberSets(Budget& budget);
  const FuzzySet& any() const { return base_.any; }
  const FuzzySet& integers() const { return base_.integers; }
  const std::shared_ptr<const Dfa>& plain_integers() const { return base_.plain_integers; }
  FuzzySet value(const Decimal& d);
  /// value <= bound (or < when `strict`), >= / > for at_least.
  FuzzySet at_most(const Decimal& bound, bool strict) { return bounded(bound, strict, true); }
  FuzzySet at_least(const Decimal& bound, bool strict) { return bounded(bound, strict, false); }
  /// Integers divisible by `divisor`, a positive integer, or decimals divisible by a positive fraction.
  /// kUnsupported when an integer's part without tens is above 10,000, or a fraction has more than 18 places.
  FuzzySet multiples(const Decimal& divisor);
  const std::shared_ptr<const Dfa>& universe() const { return base_.any.sure; }

 private:
  /// What never depends on a schema, made once for all.
  struct Base {
    Base();
    FuzzySet any, integers;
    std::shared_ptr<const Dfa> plain_unsigned, exponents, safe_decimals, plain_integers,
        nonnegative_exponents, huge, tiny;
  };
  static const Base& base();

  FuzzySet bounded(const Decimal& bound, bool strict, bool below);
  void add_scientific(const Decimal& bound, bool below, Dfa& sure);
  Dfa integer_multiples(uint32_t core, uint32_t tens);
  FuzzySet fraction_multiples(const Decimal& divisor);
  FuzzySet compare(const Decimal& bound, bool strict, bool below);
  Dfa magnitude_at_most(const Decimal& bound, bool strict);
  Dfa signed_set(const Dfa* positive, const Dfa* negative);

  Budget& budget_;
  const Base& base_;
  std::map<std::string, FuzzySet> bounds_;
};

}  // namespace millrace::grammar
