// Sets of JSON numbers as automata over their text. A set of values is two sets of texts: those that surely
// denote a member for every reader (doubles included), and those that may. Forms outside the first (exponents
// under bounds, fractions too long for a double) are never generated.
#pragma once

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

/// Automata that many schemas share, made once.
class NumberSets {
 public:
  explicit NumberSets(SetAlgebra& algebra, Budget& budget);
  const FuzzySet& any() const { return base_.any; }
  const FuzzySet& integers() const { return base_.integers; }
  FuzzySet value(const Decimal& d);
  /// value <= bound (or < when `strict`), >= / > for at_least.
  FuzzySet at_most(const Decimal& bound, bool strict);
  FuzzySet at_least(const Decimal& bound, bool strict);
  /// Integers divisible by `divisor`, a positive integer. kUnsupported when its part without tens is above
  /// 2000.
  FuzzySet multiples(const Decimal& divisor);
  const std::shared_ptr<const Dfa>& universe() const { return base_.any.sure; }

 private:
  /// What never depends on a schema, made once for all.
  struct Base {
    Base();
    FuzzySet any, integers;
    std::shared_ptr<const Dfa> plain_unsigned, exponents, safe_decimals, plain_integers,
        nonnegative_exponents;
  };
  static const Base& base();

  FuzzySet compare(const Decimal& bound, bool strict, bool below);
  Dfa magnitude_at_most(const Decimal& bound, bool strict);
  Dfa signed_set(const Dfa* positive, const Dfa* negative);

  SetAlgebra& algebra_;
  Budget& budget_;
  const Base& base_;
};

}  // namespace millrace::grammar
