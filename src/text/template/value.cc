#include "text/template/value.h"

#include <cmath>

#include "core/utf8.h"

namespace millrace::text::jinja {

namespace {

/// Dicts up to this size are searched entry by entry.
constexpr size_t kLinearDict = 8;

size_t mix(size_t seed, size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
}

size_t hash_number(const Value& value) {
  if (value.is_integral()) return std::hash<int64_t>{}(value.as_int());
  const double d = value.as_double();
  if (d == std::floor(d) && std::abs(d) < 9e18) return std::hash<int64_t>{}(static_cast<int64_t>(d));
  return std::hash<double>{}(d);
}

bool equal_items(const Values& left, const Values& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i)
    if (!equal(left[i], right[i])) return false;
  return true;
}

bool equal_dicts(const DictObject& left, const DictObject& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = right.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

/// Charges the comparison of two heap values to whichever budget they have.
void charge_comparison(const Value& left, const Value& right, size_t bytes) {
  Budget* budget = left.object() != nullptr ? left.object()->budget : nullptr;
  if (budget == nullptr && right.object() != nullptr) budget = right.object()->budget;
  if (budget != nullptr) budget->charge_bytes(bytes);
}

}  // namespace

const Value* DictObject::find(const Value& key) const {
  const int64_t at = index_of(key, hash(key));
  return at < 0 ? nullptr : &entries[at].second;
}

const Value* DictObject::find(std::string_view key) const {
  if (entries.size() <= kLinearDict) {
    for (const auto& [k, v] : entries)
      if (k.is_string() && k.text() == key) return &v;
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = first; it != last; ++it) {
    const auto& [k, v] = entries[it->second];
    if (k.is_string() && k.text() == key) return &v;
  }
  return nullptr;
}

int64_t DictObject::index_of(const Value& key, size_t hash) const {
  if (entries.size() <= kLinearDict) {
    for (size_t i = 0; i < entries.size(); ++i)
      if (equal(entries[i].first, key)) return static_cast<int64_t>(i);
    return -1;
  }
  const auto [first, last] = index_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (equal(entries[it->second].first, key)) return it->second;
  return -1;
}

void DictObject::index_all() {
  index_.clear();
  for (size_t i = 0; i < entries.size(); ++i)
    index_.emplace(hash(entries[i].first), static_cast<uint32_t>(i));
}

void DictObject::set(const Value& key, Value value) {
  const size_t h = hash(key);
  const int64_t at = index_of(key, h);
  depth = std::max(depth, 1 + std::max(key.depth(), value.depth()));
  if (at >= 0) {
    entries[at].second = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kLinearDict + 1) {
    index_all();
  } else if (entries.size() > kLinearDict) {
    index_.emplace(h, static_cast<uint32_t>(entries.size() - 1));
  }
}

Value* NamespaceObject::find(std::string_view name) {
  for (auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.as<StringObject>().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kGenerator:
      return "generator";
    case Kind::kDictView: {
      const auto view = value.as<DictViewObject>().view;
      if (view == DictViewObject::View::kKeys) return "dict_keys";
      return view == DictViewObject::View::kValues ? "dict_values" : "dict_items";
    }
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0.0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kRange:
      return value.as<RangeObject>().count != 0;
    case Kind::kDictView:
      return !value.as<DictViewObject>().dict.dict().entries.empty();
    default:
      return true;
  }
}

bool equal(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return left.as_int() == right.as_int();
    if (left.is_integral() || right.is_integral()) {
      const Value& whole = left.is_integral() ? left : right;
      const double real = left.is_integral() ? right.as_double() : left.as_double();
      return static_cast<long double>(whole.as_int()) == static_cast<long double>(real);
    }
    return left.as_double() == right.as_double();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (left.text().size() != right.text().size()) return false;
      charge_comparison(left, right, left.text().size());
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
      charge_comparison(left, right, 0);
      return equal_items(left.items(), right.items());
    case Kind::kDict:
      charge_comparison(left, right, 0);
      return equal_dicts(left.dict(), right.dict());
    case Kind::kRange: {
      const auto& a = left.as<RangeObject>();
      const auto& b = right.as<RangeObject>();
      if (a.count != b.count) return false;
      return a.count == 0 || (a.start == b.start && (a.count == 1 || a.step == b.step));
    }
    case Kind::kMethod: {
      const auto& a = left.as<MethodObject>();
      const auto& b = right.as<MethodObject>();
      return a.name == b.name && a.self.object() == b.self.object();
    }
    case Kind::kFunction:
      return left.as<FunctionObject>().name == right.as<FunctionObject>().name;
    default:
      return left.object() == right.object();
  }
}

bool less(const Value& left, const Value& right, const char* symbol) {
  if (left.is_undefined()) undefined_error(left);
  if (right.is_undefined()) undefined_error(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return left.as_int() < right.as_int();
    if (left.is_integral()) return static_cast<long double>(left.as_int()) < right.as_double();
    if (right.is_integral()) return left.as_double() < static_cast<long double>(right.as_int());
    return left.as_double() < right.as_double();
  }
  if (left.is_string() && right.is_string()) {
    charge_comparison(left, right, std::min(left.text().size(), right.text().size()));
    return left.text() < right.text();  // UTF-8 keeps the order of code points
  }
  if (left.kind() == right.kind() && left.is_sequence()) {
    const Values& a = left.items();
    const Values& b = right.items();
    charge_comparison(left, right, 0);
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (!equal(a[i], b[i])) return less(a[i], b[i], symbol);
    return a.size() < b.size();
  }
  run_error("'{}' not supported between instances of '{}' and '{}'", symbol, type_name(left),
            type_name(right));
}

size_t hash(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return hash_number(value);
    case Kind::kString:
      return std::hash<std::string_view>{}(value.text());
    case Kind::kTuple: {
      if (value.object()->budget != nullptr) value.object()->budget->charge(1);
      size_t h = 0x345678;
      for (const Value& item : value.items()) h = mix(h, hash(item));
      return h;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      run_error("unhashable type: '{}'", type_name(value));
    default:
      return static_cast<size_t>(value.kind());
  }
}

std::string undefined_message(const Value& value) {
  if (value.object() == nullptr) return "the value is undefined";
  return value.as<UndefinedObject>().message;
}

void undefined_error(const Value& value) { run_error("{}", undefined_message(value)); }

Value constant_string(std::string text) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  return Value::object(Kind::kString, std::move(object));
}

}  // namespace millrace::text::jinja
