// The one grammar that every front end produces: rules over expressions of bytes and code points, and three
// kinds of rule that JSON Schema needs (string, object, array), which no expression could say without
// multiplying out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/dfa.h"
#include "grammar/limits.h"
#include "grammar/sets.h"

namespace millrace::grammar {

using ExprId = uint32_t;
using RuleId = uint32_t;
inline constexpr uint32_t kUnlimited = ~uint32_t{0};
inline constexpr uint32_t kNone = ~uint32_t{0};

enum class ExprKind : uint8_t {
  kEmpty,     ///< the empty text
  kNever,     ///< nothing at all
  kClass,     ///< one character out of classes[index]
  kByte,      ///< one raw byte in [min, max]
  kLiteral,   ///< the bytes literals[index]
  kSequence,  ///< children in a row
  kChoice,    ///< one of the children
  kRepeat,    ///< children[0], min to max times (kUnlimited)
  kRule,      ///< rules[index]
  kBegin,     ///< matches nothing, at the start of the text only
  kEnd,       ///< matches nothing, at the end of the text only
  kBoundary,  ///< between a word character (ASCII) and another, or an end
  kNotBoundary,
};

struct Expr {
  ExprKind kind = ExprKind::kEmpty;
  uint32_t index = 0;
  uint32_t min = 0, max = 0;
  std::vector<ExprId> children;
};

/// A JSON string, quotes included: its characters, after escapes are resolved, are in `dfa` (over code
/// points) and between min and max in number.
struct StringRule {
  std::shared_ptr<const Dfa> dfa;
  uint64_t min = 0, max = kUnlimitedLength;
  static constexpr uint64_t kUnlimitedLength = ~uint64_t{0};
};

/// One set of keys that an object treats alike.
struct KeyClass {
  RuleId value = kNone;  ///< rule of the value; kNone when no value is allowed, so neither is the key
  bool tracked = false;  ///< exactly one key: may appear once, and is remembered
  uint32_t bit = 0;      ///< tracked: its place in the set of keys seen
  /// Other values that also satisfy witnesses: choosing one sets its bits. Each is (value rule, witness
  /// bits).
  std::vector<std::pair<RuleId, uint64_t>> claims;
};

/// A JSON object with its keys in any order.
struct ObjectRule {
  /// Over code points of keys. Accepting states carry a class in `accept_class` (same size as dfa states,
  /// kNone = none).
  std::shared_ptr<const Dfa> keys;
  std::vector<uint32_t> accept_class;
  std::vector<KeyClass> classes;
  uint32_t num_tracked = 0;
  std::vector<uint32_t> required;                      ///< tracked bits that must be seen
  std::vector<std::pair<uint32_t, uint32_t>> implies;  ///< seen first => second must be seen
  uint32_t min_properties = 0, max_properties = kUnlimited;
  uint32_t num_witnesses = 0;  ///< each must be claimed by some property
  bool remember_keys = false;  ///< refuse a second use of untracked keys too
};

struct ArrayContains {
  uint32_t min = 1, max = kUnlimited;
};

/// What may stand at one place of an array: value rules, each with the contains counters it raises.
struct ArrayChoice {
  RuleId value = kNone;
  uint32_t contains = 0;        ///< bit i: counts for ArrayRule::contains[i]
  uint32_t unique_bit = kNone;  ///< this value is one constant: with `unique` it may be chosen once
};

struct ArrayRule {
  std::vector<std::vector<ArrayChoice>> prefix;
  std::vector<ArrayChoice> rest;  ///< empty: nothing after the prefix
  uint32_t min_items = 0, max_items = kUnlimited;
  std::vector<ArrayContains> contains;
  bool unique = false;           ///< no two items equal (as JSON values)
  uint32_t num_unique_bits = 0;  ///< constants that are remembered as bits
  bool unique_by_text = false;   ///< other items are remembered by value
  bool repeats = false;          ///< with unique_by_text: some two items are equal
};

enum class RuleKind : uint8_t { kExpr, kString, kObject, kArray };

struct Rule {
  std::string name;
  RuleKind kind = RuleKind::kExpr;
  ExprId expr = 0;
  uint32_t index = 0;                    ///< into strings, objects or arrays
  std::shared_ptr<const Dfa> automaton;  ///< kExpr: over bytes, instead of the expression
};

/// A rule that repeats a body between min and max times, counting: made by lowering out of large repetitions.
struct Counted {
  bool is = false;
  uint32_t min = 0, max = 0;
  RuleId body = 0;
};

enum class Whitespace : uint8_t {
  kFlexible,  ///< any JSON white space wherever JSON allows it
  kCompact,   ///< none
};

struct Grammar {
  std::vector<Expr> exprs;
  std::vector<CodepointSet> classes;
  std::vector<std::string> literals;
  std::vector<Rule> rules;
  std::vector<StringRule> strings;
  std::vector<ObjectRule> objects;
  std::vector<ArrayRule> arrays;
  std::vector<Counted> counted;  ///< by rule, filled by lowering
  RuleId root = 0;
  Whitespace whitespace = Whitespace::kFlexible;

  ExprId add(Expr e);
  ExprId empty() { return add({ExprKind::kEmpty, 0, 0, 0, {}}); }
  ExprId never() { return add({ExprKind::kNever, 0, 0, 0, {}}); }
  ExprId literal(std::string_view bytes);
  ExprId byte(uint8_t lo, uint8_t hi) { return add({ExprKind::kByte, 0, lo, hi, {}}); }
  ExprId char_class(CodepointSet set);
  ExprId sequence(std::vector<ExprId> children);
  ExprId choice(std::vector<ExprId> children);
  ExprId repeat(ExprId child, uint32_t min, uint32_t max);
  ExprId rule_ref(RuleId rule) { return add({ExprKind::kRule, rule, 0, 0, {}}); }
  RuleId add_rule(std::string name, ExprId expr);
};

}  // namespace millrace::grammar
