// What expressions, filters, tests and methods are made of: building values within the budget, walking,
// printing, attributes, operators. The interpreter adds what needs statements (macros, loops).
#pragma once

#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/value.h"

namespace millrace::text::jinja {

/// Values nested deeper than this cannot be built.
inline constexpr int kMaxValueDepth = 200;
/// Jinja2's sandbox refuses longer ranges.
inline constexpr int64_t kMaxRange = 100000;

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

/// Arguments matched to named parameters, as Python matches them. `callee` is for messages.
class Bound {
 public:
  Bound(const char* callee, const Arguments& arguments, std::initializer_list<const char*> names,
        size_t required = 0);
  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  /// The argument, or null when it was left out or is None.
  const Value* given(size_t i) const {
    return values_[i] != nullptr && !values_[i]->is_none() ? values_[i] : nullptr;
  }
  bool flag(size_t i, bool fallback) const { return has(i) ? truth(*values_[i]) : fallback; }
  int64_t integer(size_t i, int64_t fallback) const;
  std::string_view text(size_t i, std::string_view fallback) const;

 private:
  const char* callee_;
  std::vector<const Value*> values_;
};

/// Walks anything Python would iterate. A generator goes on where it was left.
class Iterator {
 public:
  Iterator(class Runtime& runtime, Value value);
  bool next(Value& out);
  /// Number of values left if it is known without walking, else -1.
  int64_t known_length() const;

 private:
  class Runtime& runtime_;
  Value value_;
  size_t index_ = 0;
};

struct JsonStyle {
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii_only = false;
  bool sort_keys = false;
};

class Runtime {
 public:
  explicit Runtime(Budget& budget) : budget_(budget) {}
  virtual ~Runtime() = default;

  Budget& budget() { return budget_; }
  void charge(size_t units) { budget_.charge(units); }

  // Building.
  Value string(std::string text, bool markup = false);
  Value list(Values items);
  Value tuple(Values items);
  Value group(Value grouper, Value items);
  Value generator(Values items);
  Value dict(const std::vector<std::pair<Value, Value>>& entries);
  Value method(const Value& self, std::string_view name);
  Value undefined(std::string message);
  /// Counts an object made elsewhere.
  template <typename T>
  std::shared_ptr<T> make(size_t bytes = 0) {
    auto object = std::make_shared<T>();
    account(*object, sizeof(T) + 32 + bytes);
    return object;
  }
  void account(Object& object, size_t bytes);

  // Reading.
  Values to_values(const Value& value);
  int64_t length(const Value& value);  ///< len(); an error where Python has none
  bool contains(const Value& container, const Value& item);
  bool iterable(const Value& value) const;
  std::string str(const Value& value);   ///< str(value)
  std::string repr(const Value& value);  ///< repr(value)
  void append_str(std::string& out, const Value& value);
  std::string json(const Value& value, const JsonStyle& style);
  Value attribute(const Value& object, const std::string& name);
  Value subscript(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  /// Follows "a.b.0" as filters do with their attribute arguments.
  Value path(const Value& object, const Value& attribute, const Value* fallback = nullptr);

  // Computing.
  Value binary(Operator op, const Value& left, const Value& right);
  Value negate(const Value& value);
  Value plus(const Value& value);
  bool compare(Operator op, const Value& left, const Value& right);
  Value concat(const Values& values);

  // Calling.
  Value call(const Value& callable, Arguments& arguments);
  Value call_method(const Value& self, const std::string& name, Arguments& arguments);
  Value call_filter(const std::string& name, const Value& value, Arguments& arguments);
  bool call_test(const std::string& name, const Value& value, Arguments& arguments);
  virtual Value call_macro(const Value& macro, Arguments& arguments) = 0;
  virtual Value call_loop(const Value& loop, Arguments& arguments) = 0;
  virtual Value loop_attribute(const Value& loop, const std::string& name) = 0;
  virtual Value loop_method(const Value& loop, const std::string& name, Arguments& arguments) = 0;
  virtual std::string macro_name(const Value& macro) = 0;
  virtual Value make_namespace(Arguments& arguments) = 0;
  virtual std::tm now() = 0;

  /// An error unless `bytes` more fit into the memory limit; call before building something large.
  void check_room(size_t bytes);
  /// The same for `bytes` that are appended to `out`, with the steps that copying them takes.
  void reserve(const std::string& out, size_t bytes);

 private:
  void append_repr(std::string& out, const Value& value, int depth);
  void append_items(std::string& out, const Values& items, int depth);
  void append_json(std::string& out, const Value& value, const JsonStyle& style, int depth);
  void json_key(std::string& out, const Value& key, const JsonStyle& style);
  Value own_attribute(const Value& object, const std::string& name);
  Value arithmetic(Operator op, const Value& left, const Value& right);
  Value add(const Value& left, const Value& right);
  Value multiply(const Value& left, const Value& right);
  Value repeat(const Value& sequence, int64_t count);

  Budget& budget_;
};

// Python's formatting (format.cc).
/// left % right for strings.
Value percent_format(Runtime& runtime, const Value& format, const Value& right);
/// str.format(*args, **kwargs).
std::string brace_format(Runtime& runtime, std::string_view format, const Arguments& arguments);
/// datetime.strftime.
std::string format_time(const std::tm& time, const std::string& format);

}  // namespace millrace::text::jinja
