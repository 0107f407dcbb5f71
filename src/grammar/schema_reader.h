// Keywords of a JSON Schema to sets of values.
#pragma once

#include <map>
#include <string>

#include "grammar/schema_document.h"
#include "grammar/value_set.h"

namespace millrace::grammar {

class SchemaReader {
 public:
  SchemaReader(std::string_view text, Budget& budget);

  ValueSets& sets() { return sets_; }
  SetId root() { return sets_.schema(document_.root()); }
  /// The set holding exactly this value.
  SetId constant(const Json& value);

 private:
  struct Parts;
  Shapes expand(uint32_t schema);
  Shapes expand_object(uint32_t schema, const Json& json);
  void read_types(const Json& json, Shapes& shapes);
  void read_values(const Json& json, Shapes& shapes);
  void read_numbers(uint32_t schema, const Json& json, Parts& parts);
  void read_strings(uint32_t schema, const Json& json, Parts& parts);
  void read_arrays(uint32_t schema, const Json& json, Parts& parts);
  void read_objects(uint32_t schema, const Json& json, Parts& parts);
  void read_references(uint32_t schema, const Json& json, Shapes& shapes);
  void read_combinations(uint32_t schema, const Json& json, Shapes& shapes);
  void read_conditions(uint32_t schema, const Json& json, Shapes& shapes);
  void read_dependencies(uint32_t schema, const Json& json, Shapes& shapes);
  void read_unevaluated(uint32_t schema, const Json& json, Shapes& shapes);
  Shapes any_of(const std::vector<SetId>& branches);
  Shapes one_of(const std::vector<SetId>& branches);
  Shapes constant_shapes(const Json& value);
  /// Runs f; an unsupported keyword is left out in lenient schemas, and named with its path otherwise.
  template <typename F>
  void keyword(uint32_t schema, const char* name, F&& f);
  SetId child(uint32_t schema, const Json& json, const std::string& token) {
    return sets_.schema(document_.child(schema, json, token));
  }
  /// Whether the document's draft has the keyword, of those that came late.
  bool known(std::string_view name) const;
  uint64_t count_of(const Json& value) const;
  Shape pattern_shape(const std::string& pattern);
  KeyTest key_test(const std::string& pattern);
  FuzzySet pattern_set(const std::string& pattern);
  void restrict(Shapes& shapes, const Shape& to);

  Budget& budget_;
  ValueSets sets_;
  SchemaDocument document_;
  bool annotations_ = false;  ///< some schema looks at what others evaluated
  std::map<std::string, FuzzySet> patterns_;
  std::map<std::string, FuzzySet> formats_;
  std::map<std::string, SetId> constants_;
};

}  // namespace millrace::grammar
