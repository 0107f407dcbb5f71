#include "grammar/fuzzy_set.h"

namespace millrace::grammar {
namespace {

uint64_t mixed(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 29);
}

uint64_t content_hash(const Dfa& d) {
  uint64_t h = mixed(d.size(), d.edges.size());
  for (const Dfa::Edge& e : d.edges) h = mixed(mixed(h, uint64_t{e.lo} << 32 | e.hi), e.target);
  for (uint32_t s = 0; s < d.size(); ++s) h = mixed(h, uint64_t{d.first[s]} << 1 | d.accept[s]);
  return h;
}

}  // namespace

std::shared_ptr<const Dfa> SetAlgebra::interned(Dfa dfa) {
  const uint64_t hash = content_hash(dfa);
  const uint32_t known = by_content_.find(hash, [&](uint32_t i) { return *automata_[i] == dfa; });
  if (known != HashIndex::kNone) return automata_[known];
  automata_.push_back(std::make_shared<const Dfa>(std::move(dfa)));
  by_content_.insert(hash, static_cast<uint32_t>(automata_.size() - 1));
  const Dfa& kept = *automata_.back();
  const size_t bytes = kept.edges.size() * sizeof(Dfa::Edge) + kept.size() * 5 + 120;
  budget_.add_memory(bytes);
  bytes_ += bytes;
  return automata_.back();
}

std::shared_ptr<const Dfa> SetAlgebra::combined(const std::shared_ptr<const Dfa>& a,
                                                const std::shared_ptr<const Dfa>& b, SetOperation operation) {
  if (a == b && operation != SetOperation::kMinus) return a;
  const bool swap = operation != SetOperation::kMinus && b < a;
  const auto& x = swap ? b : a;
  const auto& y = swap ? a : b;
  const uint64_t hash = mixed(mixed(static_cast<uint64_t>(operation), reinterpret_cast<uintptr_t>(x.get())),
                              reinterpret_cast<uintptr_t>(y.get()));
  const uint32_t known = by_operands_.find(hash, [&](uint32_t i) {
    const Answer& k = answers_[i];
    return k.a == x && k.b == y && k.operation == operation;
  });
  if (known != HashIndex::kNone) return answers_[known].result;
  if (bytes_ > kMostBytes) {
    budget_.release_memory(bytes_);
    bytes_ = 0;
    answers_.clear();
    by_operands_.clear();
    automata_.clear();
    by_content_.clear();
  }
  auto result = interned(combine(*x, *y, operation, budget_));
  answers_.push_back({x, y, operation, result});
  by_operands_.insert(hash, static_cast<uint32_t>(answers_.size() - 1));
  budget_.add_memory(sizeof(Answer));
  bytes_ += sizeof(Answer);
  return result;
}

FuzzySet SetAlgebra::both(const FuzzySet& a, const FuzzySet& b) {
  if (a.sure == b.sure && a.maybe == b.maybe) return a;
  if (is_universal(*a.sure)) return b;
  if (is_universal(*b.sure)) return a;
  auto sure = combined(a.sure, b.sure, SetOperation::kAnd);
  if (a.is_crisp() && b.is_crisp()) return {sure, sure};
  return {std::move(sure), combined(a.maybe, b.maybe, SetOperation::kAnd)};
}

FuzzySet SetAlgebra::either(const FuzzySet& a, const FuzzySet& b) {
  if (a.sure == b.sure && a.maybe == b.maybe) return a;
  auto sure = combined(a.sure, b.sure, SetOperation::kOr);
  if (a.is_crisp() && b.is_crisp()) return {sure, sure};
  return {std::move(sure), combined(a.maybe, b.maybe, SetOperation::kOr)};
}

FuzzySet SetAlgebra::complement(const FuzzySet& a, const std::shared_ptr<const Dfa>& universe) {
  auto sure = combined(universe, a.maybe, SetOperation::kMinus);
  if (a.is_crisp()) return {sure, sure};
  return {std::move(sure), combined(universe, a.sure, SetOperation::kMinus)};
}

}  // namespace millrace::grammar
