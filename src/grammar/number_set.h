// Sets of JSON numbers as automata over their text. A set of values is two sets of texts: those that surely
// denote a member for every reader (doubles included), and those that may. Forms outside the first (exponents
// under bounds, fractions too long for a double) are never generated.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "grammar/dfa.h"

namespace millrace::grammar {

/// A set known between two bounds: sure is a subset of it, maybe a superset. Crisp sets share one automaton.
struct FuzzySet {
  std::shared_ptr<const Dfa> sure, maybe;

  static FuzzySet crisp(Dfa d) {
    auto p = std::make_shared<const Dfa>(std::move(d));
    return {p, p};
  }
  static FuzzySet between(Dfa sure, Dfa maybe) {
    return {std::make_shared<const Dfa>(std::move(sure)), std::make_shared<const Dfa>(std::move(maybe))};
  }
  bool is_crisp() const { return sure == maybe; }
};

FuzzySet set_and(const FuzzySet& a, const FuzzySet& b, Budget& budget);
FuzzySet set_or(const FuzzySet& a, const FuzzySet& b, Budget& budget);
/// Complement within `universe`.
FuzzySet set_not(const FuzzySet& a, const Dfa& universe, Budget& budget);

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

/// Automata that many schemas share, made once.
class NumberSets {
 public:
  explicit NumberSets(Budget& budget);
  const FuzzySet& any() const { return any_; }
  const FuzzySet& integers() const { return integers_; }
  FuzzySet value(const Decimal& d);
  /// value <= bound (or < when `strict`), >= / > for at_least.
  FuzzySet at_most(const Decimal& bound, bool strict);
  FuzzySet at_least(const Decimal& bound, bool strict);
  /// Integers divisible by `divisor`, a positive integer. kUnsupported when its part without tens is above
  /// 2000.
  FuzzySet multiples(const Decimal& divisor);
  const Dfa& universe() const { return *any_.sure; }

 private:
  FuzzySet compare(const Decimal& bound, bool strict, bool below);
  Dfa magnitude_at_most(const Decimal& bound, bool strict);
  Dfa signed_set(const Dfa* positive, const Dfa* negative);

  Budget& budget_;
  FuzzySet any_, integers_;
  Dfa plain_unsigned_, plain_, exponents_, safe_decimals_, plain_integers_, nonnegative_exponents_;
};

}  // namespace millrace::grammar
