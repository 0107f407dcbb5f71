#include "grammar/schema_reader.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "grammar/formats.h"
#include "grammar/nfa.h"
#include "grammar/regex.h"

namespace millrace::grammar {

namespace {

// A format's automaton, made once for all schemas: there are as many as the table of formats has lines.
std::shared_ptr<const Dfa> format_members(const std::string& name, const FormatRule& rule) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Dfa>> made;
  const std::lock_guard lock(mutex);
  auto& members = made[name];
  if (!members) {
    Budget budget;
    members = std::make_shared<const Dfa>(whole_text(rule.regex, budget));
  }
  return members;
}

// One text for equal values.
std::string canonical(const Json& v) {
  std::string out;
  if (v.is_array()) {
    for (const Json& item : v) out += (out.empty() ? "[" : ",") + canonical(item);
    return out.empty() ? "[]" : out + "]";
  }
  if (v.is_object()) {
    std::map<std::string, std::string> members;
    for (const auto& [name, value] : v.items()) members[Json(name).dump()] = canonical(value);
    for (const auto& [name, value] : members) {
      out += out.empty() ? "{" : ",";
      out.append(name).append(":").append(value);
    }
    return out.empty() ? "{}" : out + "}";
  }
  return v.is_number() ? decimal_of(nlohmann::json(v)).text() : v.dump();
}

[[noreturn]] void rethrow_at(const Error& e, const std::string& path) {
  const std::string message = fmt::format("{}: {}", path, e.what());
  if (dynamic_cast<const SelfReference*>(&e)) throw SelfReference(message);
  throw Error(e.code(), message);
}

}  // namespace

/// What one schema demands of each type by its own keywords.
struct SchemaReader::Parts {
  Shape number, string;
  ArrayShape array;
  ObjectShape object;
  bool has_number = false, has_string = false, has_array = false, has_object = false;
};

SchemaReader::SchemaReader(std::string_view text, Budget& budget)
    : budget_(budget), sets_(budget), document_(text, budget) {
  sets_.set_expander([this](uint32_t schema) { return expand(schema); });
  annotations_ = document_.draft() >= Draft::k2019 &&
                 (document_.uses("unevaluatedProperties") || document_.uses("unevaluatedItems"));
}

template <typename F>
void SchemaReader::keyword(uint32_t schema, const char* name, F&& f) {
  const Subschema& s = document_.at(schema);
  try {
    f();
  } catch (const Error& e) {
    const bool named = std::string_view(e.what()).substr(0, 1) == "#";
    if (e.code() == ErrorCode::kUnsupported && s.lenient) return;
    if (named || e.code() == ErrorCode::kCancelled) throw;
    rethrow_at(e, fmt::format("{}/{}", s.path, name));
  }
}

// Words of later drafts are remarks in earlier ones. `dependencies` stays a keyword in all: of the validators
// for the later drafts some read it.
bool SchemaReader::known(std::string_view name) const {
  const Draft draft = document_.draft();
  if (name == "$dynamicRef") return draft >= Draft::k2020;
  if (name == "$recursiveRef") return draft == Draft::k2019;
  if (name.substr(0, 9) == "dependent") return draft >= Draft::k2019;
  return true;
}

uint64_t SchemaReader::count_of(const Json& value) const {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_float()) {
    const double d = value.get<double>();
    if (d >= 0 && std::floor(d) == d)
      return d < 1e15 ? static_cast<uint64_t>(d) : uint64_t{1'000'000'000'000'000};
  }
  fail(ErrorCode::kInvalidArgument, "must be a non-negative integer");
}

Shapes SchemaReader::expand(uint32_t schema) {
  const Subschema& s = document_.at(schema);
  if (s.json->is_boolean()) return s.json->get<bool>() ? sets_.everything() : Shapes{};
  try {
    return expand_object(schema, *s.json);
  } catch (const Error& e) {
    if (std::string_view(e.what()).substr(0, 1) == "#" || e.code() == ErrorCode::kCancelled) throw;
    rethrow_at(e, s.path);
  }
}

Shapes SchemaReader::expand_object(uint32_t schema, const Json& json) {
  Shapes shapes = sets_.everything();
  budget_.tick(16);
  if (document_.draft() <= Draft::k7 && json.contains("$ref")) {
    read_references(schema, json, shapes);
    return shapes;
  }
  read_types(json, shapes);
  read_values(json, shapes);
  Parts parts;
  parts.number = sets_.number_shape(sets_.numbers().any());
  parts.string = sets_.string_shape({sets_.any_string(), sets_.any_string()});
  read_numbers(schema, json, parts);
  read_strings(schema, json, parts);
  read_arrays(schema, json, parts);
  read_objects(schema, json, parts);
  if (parts.has_number) restrict(shapes, parts.number);
  if (parts.has_string) restrict(shapes, parts.string);
  if (parts.has_array) {
    Shape s;
    s.type = JsonType::kArray;
    s.array = std::make_shared<const ArrayShape>(std::move(parts.array));
    restrict(shapes, s);
  }
  if (parts.has_object) {
    Shape s;
    s.type = JsonType::kObject;
    s.object = std::make_shared<const ObjectShape>(std::move(parts.object));
    restrict(shapes, s);
  }
  read_references(schema, json, shapes);
  read_combinations(schema, json, shapes);
  read_conditions(schema, json, shapes);
  read_dependencies(schema, json, shapes);
  read_unevaluated(schema, json, shapes);
  return shapes;
}

void SchemaReader::restrict(Shapes& shapes, const Shape& to) {
  Shapes all = sets_.everything();
  for (Shape& s : all)
    if (s.type == to.type) s = to;
  shapes = sets_.intersect(shapes, all);
}

void SchemaReader::read_types(const Json& json, Shapes& shapes) {
  const auto it = json.find("type");
  if (it == json.end()) return;
  std::vector<std::string> names;
  if (it->is_string()) names.push_back(*it);
  if (it->is_array())
    for (const Json& t : *it) {
      require(t.is_string(), ErrorCode::kInvalidArgument, "type: must be a name or a list of names");
      names.push_back(t);
    }
  require(!names.empty() || it->is_array(), ErrorCode::kInvalidArgument,
          "type: must be a name or a list of names");
  const auto has = [&](const char* n) { return std::find(names.begin(), names.end(), n) != names.end(); };
  for (const std::string& n : names) {
    static constexpr const char* kNames[] = {"null",   "boolean", "integer", "number",
                                             "string", "array",   "object"};
    require(std::find(std::begin(kNames), std::end(kNames), n) != std::end(kNames),
            ErrorCode::kInvalidArgument, "type: '{}' is not a type of JSON Schema", n);
  }
  Shapes kept;
  for (Shape& s : shapes) {
    switch (s.type) {
      case JsonType::kNull:
        if (has("null")) kept.push_back(s);
        break;
      case JsonType::kBoolean:
        if (has("boolean")) kept.push_back(s);
        break;
      case JsonType::kString:
        if (has("string")) kept.push_back(s);
        break;
      case JsonType::kArray:
        if (has("array")) kept.push_back(s);
        break;
      case JsonType::kObject:
        if (has("object")) kept.push_back(s);
        break;
      case JsonType::kNumber:
        if (has("number")) {
          kept.push_back(s);
        } else if (has("integer")) {
          s.set = sets_.numbers().integers();
          // Draft 4 has no integer with a point.
          if (document_.draft() == Draft::k4)
            s.set.sure =
                sets_.algebra().combined(s.set.sure, sets_.numbers().plain_integers(), SetOperation::kAnd);
          kept.push_back(s);
        }
        break;
    }
  }
  shapes = std::move(kept);
}

Shapes SchemaReader::constant_shapes(const Json& v) {
  Shape s;
  budget_.tick();
  switch (v.type()) {
    case Json::value_t::null:
      return {s};
    case Json::value_t::boolean:
      s.type = JsonType::kBoolean;
      s.booleans = v.get<bool>() ? 2 : 1;
      return {s};
    case Json::value_t::string:
      return {sets_.string_shape(FuzzySet::crisp(from_words({decode_utf8(v.get<std::string>())}, budget_)))};
    case Json::value_t::array: {
      auto a = std::make_shared<ArrayShape>();
      ArrayGroup g;
      for (const Json& item : v) g.prefix.push_back(constant(item));
      g.rest = ValueSets::kNothing;
      a->groups.push_back(std::move(g));
      a->groups.back().annotates = false;
      a->min = a->max = v.size();
      s.type = JsonType::kArray;
      s.array = a;
      s.constant = std::make_shared<const std::string>(canonical(v));
      return {s};
    }
    case Json::value_t::object: {
      auto o = std::make_shared<ObjectShape>();
      ObjectGroup g;
      for (const auto& [name, value] : v.items()) {
        g.properties.push_back({name, constant(value)});
        o->required.push_back(name);
      }
      g.rest = ValueSets::kNothing;
      g.annotates = false;
      o->groups.push_back(std::move(g));
      s.type = JsonType::kObject;
      s.object = o;
      s.constant = std::make_shared<const std::string>(canonical(v));
      return {s};
    }
    default: {
      const Decimal d = decimal_of(nlohmann::json(v));
      s = sets_.number_shape(sets_.numbers().value(d));
      s.values = std::make_shared<const std::vector<Decimal>>(1, d);
      return {s};
    }
  }
}

SetId SchemaReader::constant(const Json& value) {
  const std::string key = value.dump();
  const auto it = constants_.find(key);
  if (it != constants_.end()) return it->second;
  const SetId id = sets_.of_shapes(constant_shapes(value));
  constants_.emplace(key, id);
  return id;
}

void SchemaReader::read_values(const Json& json, Shapes& shapes) {
  const auto one = json.find("const");
  if (one != json.end()) shapes = sets_.intersect(shapes, constant_shapes(*one));
  const auto list = json.find("enum");
  if (list == json.end()) return;
  require(list->is_array(), ErrorCode::kInvalidArgument, "enum: must be a list of values");
  Shapes members;
  std::vector<std::u32string> words;
  for (const Json& v : *list) {
    if (v.is_string()) {
      words.push_back(decode_utf8(v.get<std::string>()));
    } else {
      members = sets_.unite(std::move(members), constant_shapes(v));
    }
  }
  if (!words.empty()) members.push_back(sets_.string_shape(FuzzySet::crisp(from_words(words, budget_))));
  shapes = sets_.intersect(shapes, members);
}

void SchemaReader::read_numbers(uint32_t schema, const Json& json, Parts& parts) {
  const auto limit = [&](const char* name, bool below) {
    const auto it = json.find(name);
    if (it == json.end()) return;
    keyword(schema, name, [&] {
      const std::string_view n = name;
      bool strict = n.substr(0, 9) == "exclusive";
      if (it->is_boolean() && strict) return;  // draft 4: a flag beside the bound
      require(it->is_number(), ErrorCode::kInvalidArgument, "must be a number");
      const auto flag = json.find(below ? "exclusiveMaximum" : "exclusiveMinimum");
      if (!strict && flag != json.end() && flag->is_boolean() && flag->get<bool>()) strict = true;
      const Decimal d = decimal_of(nlohmann::json(*it));
      const FuzzySet s = below ? sets_.numbers().at_most(d, strict) : sets_.numbers().at_least(d, strict);
      parts.number.set = parts.has_number ? sets_.algebra().both(parts.number.set, s) : s;
      parts.has_number = true;
    });
  };
  limit("maximum", true);
  limit("exclusiveMaximum", true);
  limit("minimum", false);
  limit("exclusiveMinimum", false);
  for (const char* name : {"multipleOf", "divisibleBy"}) {
    const auto it = json.find(name);
    if (it == json.end()) continue;
    keyword(schema, name, [&] {
      require(it->is_number(), ErrorCode::kInvalidArgument, "must be a number");
      const Decimal d = decimal_of(nlohmann::json(*it));
      const FuzzySet s = sets_.numbers().multiples(d);
      parts.number.set = parts.has_number ? sets_.algebra().both(parts.number.set, s) : s;
      parts.has_number = true;
    });
  }
}

FuzzySet SchemaReader::pattern_set(const std::string& pattern) {
  const auto it = patterns_.find(pattern);
  if (it != patterns_.end()) return it->second;
  FuzzySet set;
  Dfa sure = schema_pattern(pattern, RegexDialect::kSure, budget_);
  if (pattern.find("\\b") != std::string::npos || pattern.find("\\B") != std::string::npos) {
    // Engines disagree on which letters beyond ASCII make a word.
    const Dfa ascii = any_text(CodepointSet(0, 0x7f));
    set = FuzzySet{std::make_shared<const Dfa>(combine(sure, ascii, SetOperation::kAnd, budget_)),
                   sets_.any_string()};
  } else if (dialects_differ(pattern)) {
    set = FuzzySet::between(std::move(sure), schema_pattern(pattern, RegexDialect::kMaybe, budget_));
  } else {
    set = FuzzySet::crisp(std::move(sure));
  }
  budget_.add_memory((set.sure->edges.size() + (set.is_crisp() ? 0 : set.maybe->edges.size())) *
                     sizeof(Dfa::Edge));
  patterns_.emplace(pattern, set);
  return set;
}

KeyTest SchemaReader::key_test(const std::string& pattern) { return {pattern_set(pattern), pattern}; }

// "^[class]{m,n}$" with large counts is a length window over class*: no automaton has to count.
Shape SchemaReader::pattern_shape(const std::string& pattern) {
  Grammar g;
  const ParsedRegex r = parse_regex(g, pattern, RegexDialect::kSure, budget_);
  const Expr top = g.exprs[r.expr];
  if (r.lookaheads.empty() && top.kind == ExprKind::kSequence && top.children.size() == 3 &&
      g.exprs[top.children[0]].kind == ExprKind::kBegin && g.exprs[top.children[2]].kind == ExprKind::kEnd &&
      g.exprs[top.children[1]].kind == ExprKind::kRepeat) {
    const Expr repeat = g.exprs[top.children[1]];
    const uint32_t span = repeat.max == kUnlimited ? repeat.min : repeat.max;
    if (span > 24 && g.exprs[repeat.children[0]].kind == ExprKind::kClass) {
      const size_t from = pattern.rfind('{');
      if (from != std::string::npos) {
        const FuzzySet set = pattern_set(pattern.substr(0, from) + "*$");
        return sets_.string_shape(set, repeat.min, repeat.max == kUnlimited ? ~uint64_t{0} : repeat.max);
      }
    }
  }
  return sets_.string_shape(pattern_set(pattern));
}

void SchemaReader::read_strings(uint32_t schema, const Json& json, Parts& parts) {
  const auto with = [&](const Shape& s) {
    if (parts.has_string) {
      const Shapes met = sets_.intersect({parts.string}, {s});
      if (met.empty()) {
        parts.string.set = FuzzySet::crisp({});
      } else {
        parts.string = met[0];
      }
    } else {
      parts.string = s;
      parts.has_string = true;
    }
  };
  const FuzzySet any{sets_.any_string(), sets_.any_string()};
  if (json.contains("minLength"))
    keyword(schema, "minLength", [&] { with(sets_.string_shape(any, count_of(json["minLength"]))); });
  if (json.contains("maxLength"))
    keyword(schema, "maxLength", [&] { with(sets_.string_shape(any, 0, count_of(json["maxLength"]))); });
  if (json.contains("pattern"))
    keyword(schema, "pattern", [&] {
      require(json["pattern"].is_string(), ErrorCode::kInvalidArgument, "must be a string");
      with(pattern_shape(json["pattern"]));
    });
  if (json.contains("format"))
    keyword(schema, "format", [&] {
      require(json["format"].is_string(), ErrorCode::kInvalidArgument, "must be a string");
      const std::string name = json["format"];
      const FormatRule rule = find_format(name);
      if (rule.kind == FormatKind::kUnknown) return;
      require(rule.kind == FormatKind::kRegex, ErrorCode::kUnsupported, "the format '{}' cannot be enforced",
              name);
      auto it = formats_.find(name);
      if (it == formats_.end()) {
        // Readers that take format as a remark accept every string: only a member is sure.
        FuzzySet set{format_members(name, rule), sets_.any_string()};
        it = formats_.emplace(name, std::move(set)).first;
      }
      uint64_t max = ~uint64_t{0};
      if (name == "hostname" || name == "idn-hostname" || name == "email") max = 253;
      with(sets_.string_shape(it->second, 0, max));
    });
}

void SchemaReader::read_arrays(uint32_t schema, const Json& json, Parts& parts) {
  ArrayShape& a = parts.array;
  ArrayGroup group;
  bool has_group = false;
  const auto list = [&](const char* name) {
    const Json& j = json[name];
    require(j.is_array(), ErrorCode::kInvalidArgument, "{}: must be a list of schemas", name);
    for (size_t i = 0; i < j.size(); ++i)
      group.prefix.push_back(child(schema, j[i], fmt::format("{}/{}", name, i)));
    has_group = true;
  };
  const auto rest = [&](const char* name) {
    group.rest = child(schema, json[name], name);
    group.rest_given = true;
    has_group = true;
  };
  if (json.contains("prefixItems") && document_.draft() >= Draft::k2020) list("prefixItems");
  if (json.contains("items")) {
    if (json["items"].is_array()) {
      list("items");
      if (json.contains("additionalItems")) rest("additionalItems");
    } else {
      rest("items");
    }
  }
  if (has_group) {
    a.groups.push_back(std::move(group));
    parts.has_array = true;
  }
  if (json.contains("minItems"))
    keyword(schema, "minItems", [&] {
      a.min = count_of(json["minItems"]);
      parts.has_array = true;
    });
  if (json.contains("maxItems"))
    keyword(schema, "maxItems", [&] {
      a.max = count_of(json["maxItems"]);
      parts.has_array = true;
    });
  if (json.contains("uniqueItems"))
    keyword(schema, "uniqueItems", [&] {
      require(json["uniqueItems"].is_boolean(), ErrorCode::kInvalidArgument, "must be true or false");
      if (json["uniqueItems"].get<bool>()) a.unique = parts.has_array = true;
    });
  if (json.contains("contains")) {
    ContainsRule c;
    c.value = child(schema, json["contains"], "contains");
    c.annotates = document_.draft() >= Draft::k2020;
    if (document_.draft() >= Draft::k2019) {
      if (json.contains("minContains"))
        keyword(schema, "minContains", [&] { c.min = count_of(json["minContains"]); });
      if (json.contains("maxContains"))
        keyword(schema, "maxContains", [&] { c.max = count_of(json["maxContains"]); });
    }
    a.contains.push_back(c);
    parts.has_array = true;
  }
}

void SchemaReader::read_objects(uint32_t schema, const Json& json, Parts& parts) {
  ObjectShape& o = parts.object;
  ObjectGroup group;
  bool has_group = false;
  const auto map = [&](const char* name) -> const Json& {
    require(json[name].is_object(), ErrorCode::kInvalidArgument, "{}: must be an object", name);
    has_group = true;
    return json[name];
  };
  if (json.contains("properties"))
    for (const auto& [key, value] : map("properties").items())
      group.properties.push_back({key, child(schema, value, "properties/" + pointer_token(key))});
  if (json.contains("patternProperties"))
    for (const auto& item : map("patternProperties").items()) {
      // No structured binding: C++20 lets a lambda capture one, Clang 14 does not.
      const std::string& pattern = item.key();
      const Json& value = item.value();
      const std::string path = "patternProperties/" + pointer_token(pattern);
      keyword(schema, path.c_str(), [&] {
        group.patterns.push_back({key_test(pattern), child(schema, value, path)});
      });
    }
  if (json.contains("additionalProperties")) {
    group.rest = child(schema, json["additionalProperties"], "additionalProperties");
    group.rest_given = true;
    has_group = true;
  }
  if (has_group) {
    o.groups.push_back(std::move(group));
    parts.has_object = true;
  }
  if (json.contains("required") && json["required"].is_array()) {
    for (const Json& r : json["required"]) {
      require(r.is_string(), ErrorCode::kInvalidArgument, "required: must be a list of names");
      if (std::find(o.required.begin(), o.required.end(), r.get<std::string>()) == o.required.end())
        o.required.push_back(r);
    }
    parts.has_object = true;
  }
  if (json.contains("minProperties"))
    keyword(schema, "minProperties", [&] {
      o.min = count_of(json["minProperties"]);
      parts.has_object = true;
    });
  if (json.contains("maxProperties"))
    keyword(schema, "maxProperties", [&] {
      o.max = count_of(json["maxProperties"]);
      parts.has_object = true;
    });
  if (json.contains("propertyNames"))
    keyword(schema, "propertyNames", [&] {
      FuzzySet names = FuzzySet::crisp({});
      for (const Shape& s : sets_.expand(child(schema, json["propertyNames"], "propertyNames"))) {
        if (s.type != JsonType::kString) continue;
        FuzzySet part = s.set;
        if (s.min > 0 || s.max != ~uint64_t{0}) {
          require(s.min <= 2000 && (s.max == ~uint64_t{0} || s.max <= 2000), ErrorCode::kUnsupported,
                  "lengths of names above 2000 cannot be enforced");
          const std::string window = s.max == ~uint64_t{0} ? fmt::format("[^]{{{},}}", s.min)
                                                           : fmt::format("[^]{{{},{}}}", s.min, s.max);
          Grammar g;
          const ExprId e = g.repeat(g.char_class(CodepointSet::all()), static_cast<uint32_t>(s.min),
                                    s.max == ~uint64_t{0} ? kUnlimited : static_cast<uint32_t>(s.max));
          part = sets_.algebra().both(part, FuzzySet::crisp(expr_to_dfa(g, e, false, budget_)));
        }
        names = sets_.algebra().either(names, part);
      }
      o.key_names.push_back(names);
      parts.has_object = true;
    });
  const auto needs = [&](const char* name, const std::string& from, const Json& list) {
    for (const Json& to : list) {
      require(to.is_string(), ErrorCode::kInvalidArgument, "{}: must hold lists of names", name);
      o.implies.push_back({from, to});
    }
    parts.has_object = true;
  };
  for (const char* name : {"dependentRequired", "dependencies"}) {
    if (!json.contains(name) || !json[name].is_object() || !known(name)) continue;
    for (const auto& [from, value] : json[name].items()) {
      if (value.is_array()) needs(name, from, value);
      if (value.is_string() && std::string_view(name) == "dependencies")
        needs(name, from, Json::array({value}));
    }
  }
}

void SchemaReader::read_references(uint32_t schema, const Json& json, Shapes& shapes) {
  for (const char* name : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    const auto it = json.find(name);
    if (it == json.end() || !it->is_string() || !known(name)) continue;
    keyword(schema, name, [&] {
      const uint32_t target = std::string_view(name) == "$ref" ? document_.resolve(schema, *it)
                                                               : document_.resolve_dynamic(schema, *it);
      shapes = sets_.intersect(shapes, sets_.expand(sets_.schema(target)));
    });
  }
}

Shapes SchemaReader::any_of(const std::vector<SetId>& branches) {
  Shapes out;
  for (SetId b : branches) out = sets_.unite(std::move(out), sets_.expand(b));
  if (!annotations_ || branches.size() < 2) return out;
  // What several branches evaluate together is more than what each does: their meets are alternatives of
  // their own.
  const size_t n = branches.size();
  const auto meet = [&](uint32_t subset) {
    Shapes s = sets_.everything();
    for (size_t i = 0; i < n; ++i)
      if ((subset >> i) & 1) s = sets_.intersect(s, sets_.expand(branches[i]));
    out.insert(out.end(), s.begin(), s.end());
    require(out.size() <= budget_.limits().alternatives, ErrorCode::kLimitExceeded,
            "anyOf multiplies out into more than {} alternatives (limit on alternatives)",
            budget_.limits().alternatives);
  };
  if (n <= 5) {
    for (uint32_t subset = 1; subset < (1u << n); ++subset)
      if (std::popcount(subset) > 1) meet(subset);
  } else {
    for (size_t i = 0; i < std::min<size_t>(n, 30); ++i)
      for (size_t j = 0; j < i; ++j) meet((1u << i) | (1u << j));
  }
  return out;
}

Shapes SchemaReader::one_of(const std::vector<SetId>& branches) {
  Shapes out;
  const size_t n = branches.size();
  std::vector<std::vector<size_t>> overlaps(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j)
      if (branches[i] == branches[j] ||
          !sets_.disjoint(sets_.expand(branches[i]), sets_.expand(branches[j]))) {
        overlaps[i].push_back(j);
        overlaps[j].push_back(i);
      }
  for (size_t i = 0; i < n; ++i) {
    Shapes own = sets_.expand(branches[i]);
    for (size_t j : overlaps[i]) {
      own = sets_.subtract(own, sets_.expand(branches[j]));
      if (own.empty()) break;
    }
    out = sets_.unite(std::move(out), own);
  }
  return out;
}

void SchemaReader::read_combinations(uint32_t schema, const Json& json, Shapes& shapes) {
  const auto branches = [&](const char* name) {
    const Json& j = json[name];
    require(j.is_array(), ErrorCode::kInvalidArgument, "{}: must be a list of schemas", name);
    std::vector<SetId> out;
    for (size_t i = 0; i < j.size(); ++i) out.push_back(child(schema, j[i], fmt::format("{}/{}", name, i)));
    return out;
  };
  if (json.contains("allOf"))
    for (SetId b : branches("allOf")) shapes = sets_.intersect(shapes, sets_.expand(b));
  if (json.contains("anyOf"))
    keyword(schema, "anyOf", [&] { shapes = sets_.intersect(shapes, any_of(branches("anyOf"))); });
  if (json.contains("oneOf"))
    keyword(schema, "oneOf", [&] { shapes = sets_.intersect(shapes, one_of(branches("oneOf"))); });
  if (json.contains("not"))
    keyword(schema, "not",
            [&] { shapes = sets_.subtract(shapes, sets_.expand(child(schema, json["not"], "not"))); });
}

void SchemaReader::read_conditions(uint32_t schema, const Json& json, Shapes& shapes) {
  if (!json.contains("if") || document_.draft() < Draft::k7) return;
  const bool has_then = json.contains("then"), has_else = json.contains("else");
  if (!has_then && !has_else && !annotations_) return;
  keyword(schema, "if", [&] {
    const SetId condition = child(schema, json["if"], "if");
    Shapes yes = sets_.intersect(shapes, sets_.expand(condition));
    Shapes no = sets_.subtract(shapes, sets_.expand(condition));
    if (has_then) yes = sets_.intersect(yes, sets_.expand(child(schema, json["then"], "then")));
    if (has_else) no = sets_.intersect(no, sets_.expand(child(schema, json["else"], "else")));
    shapes = sets_.unite(std::move(yes), no);
  });
}

void SchemaReader::read_dependencies(uint32_t schema, const Json& json, Shapes& shapes) {
  for (const char* name : {"dependentSchemas", "dependencies"}) {
    if (!json.contains(name) || !json[name].is_object() || !known(name)) continue;
    for (const auto& [key, value] : json[name].items()) {
      if (!value.is_object() && !value.is_boolean()) continue;
      const std::string path = std::string(name) + "/" + pointer_token(key);
      const std::string& property = key;
      const Json& dependent = value;
      keyword(schema, path.c_str(), [&] {
        auto with = std::make_shared<ObjectShape>();
        with->required.push_back(property);
        auto without = std::make_shared<ObjectShape>();
        ObjectGroup g;
        g.annotates = false;
        g.properties.push_back({property, ValueSets::kNothing});
        without->groups.push_back(std::move(g));
        Shape present, absent;
        present.type = absent.type = JsonType::kObject;
        present.object = with;
        absent.object = without;
        Shapes yes =
            sets_.intersect(sets_.intersect(shapes, {present}), sets_.expand(child(schema, dependent, path)));
        Shapes no = shapes;
        restrict(no, absent);
        shapes = sets_.unite(std::move(no), yes);
      });
    }
  }
}

void SchemaReader::read_unevaluated(uint32_t schema, const Json& json, Shapes& shapes) {
  if (document_.draft() < Draft::k2019) return;
  if (json.contains("unevaluatedProperties")) {
    const SetId rest = child(schema, json["unevaluatedProperties"], "unevaluatedProperties");
    for (Shape& s : shapes) {
      if (s.type != JsonType::kObject) continue;
      ObjectGroup g;
      g.rest = rest;
      g.rest_given = true;
      bool all = false;
      for (const ObjectGroup& h : s.object->groups) {
        if (!h.annotates) continue;
        all |= h.rest_given;
        for (const auto& p : h.properties) g.properties.push_back({p.first, ValueSets::kEverything});
        for (const auto& p : h.patterns) g.patterns.push_back({p.first, ValueSets::kEverything});
      }
      if (all) continue;
      auto o = std::make_shared<ObjectShape>(*s.object);
      o->groups.push_back(std::move(g));
      s.object = o;
    }
  }
  if (!json.contains("unevaluatedItems")) return;
  const SetId rest = child(schema, json["unevaluatedItems"], "unevaluatedItems");
  for (Shape& s : shapes) {
    if (s.type != JsonType::kArray) continue;
    ArrayGroup g;
    g.rest = rest;
    g.rest_given = true;
    bool all = false;
    for (const ArrayGroup& h : s.array->groups) {
      if (!h.annotates) continue;
      all |= h.rest_given;
      if (h.prefix.size() > g.prefix.size()) g.prefix.assign(h.prefix.size(), ValueSets::kEverything);
    }
    for (const ContainsRule& c : s.array->contains)
      if (c.annotates) g.rest = sets_.either(g.rest, c.value);
    if (all) continue;
    auto a = std::make_shared<ArrayShape>(*s.array);
    a->groups.push_back(std::move(g));
    s.array = a;
  }
}

}  // namespace millrace::grammar
