#include "grammar/value_set.h"

#include <algorithm>

namespace millrace::grammar {
ValueSets::ValueSets(Budget& budget) : budget_(budget), algebra_(budget), numbers_(budget) {
  any_string_ = std::make_shared<const Dfa>(any_text());
  nodes_.push_back({Kind::kNothing, 0, 0, State::kDone, {}, {}});
  Shape s;
  everything_.push_back(s);
  s.type = JsonType::kBoolean;
  everything_.push_back(s);
  everything_.push_back(number_shape(numbers_.any()));
  everything_.push_back(string_shape({any_string_, any_string_}));
  Shape a;
  a.type = JsonType::kArray;
  a.array = std::make_shared<const ArrayShape>();
  everything_.push_back(a);
  Shape o;
  o.type = JsonType::kObject;
  o.object = std::make_shared<const ObjectShape>();
  everything_.push_back(o);
  nodes_.push_back({Kind::kEverything, 0, 0, State::kDone, {}, everything_});
}

Shape ValueSets::string_shape(FuzzySet set, uint64_t min, uint64_t max) const {
  Shape s;
  s.type = JsonType::kString;
  s.set = std::move(set);
  s.min = min;
  s.max = max;
  return s;
}

Shape ValueSets::number_shape(FuzzySet set) const {
  Shape s;
  s.type = JsonType::kNumber;
  s.set = std::move(set);
  return s;
}

SetId ValueSets::make(Node node, const std::string& key) {
  if (!key.empty()) {
    const auto it = ids_.find(key);
    if (it != ids_.end()) return it->second;
  }
  nodes_.push_back(std::move(node));
  budget_.add_memory(sizeof(Node) + 64);
  require(nodes_.size() < 200'000, ErrorCode::kLimitExceeded,
          "the schema combines into more than 200000 sets of values (limit on size)");
  const auto id = static_cast<SetId>(nodes_.size() - 1);
  if (!key.empty()) ids_.emplace(key, id);
  return id;
}

SetId ValueSets::schema(uint32_t number) {
  if (number >= schemas_.size()) schemas_.resize(std::max<size_t>(number + 1, schemas_.size() * 2), kNothing);
  if (schemas_[number] == kNothing)
    schemas_[number] = make({Kind::kSchema, number, 0, State::kNew, {}, {}}, "");
  return schemas_[number];
}

SetId ValueSets::both(SetId a, SetId b) {
  if (a == b || b == kEverything) return a;
  if (a == kEverything) return b;
  if (a == kNothing || b == kNothing) return kNothing;
  std::vector<SetId> parts;
  for (SetId x : {a, b}) {
    if (nodes_[x].kind == Kind::kAnd) {
      parts.insert(parts.end(), nodes_[x].parts.begin(), nodes_[x].parts.end());
    } else {
      parts.push_back(x);
    }
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.size() == 1) return parts[0];
  for (SetId p : parts)
    if (nodes_[p].kind == Kind::kNot && std::binary_search(parts.begin(), parts.end(), nodes_[p].a))
      return kNothing;
  uint64_t hash = 1;
  for (SetId p : parts) hash = (hash ^ p) * 0x9e3779b97f4a7c15ULL, hash ^= hash >> 29;
  const SetId known = ands_.find(hash, [&](SetId id) { return nodes_[id].parts == parts; });
  if (known != HashIndex::kNone) return known;
  const SetId made = make({Kind::kAnd, 0, 0, State::kNew, std::move(parts), {}}, "");
  ands_.insert(hash, made);
  return made;
}

SetId ValueSets::either(SetId a, SetId b) {
  if (a == b || b == kNothing) return a;
  if (a == kNothing) return b;
  if (a == kEverything || b == kEverything) return kEverything;
  return make({Kind::kOr, std::min(a, b), std::max(a, b), State::kNew, {}, {}},
              fmt::format("|{},{}", std::min(a, b), std::max(a, b)));
}

SetId ValueSets::complement(SetId a) {
  if (a == kNothing) return kEverything;
  if (a == kEverything) return kNothing;
  if (nodes_[a].kind == Kind::kNot) return nodes_[a].a;
  return make({Kind::kNot, a, 0, State::kNew, {}, {}}, fmt::format("!{}", a));
}

SetId ValueSets::of_shapes(Shapes shapes) {
  if (shapes.empty()) return kNothing;
  return make({Kind::kShapes, 0, 0, State::kDone, {}, std::move(shapes)}, "");
}

void ValueSets::check_count(size_t n) const {
  require(n <= budget_.limits().alternatives, ErrorCode::kLimitExceeded,
          "the schema multiplies out into more than {} alternatives (limit on alternatives)",
          budget_.limits().alternatives);
}

const Shapes& ValueSets::expand(SetId id) {
  Node& n = nodes_[id];
  if (n.state == State::kDone) return n.shapes;
  if (n.state == State::kRunning) throw SelfReference("a schema refers to itself without end");
  budget_.check_depth(++running_);
  budget_.tick(8);
  n.state = State::kRunning;
  Shapes out;
  try {
    compute(n, out);
  } catch (...) {
    // Whoever asked may go on without the answer.
    n.state = State::kNew;
    --running_;
    throw;
  }
  --running_;
  n.shapes = std::move(out);  // deque: the reference outlives growth
  n.state = State::kDone;
  return n.shapes;
}

void ValueSets::compute(Node& n, Shapes& out) {
  switch (n.kind) {
    case Kind::kSchema:
      out = expander_(n.a);
      break;
    case Kind::kAnd: {
      out = everything_;
      for (SetId p : n.parts)
        if (nodes_[p].kind != Kind::kNot) out = intersect(out, expand(p));
      for (SetId p : n.parts)
        if (nodes_[p].kind == Kind::kNot && !out.empty()) out = subtract(out, expand(nodes_[p].a));
      break;
    }
    case Kind::kOr:
      out = unite(expand(n.a), expand(n.b));
      break;
    case Kind::kNot:
      out = negate(expand(n.a));
      break;
    default:
      break;
  }
  check_count(out.size());
}

Shapes ValueSets::intersect(const Shapes& a, const Shapes& b) {
  Shapes out;
  for (const Shape& x : a)
    for (const Shape& y : b) {
      if (x.type != y.type) continue;
      Shape s;
      if (!intersect_shape(x, y, s)) continue;
      out.push_back(std::move(s));
      check_count(out.size());
      budget_.tick(4);
      budget_.add_memory(sizeof(Shape));
    }
  budget_.release_memory(out.size() * sizeof(Shape));
  return out;
}

bool ValueSets::intersect_shape(const Shape& a, const Shape& b, Shape& out) {
  out = a;
  if (b.constant) out.constant = b.constant;
  switch (a.type) {
    case JsonType::kNull:
      return true;
    case JsonType::kBoolean:
      out.booleans = a.booleans & b.booleans;
      return out.booleans != 0;
    case JsonType::kNumber: {
      out.set = algebra_.both(a.set, b.set);
      if (a.values || b.values) {
        auto kept = std::make_shared<std::vector<Decimal>>();
        const auto& from = a.values ? *a.values : *b.values;
        for (const Decimal& d : from)
          if (out.set.sure->accepts_utf8(d.text())) kept->push_back(d);
        out.values = kept;
      }
      return !out.set.sure->never();
    }
    case JsonType::kString: {
      out.min = std::max(a.min, b.min);
      out.max = std::min(a.max, b.max);
      if (out.min > out.max) return false;
      if (a.set.sure == any_string_ && a.set.maybe == any_string_) {
        out.set = b.set;
      } else if (!(b.set.sure == any_string_ && b.set.maybe == any_string_)) {
        out.set = algebra_.both(a.set, b.set);
      }
      return !out.set.sure->never();
    }
    case JsonType::kArray: {
      auto s = std::make_shared<ArrayShape>();
      if (!intersect_arrays(*a.array, *b.array, *s)) return false;
      out.array = s;
      return true;
    }
    case JsonType::kObject: {
      auto s = std::make_shared<ObjectShape>();
      if (!intersect_objects(*a.object, *b.object, *s)) return false;
      out.object = s;
      return true;
    }
  }
  return false;
}

namespace {

bool same_test(const KeyTest& a, const KeyTest& b) {
  return !a.source.empty() ? a.source == b.source
                           : a.names.sure == b.names.sure && a.names.maybe == b.names.maybe;
}

bool same_group(const ObjectGroup& a, const ObjectGroup& b) {
  if (a.rest != b.rest || a.rest_given != b.rest_given || a.annotates != b.annotates ||
      a.properties != b.properties || a.patterns.size() != b.patterns.size())
    return false;
  for (size_t i = 0; i < a.patterns.size(); ++i)
    if (a.patterns[i].second != b.patterns[i].second || !same_test(a.patterns[i].first, b.patterns[i].first))
      return false;
  return true;
}

}  // namespace

SetId group_value(ValueSets& sets, const ObjectGroup& group, const std::string& property) {
  SetId value = ValueSets::kEverything;
  bool surely = false;
  for (const auto& [name, v] : group.properties)
    if (name == property) value = sets.both(value, v), surely = true;
  for (const auto& [test, v] : group.patterns) {
    if (!test.names.maybe->accepts_utf8(property)) continue;
    value = sets.both(value, v);
    surely |= test.names.sure->accepts_utf8(property);
  }
  return surely ? value : sets.both(value, group.rest);
}

bool ValueSets::intersect_objects(const ObjectShape& a, const ObjectShape& b, ObjectShape& out) {
  out = a;
  bool conflict_possible = false;
  for (const ObjectGroup& g : b.groups) {
    if (std::any_of(a.groups.begin(), a.groups.end(), [&](const ObjectGroup& h) { return same_group(g, h); }))
      continue;
    out.groups.push_back(g);
    conflict_possible = true;
  }
  for (const auto& r : b.required)
    if (std::find(out.required.begin(), out.required.end(), r) == out.required.end()) {
      out.required.push_back(r);
      conflict_possible = true;
    }
  for (const auto& k : b.key_names)
    if (std::none_of(out.key_names.begin(), out.key_names.end(),
                     [&](const FuzzySet& x) { return x.sure == k.sure; }))
      out.key_names.push_back(k);
  for (const auto& i : b.implies)
    if (std::find(out.implies.begin(), out.implies.end(), i) == out.implies.end()) out.implies.push_back(i);
  for (const Witness& w : b.witnesses) {
    const bool there = std::any_of(out.witnesses.begin(), out.witnesses.end(), [&](const Witness& x) {
      return x.value == w.value && same_test(x.names, w.names);
    });
    if (!there) out.witnesses.push_back(w);
  }
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  if (out.min > out.max || out.required.size() > out.max) return false;
  if (conflict_possible && !out.groups.empty() && !out.required.empty()) {
    Shape s;
    s.type = JsonType::kObject;
    s.object = std::make_shared<const ObjectShape>(out);
    if (surely_empty(s, 3)) return false;
  }
  return true;
}

bool ValueSets::intersect_arrays(const ArrayShape& a, const ArrayShape& b, ArrayShape& out) {
  out = a;
  out.groups.insert(out.groups.end(), b.groups.begin(), b.groups.end());
  out.contains.insert(out.contains.end(), b.contains.begin(), b.contains.end());
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  out.unique = a.unique || b.unique;
  out.repeats = a.repeats || b.repeats;
  return out.min <= out.max && !(out.unique && out.repeats);
}

bool ValueSets::surely_empty(SetId id, int depth) {
  if (id == kNothing) return true;
  if (id == kEverything || depth <= 0 || nodes_[id].state == State::kRunning) return false;
  try {
    const Shapes& shapes = expand(id);
    return std::all_of(shapes.begin(), shapes.end(),
                       [&](const Shape& s) { return surely_empty(s, depth - 1); });
  } catch (const SelfReference&) {
    return false;  // it is being computed: there is no telling yet
  }
}

bool ValueSets::surely_empty(const Shape& s, int depth) {
  switch (s.type) {
    case JsonType::kNull:
      return false;
    case JsonType::kBoolean:
      return s.booleans == 0;
    case JsonType::kNumber:
      return s.set.sure->never();
    case JsonType::kString:
      return s.set.sure->never() || s.min > s.max;
    case JsonType::kArray: {
      const ArrayShape& a = *s.array;
      if (a.min > a.max) return true;
      for (uint64_t i = 0; i < std::min<uint64_t>(a.min, 4); ++i) {
        SetId item = kEverything;
        for (const ArrayGroup& g : a.groups) item = both(item, i < g.prefix.size() ? g.prefix[i] : g.rest);
        if (surely_empty(item, depth)) return true;
      }
      return false;
    }
    case JsonType::kObject: {
      const ObjectShape& o = *s.object;
      if (o.min > o.max || o.required.size() > o.max) return true;
      if (depth <= 0) return false;
      for (const std::string& r : o.required) {
        SetId value = kEverything;
        for (const ObjectGroup& g : o.groups) value = both(value, group_value(*this, g, r));
        if (surely_empty(value, depth)) return true;
        for (const FuzzySet& k : o.key_names)
          if (!k.sure->accepts_utf8(r)) return true;
      }
      return false;
    }
  }
  return false;
}

bool ValueSets::disjoint(const Shapes& a, const Shapes& b) {
  for (const Shape& x : a)
    for (const Shape& y : b) {
      if (x.type != y.type) continue;
      budget_.tick(4);
      // Disjoint only when nothing can be in both even by the generous reading.
      if (x.type == JsonType::kNumber || x.type == JsonType::kString) {
        if (x.type == JsonType::kString && std::max(x.min, y.min) > std::min(x.max, y.max)) continue;
        if (algebra_.combined(x.set.maybe, y.set.maybe, SetOperation::kAnd)->never()) continue;
        return false;
      }
      Shape s;
      if (!intersect_shape(x, y, s)) continue;
      if (!surely_empty(s, 3)) return false;
    }
  return true;
}

Shapes ValueSets::unite(Shapes a, const Shapes& b) {
  for (const Shape& s : b) {
    budget_.tick();
    bool merged = false;
    for (Shape& t : a) {
      if (t.type != s.type) continue;
      switch (s.type) {
        case JsonType::kNull:
          merged = true;
          break;
        case JsonType::kBoolean:
          t.booleans |= s.booleans;
          merged = true;
          break;
        case JsonType::kNumber:
          t.set = algebra_.either(t.set, s.set);
          if (t.values && s.values) {
            auto all = std::make_shared<std::vector<Decimal>>(*t.values);
            for (const Decimal& d : *s.values)
              if (std::none_of(all->begin(), all->end(),
                               [&](const Decimal& x) { return x.text() == d.text(); }))
                all->push_back(d);
            t.values = all;
          } else {
            t.values = nullptr;
          }
          merged = true;
          break;
        case JsonType::kString:
          if (t.min == s.min && t.max == s.max) {
            t.set = algebra_.either(t.set, s.set);
            merged = true;
          }
          break;
        case JsonType::kArray:
          merged = t.array == s.array;
          break;
        case JsonType::kObject:
          merged = t.object == s.object;
          break;
      }
      if (merged) break;
    }
    if (!merged) a.push_back(s);
    check_count(a.size());
  }
  return a;
}

namespace {

// Whether `met`, an intersection with the object `x`, has no condition more than it.
bool adds_nothing(const Shape& x, const Shape& met) {
  if (x.type != JsonType::kObject) return false;
  const ObjectShape &a = *x.object, &b = *met.object;
  return a.groups.size() == b.groups.size() && a.required.size() == b.required.size() &&
         a.key_names.size() == b.key_names.size() && a.implies.size() == b.implies.size() &&
         a.witnesses.size() == b.witnesses.size() && a.min == b.min && a.max == b.max;
}

}  // namespace

// False when they surely have nothing in common.
bool ValueSets::meets(const Shape& a, const Shape& b) { return a.type == b.type && !disjoint({a}, {b}); }

Shapes ValueSets::subtract(const Shapes& a, const Shapes& b) {
  Shapes out;
  for (const Shape& s : a) {
    Shapes left{s};
    for (const Shape& t : b) {
      if (s.type != t.type) continue;
      Shapes apart;
      std::erase_if(left, [&](const Shape& x) {
        if (meets(x, t)) return false;
        apart.push_back(x);
        return true;
      });
      if (!left.empty()) {
        Shapes rest;
        for (const Shape& x : left) {
          const Shapes met = intersect({x}, negation(t));
          // What an alternative takes whole needs no other.
          if (std::any_of(met.begin(), met.end(), [&](const Shape& m) { return adds_nothing(x, m); })) {
            rest.push_back(x);
          } else {
            rest.insert(rest.end(), met.begin(), met.end());
          }
          check_count(rest.size());
        }
        left = std::move(rest);
      }
      left.insert(left.end(), apart.begin(), apart.end());
      if (left.empty()) break;
    }
    out.insert(out.end(), left.begin(), left.end());
    check_count(out.size());
  }
  return out;
}

Shapes ValueSets::negate(const Shapes& a) {
  Shapes out;
  for (const Shape& full : everything_) {
    Shapes left{full};
    for (const Shape& s : a) {
      if (s.type != full.type) continue;
      left = intersect(left, negation(s));
      if (left.empty()) break;
    }
    out.insert(out.end(), left.begin(), left.end());
    check_count(out.size());
  }
  return out;
}

void ValueSets::negate_shape(const Shape& s, Shapes& out) {
  switch (s.type) {
    case JsonType::kNull:
      return;
    case JsonType::kBoolean: {
      Shape t = s;
      t.booleans = static_cast<uint8_t>(~s.booleans & 3);
      if (t.booleans) out.push_back(t);
      return;
    }
    case JsonType::kNumber: {
      FuzzySet n = algebra_.complement(s.set, numbers_.universe());
      if (!n.sure->never()) out.push_back(number_shape(std::move(n)));
      return;
    }
    case JsonType::kString: {
      FuzzySet n = algebra_.complement(s.set, any_string_);
      if (!n.sure->never()) out.push_back(string_shape(std::move(n)));
      const FuzzySet any{any_string_, any_string_};
      if (s.min > 0) out.push_back(string_shape(any, 0, s.min - 1));
      if (s.max != ~uint64_t{0}) out.push_back(string_shape(any, s.max + 1));
      return;
    }
    case JsonType::kArray:
      return negate_array(*s.array, out);
    case JsonType::kObject:
      return negate_object(*s.object, out);
  }
}

const Shapes& ValueSets::negation(const Shape& s) {
  if (s.type != JsonType::kObject) {
    negation_.clear();
    negate_shape(s, negation_);
    return negation_;
  }
  const auto it = negations_.find(s.object);
  if (it != negations_.end()) return it->second;
  Shapes out;
  negate_object(*s.object, out);
  budget_.add_memory(out.size() * (sizeof(Shape) + sizeof(ObjectShape)));
  return negations_.emplace(s.object, std::move(out)).first->second;
}

KeyTest ValueSets::rest_keys(const ObjectGroup& group) {
  std::string key;
  for (const auto& [name, value] : group.properties) key += fmt::format("{}:{}", name.size(), name);
  for (const auto& [test, value] : group.patterns)
    key += fmt::format("/{},{}", static_cast<const void*>(test.names.sure.get()),
                       static_cast<const void*>(test.names.maybe.get()));
  const auto it = rest_keys_.find(key);
  if (it != rest_keys_.end()) return it->second;
  std::vector<std::u32string> names;
  for (const auto& [name, value] : group.properties) names.push_back(decode_utf8(name));
  FuzzySet covered = FuzzySet::crisp(from_words(names, budget_));
  for (const auto& [test, value] : group.patterns) {
    covered = algebra_.either(covered, test.names);
    held_.push_back(test.names);
  }
  // No pattern looks like this source: a question mark has nothing to repeat there.
  KeyTest rest{algebra_.complement(covered, any_string_), fmt::format("(?rest){}", rest_keys_.size())};
  budget_.add_memory(key.size() + 200);
  rest_keys_.emplace(std::move(key), rest);
  return rest;
}

void ValueSets::negate_object(const ObjectShape& o, Shapes& out) {
  const auto emit = [&](ObjectShape s) {
    Shape shape;
    shape.type = JsonType::kObject;
    shape.object = std::make_shared<const ObjectShape>(std::move(s));
    out.push_back(std::move(shape));
    check_count(out.size());
  };
  const auto forbid = [](ObjectShape& s, const std::string& name) {
    ObjectGroup g;
    g.annotates = false;
    g.properties.push_back({name, kNothing});
    s.groups.push_back(std::move(g));
  };
  const auto with_value = [&](ObjectShape& s, const std::string& name, SetId value) {
    ObjectGroup g;
    g.annotates = false;
    g.properties.push_back({name, value});
    s.groups.push_back(std::move(g));
    s.required.push_back(name);
  };
  for (const std::string& r : o.required) {
    ObjectShape s;
    forbid(s, r);
    emit(std::move(s));
  }
  for (const auto& [from, to] : o.implies) {
    ObjectShape s;
    s.required.push_back(from);
    forbid(s, to);
    emit(std::move(s));
  }
  if (o.min > 0) {
    ObjectShape s;
    s.max = o.min - 1;
    emit(std::move(s));
  }
  if (o.max != ~uint64_t{0}) {
    ObjectShape s;
    s.min = o.max + 1;
    emit(std::move(s));
  }
  for (const FuzzySet& k : o.key_names) {
    ObjectShape s;
    s.witnesses.push_back({{algebra_.complement(k, any_string_), ""}, kEverything});
    emit(std::move(s));
  }
  for (const Witness& w : o.witnesses) {
    ObjectShape s;
    ObjectGroup g;
    g.annotates = false;
    g.patterns.push_back({w.names, complement(w.value)});
    s.groups.push_back(std::move(g));
    emit(std::move(s));
  }
  for (const ObjectGroup& g : o.groups) {
    for (const auto& [name, value] : g.properties) {
      if (value == kEverything) continue;
      ObjectShape s;
      with_value(s, name, complement(value));
      emit(std::move(s));
    }
    for (const auto& [test, value] : g.patterns) {
      if (value == kEverything) continue;
      ObjectShape s;
      s.witnesses.push_back({test, complement(value)});
      emit(std::move(s));
    }
    if (g.rest != kEverything) {
      ObjectShape s;
      s.witnesses.push_back({rest_keys(g), complement(g.rest)});
      emit(std::move(s));
    }
  }
}

void ValueSets::negate_array(const ArrayShape& a, Shapes& out) {
  const auto emit = [&](ArrayShape s) {
    Shape shape;
    shape.type = JsonType::kArray;
    shape.array = std::make_shared<const ArrayShape>(std::move(s));
    out.push_back(std::move(shape));
    check_count(out.size());
  };
  if (a.unique) {
    ArrayShape s;
    s.repeats = true;
    s.min = 2;
    emit(std::move(s));
  }
  if (a.repeats) {
    ArrayShape s;
    s.unique = true;
    emit(std::move(s));
  }
  if (a.min > 0) {
    ArrayShape s;
    s.max = a.min - 1;
    emit(std::move(s));
  }
  if (a.max != ~uint64_t{0}) {
    ArrayShape s;
    s.min = a.max + 1;
    emit(std::move(s));
  }
  for (const ArrayGroup& g : a.groups) {
    for (size_t i = 0; i < g.prefix.size(); ++i) {
      if (g.prefix[i] == kEverything) continue;
      ArrayShape s;
      ArrayGroup h;
      h.annotates = false;
      h.prefix.assign(i, kEverything);
      h.prefix.push_back(complement(g.prefix[i]));
      s.groups.push_back(std::move(h));
      s.min = i + 1;
      emit(std::move(s));
    }
    if (g.rest == kEverything) continue;
    ArrayShape s;
    ContainsRule c;
    c.value = complement(g.rest);
    c.from = g.prefix.size();
    c.annotates = false;
    s.contains.push_back(c);
    emit(std::move(s));
  }
  for (const ContainsRule& c : a.contains) {
    if (c.min > 0) {
      ArrayShape s;
      ContainsRule d = c;
      d.annotates = false;
      d.min = 0;
      d.max = c.min - 1;
      s.contains.push_back(d);
      emit(std::move(s));
    }
    if (c.max != ~uint64_t{0}) {
      ArrayShape s;
      ContainsRule d = c;
      d.annotates = false;
      d.min = c.max + 1;
      d.max = ~uint64_t{0};
      s.contains.push_back(d);
      emit(std::move(s));
    }
  }
}

}  // namespace millrace::grammar
