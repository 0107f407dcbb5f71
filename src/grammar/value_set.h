// Sets of JSON values in a form that intersection, union and complement keep: a set is a list of shapes
// (their union), each of one JSON type, with subsets named by number so that recursion and sharing cost
// nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/number_set.h"

namespace millrace::grammar {

/// Number of a set: an expression over schemas, computed when it is looked into.
using SetId = uint32_t;

enum class JsonType : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

/// Which keys a constraint is about.
struct KeyTest {
  FuzzySet names;
  std::string source;  ///< for recognising equal tests
};

/// "Every key: the values of properties it is listed in or matches; otherwise `rest`."
struct ObjectGroup {
  std::vector<std::pair<std::string, SetId>> properties;
  std::vector<std::pair<KeyTest, SetId>> patterns;
  SetId rest = 1;           ///< kEverything
  bool rest_given = false;  ///< rest is a keyword of the schema: it evaluates what it covers
  bool annotates = true;    ///< false: made by a negation, evaluates nothing
};

/// "Some key in `names` has a value in `value`."
struct Witness {
  KeyTest names;
  SetId value = 1;
};

struct ObjectShape {
  std::vector<ObjectGroup> groups;
  std::vector<std::string> required;
  std::vector<FuzzySet> key_names;  ///< each key is in all of them
  std::vector<std::pair<std::string, std::string>> implies;
  std::vector<Witness> witnesses;
  uint64_t min = 0, max = ~uint64_t{0};
};

struct ArrayGroup {
  std::vector<SetId> prefix;
  SetId rest = 1;
  bool rest_given = false;
  bool annotates = true;
};

struct ContainsRule {
  SetId value = 1;
  uint64_t min = 1, max = ~uint64_t{0};
  uint64_t from = 0;  ///< items before this index do not count
  bool annotates = true;
};

struct ArrayShape {
  std::vector<ArrayGroup> groups;
  std::vector<ContainsRule> contains;
  uint64_t min = 0, max = ~uint64_t{0};
  bool unique = false;
  bool repeats = false;  ///< some two items are equal
};

struct Shape {
  JsonType type = JsonType::kNull;
  uint8_t booleans = 3;                                ///< bit 0: false, bit 1: true
  FuzzySet set;                                        ///< numbers by text, strings by characters
  uint64_t min = 0, max = ~uint64_t{0};                ///< length of strings
  std::shared_ptr<const std::vector<Decimal>> values;  ///< numbers: all members, when they are few
  std::shared_ptr<const ObjectShape> object;
  std::shared_ptr<const ArrayShape> array;
  std::shared_ptr<const std::string> constant;  ///< objects, arrays: at most the one value that has this text
};

using Shapes = std::vector<Shape>;

/// Where sets come from: schemas by number.
using SchemaExpander = std::function<Shapes(uint32_t schema)>;

/// A set needs its own members to be computed.
class SelfReference : public Error {
 public:
  explicit SelfReference(const std::string& message) : Error(ErrorCode::kInvalidArgument, message) {}
};

class ValueSets {
 public:
  static constexpr SetId kNothing = 0, kEverything = 1;

  explicit ValueSets(Budget& budget);

  void set_expander(SchemaExpander expander) { expander_ = std::move(expander); }
  SetAlgebra& algebra() { return algebra_; }
  NumberSets& numbers() { return numbers_; }
  Budget& budget() { return budget_; }

  SetId schema(uint32_t number);
  SetId both(SetId a, SetId b);
  SetId either(SetId a, SetId b);
  SetId complement(SetId a);
  SetId of_shapes(Shapes shapes);

  /// The shapes of a set. Error(kInvalidArgument) when a set contains itself at the same place (a $ref to
  /// itself).
  const Shapes& expand(SetId id);
  bool expanding(SetId id) const { return nodes_[id].state == State::kRunning; }

  Shapes everything() const { return everything_; }
  Shapes intersect(const Shapes& a, const Shapes& b);
  Shapes unite(Shapes a, const Shapes& b);
  Shapes negate(const Shapes& a);
  /// What is in `a` and not in `b`. Only the shapes of `b` that meet one of `a` are negated, so that what
  /// cannot be negated does no harm elsewhere.
  Shapes subtract(const Shapes& a, const Shapes& b);
  /// Whether the sets surely have no member in common.
  bool disjoint(const Shapes& a, const Shapes& b);
  /// Whether the shape surely has no member; looks `depth` levels into required properties and items.
  bool surely_empty(const Shape& s, int depth);
  bool surely_empty(SetId id, int depth);

  Shape string_shape(FuzzySet set, uint64_t min = 0, uint64_t max = ~uint64_t{0}) const;
  Shape number_shape(FuzzySet set) const;
  const std::shared_ptr<const Dfa>& any_string() const { return any_string_; }

 private:
  enum class Kind : uint8_t { kNothing, kEverything, kSchema, kAnd, kOr, kNot, kShapes };
  enum class State : uint8_t { kNew, kRunning, kDone };
  struct Node {
    Kind kind;
    uint32_t a = 0, b = 0;
    State state = State::kNew;
    std::vector<SetId> parts;  ///< kAnd: sorted
    Shapes shapes;
  };

  SetId make(Node node, const std::string& key);
  bool intersect_shape(const Shape& a, const Shape& b, Shape& out);
  bool intersect_objects(const ObjectShape& a, const ObjectShape& b, ObjectShape& out);
  bool intersect_arrays(const ArrayShape& a, const ArrayShape& b, ArrayShape& out);
  void compute(Node& node, Shapes& out);
  bool meets(const Shape& a, const Shape& b);
  void negate_shape(const Shape& s, Shapes& out);
  /// Everything of its type that is not in the shape; kept for objects.
  const Shapes& negation(const Shape& s);
  void negate_object(const ObjectShape& o, Shapes& out);
  /// The keys that `rest` of the group is about.
  KeyTest rest_keys(const ObjectGroup& group);
  void negate_array(const ArrayShape& a, Shapes& out);
  void check_count(size_t n) const;

  Budget& budget_;
  SetAlgebra algebra_;
  NumberSets numbers_;
  std::shared_ptr<const Dfa> any_string_;
  SchemaExpander expander_;
  std::deque<Node> nodes_;
  std::unordered_map<std::string, SetId> ids_;
  HashIndex ands_;
  std::vector<SetId> schemas_;  ///< by number; kNothing: none yet
  std::unordered_map<std::shared_ptr<const ObjectShape>, Shapes> negations_;
  std::unordered_map<std::string, KeyTest> rest_keys_;
  std::vector<FuzzySet> held_;  ///< sets whose addresses are part of names in rest_keys_
  Shapes negation_;
  Shapes everything_;
  size_t running_ = 0;
};

/// The set that `property` must be in, by one group; kEverything when the group says nothing about it.
SetId group_value(ValueSets& sets, const ObjectGroup& group, const std::string& property);

}  // namespace millrace::grammar
