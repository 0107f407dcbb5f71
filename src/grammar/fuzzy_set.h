// Sets of texts known between two bounds, and their algebra. Schemas ask the same questions of the same sets
// over and over (branches of oneOf against each other, keys of one object in many places), so answers are
// kept.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "grammar/dfa.h"
#include "grammar/hash_index.h"

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

class SetAlgebra {
 public:
  explicit SetAlgebra(Budget& budget) : budget_(budget) {}
  SetAlgebra(const SetAlgebra&) = delete;
  SetAlgebra& operator=(const SetAlgebra&) = delete;

  FuzzySet both(const FuzzySet& a, const FuzzySet& b);
  FuzzySet either(const FuzzySet& a, const FuzzySet& b);
  /// Complement within `universe`.
  FuzzySet complement(const FuzzySet& a, const std::shared_ptr<const Dfa>& universe);
  /// What combine() makes of the two; computed once for two automata, and equal results are one automaton.
  std::shared_ptr<const Dfa> combined(const std::shared_ptr<const Dfa>& a,
                                      const std::shared_ptr<const Dfa>& b, SetOperation operation);

 private:
  static constexpr size_t kMostBytes = size_t{6} << 20;  ///< answers kept; above, all are forgotten

  struct Answer {
    std::shared_ptr<const Dfa> a, b;  ///< held, so that an address is never that of another
    SetOperation operation;
    std::shared_ptr<const Dfa> result;
  };
  std::shared_ptr<const Dfa> interned(Dfa dfa);

  Budget& budget_;
  std::vector<Answer> answers_;
  HashIndex by_operands_;
  std::vector<std::shared_ptr<const Dfa>> automata_;
  HashIndex by_content_;
  size_t bytes_ = 0;
};

}  // namespace millrace::grammar
