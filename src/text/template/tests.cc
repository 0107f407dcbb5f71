// The tests of "is".
#include "text/template/builtins.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

int64_t whole_modulo(Runtime& rt, const Value& value, const Value& by) {
  const Value rest = rt.binary(Operator::kModulo, value, by);
  if (rest.is_string()) return -1;
  return rest.is(Kind::kFloat) ? (rest.as_double() == 0.0   ? 0
                                  : rest.as_double() == 1.0 ? 1
                                                            : -1)
                               : rest.as_int();
}

void no_arguments(const char* name, const Arguments& arguments) { Bound bound(name, arguments, {}); }

bool test_odd(Runtime& rt, const Value& v, Arguments& a) {
  no_arguments("odd", a);
  return whole_modulo(rt, v, Value::integer(2)) == 1;
}
bool test_even(Runtime& rt, const Value& v, Arguments& a) {
  no_arguments("even", a);
  return whole_modulo(rt, v, Value::integer(2)) == 0;
}
bool test_divisible(Runtime& rt, const Value& v, Arguments& a) {
  Bound bound("divisibleby", a, {"num"}, 1);
  return whole_modulo(rt, v, bound[0]) == 0;
}

/// Tests that look at the kind alone.
template <bool (*kTest)(const Value&)>
bool by_kind(Runtime&, const Value& v, Arguments& a) {
  no_arguments("test", a);
  return kTest(v);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && v.as_int() == 0; }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_int() != 0; }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_text(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_escaped(const Value& v) { return v.is_string() && v.as<StringObject>().markup; }

bool is_sequence(const Value& v) {
  // What has a length and can be indexed; an undefined value has both.
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange);
}

bool is_callable(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:  // Jinja2's class has __call__
    case Kind::kMacro:
    case Kind::kMethod:
    case Kind::kFunction:
    case Kind::kLoop:
    case Kind::kJoiner:
      return true;
    default:
      return false;
  }
}

bool test_iterable(Runtime& rt, const Value& v, Arguments& a) {
  no_arguments("iterable", a);
  return rt.iterable(v) || v.is(Kind::kLoop);
}

bool by_method(Runtime& rt, const Value& v, Arguments& a, const char* method) {
  no_arguments(method, a);
  Arguments none;
  return truth(rt.call_method(rt.string(rt.str(v)), method, none));
}
bool test_lower(Runtime& rt, const Value& v, Arguments& a) { return by_method(rt, v, a, "islower"); }
bool test_upper(Runtime& rt, const Value& v, Arguments& a) { return by_method(rt, v, a, "isupper"); }

/// Filters and tests that Jinja2 knows though they cannot be run here.
constexpr std::string_view kRefusedFilters[] = {"random", "urlize"};

bool test_filter(Runtime&, const Value& v, Arguments& a) {
  no_arguments("filter", a);
  hash(v);  // an error for lists and dicts
  if (!v.is_string()) return false;
  return find_filter(v.text()) != nullptr || std::find(std::begin(kRefusedFilters), std::end(kRefusedFilters),
                                                       v.text()) != std::end(kRefusedFilters);
}
bool test_test(Runtime&, const Value& v, Arguments& a) {
  no_arguments("test", a);
  hash(v);  // an error for lists and dicts
  return v.is_string() && find_test(v.text()) != nullptr;
}

bool test_same(Runtime&, const Value& v, Arguments& a) {
  Bound bound("sameas", a, {"other"}, 1);
  const Value& other = bound[0];
  if (v.kind() != other.kind()) return false;
  if (v.object() != nullptr) {
    // Equal strings of a template are one object in Python only sometimes; here equal strings are the same.
    return v.is_string() ? v.text() == other.text() : v.object() == other.object();
  }
  return equal(v, other);
}

bool test_in(Runtime& rt, const Value& v, Arguments& a) {
  Bound bound("in", a, {"seq"}, 1);
  return rt.contains(bound[0], v);
}

template <Operator kOp>
bool by_compare(Runtime& rt, const Value& v, Arguments& a) {
  Bound bound("comparison", a, {"other"}, 1);
  return rt.compare(kOp, v, bound[0]);
}

struct TestEntry {
  std::string_view name;
  TestFunction function;
};

constexpr TestEntry kTests[] = {
    {"!=", by_compare<Operator::kNotEqual>},
    {"<", by_compare<Operator::kLess>},
    {"<=", by_compare<Operator::kLessEqual>},
    {"==", by_compare<Operator::kEqual>},
    {">", by_compare<Operator::kGreater>},
    {">=", by_compare<Operator::kGreaterEqual>},
    {"boolean", by_kind<is_boolean>},
    {"callable", by_kind<is_callable>},
    {"defined", by_kind<is_defined>},
    {"divisibleby", test_divisible},
    {"eq", by_compare<Operator::kEqual>},
    {"equalto", by_compare<Operator::kEqual>},
    {"escaped", by_kind<is_escaped>},
    {"even", test_even},
    {"false", by_kind<is_false>},
    {"filter", test_filter},
    {"float", by_kind<is_float>},
    {"ge", by_compare<Operator::kGreaterEqual>},
    {"greaterthan", by_compare<Operator::kGreater>},
    {"gt", by_compare<Operator::kGreater>},
    {"in", test_in},
    {"integer", by_kind<is_integer>},
    {"iterable", test_iterable},
    {"le", by_compare<Operator::kLessEqual>},
    {"lessthan", by_compare<Operator::kLess>},
    {"lower", test_lower},
    {"lt", by_compare<Operator::kLess>},
    {"mapping", by_kind<is_mapping>},
    {"ne", by_compare<Operator::kNotEqual>},
    {"none", by_kind<is_none>},
    {"number", by_kind<is_number>},
    {"odd", test_odd},
    {"sameas", test_same},
    {"sequence", by_kind<is_sequence>},
    {"string", by_kind<is_text>},
    {"test", test_test},
    {"true", by_kind<is_true>},
    {"undefined", by_kind<is_undefined>},
    {"upper", test_upper},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const TestEntry& entry : kTests)
    if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace millrace::text::jinja
