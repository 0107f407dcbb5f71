// Values of the template language, as Python has them: what a chat template reads, computes and prints.
// Containers are immutable (as in Jinja2's immutable sandbox), strings are UTF-8 with lengths and indices in
// code points.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"

namespace millrace::text::jinja {

/// An error while a template runs; the interpreter adds the line.
class RunError : public std::exception {
 public:
  RunError(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
  std::string message_;
};

template <typename... Args>
[[noreturn]] void run_error(fmt::format_string<Args...> format, Args&&... args) {
  throw RunError(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void limit_error(fmt::format_string<Args...> format, Args&&... args) {
  throw RunError(ErrorCode::kLimitExceeded, fmt::format(format, std::forward<Args>(args)...));
}

/// What one rendering may spend: steps, bytes alive at once.
struct Budget {
  int64_t fuel = 0;
  size_t live_bytes = 0;
  size_t max_live_bytes = 0;

  void charge(size_t units) {
    fuel -= static_cast<int64_t>(units);
    if (fuel < 0) limit_error("the template needs more steps than it may take");
  }
  /// Work proportional to a text of `bytes` bytes.
  void charge_bytes(size_t bytes) { charge(1 + bytes / 256); }
  void allocate(size_t bytes) {
    if (bytes > max_live_bytes - live_bytes)
      limit_error("the template needs more than {} bytes of memory", max_live_bytes);
    live_bytes += bytes;
  }
  void release(size_t bytes) { live_bytes -= bytes; }
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kGenerator,  ///< what filters such as map give: can be walked once
  kDictView,   ///< keys(), values(), items() of a dict
  kNamespace,
  kMacro,
  kMethod,    ///< a method bound to its object
  kFunction,  ///< a global function
  kLoop,
  kCycler,
  kJoiner,
};

/// Base of everything on the heap. Returns its bytes to the budget when it dies.
struct Object {
  Budget* budget = nullptr;  ///< null for constants of the parsed template
  size_t charged = 0;
  int depth = 1;  ///< 1 + the deepest value inside; bounded, so that no walk can exhaust the stack

  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (budget != nullptr) budget->release(charged);
  }
};

struct StringObject;
struct SequenceObject;
struct DictObject;

class Value {
 public:
  Value() = default;
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.integer_ = b ? 1 : 0;
    return v;
  }
  static Value integer(int64_t i) {
    Value v(Kind::kInt);
    v.integer_ = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::kFloat);
    v.real_ = d;
    return v;
  }
  static Value object(Kind kind, std::shared_ptr<Object> o) {
    Value v(kind);
    v.object_ = std::move(o);
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  int64_t as_int() const { return integer_; }  ///< of kInt or kBool
  double as_double() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer_); }
  const std::string& text() const;          ///< of kString
  const std::vector<Value>& items() const;  ///< of kList, kTuple
  const DictObject& dict() const;           ///< of kDict
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const Object* object() const { return object_.get(); }
  int depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

using Values = std::vector<Value>;

/// Why a value is undefined, for the message when it is used.
struct UndefinedObject : Object {
  std::string message;
};

struct StringObject : Object {
  std::string text;
  bool markup = false;          ///< came from |escape or |safe
  mutable int64_t length = -1;  ///< in code points, once counted
};

struct SequenceObject : Object {
  Values items;
  bool group = false;  ///< a tuple of groupby: has .grouper and .list
};

/// Insertion-ordered; keys are hashable values, found by hash when there are many.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Adds or replaces (keeping the place of the first); Error on unhashable keys.
  void set(const Value& key, Value value);

 private:
  int64_t index_of(const Value& key, size_t hash) const;
  void index_all();
  std::unordered_multimap<size_t, uint32_t> index_;
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1, count = 0;
};

struct GeneratorObject : Object {
  Values items;
  size_t next = 0;
};

struct DictViewObject : Object {
  enum class View : uint8_t { kKeys, kValues, kItems };
  Value dict;
  View view = View::kItems;
};

struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
};

struct MethodObject : Object {
  Value self;
  std::string name;
};

struct FunctionObject : Object {
  std::string name;
};

struct CyclerObject : Object {
  Values items;
  size_t position = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

inline const std::string& Value::text() const { return static_cast<StringObject&>(*object_).text; }
inline const Values& Value::items() const { return static_cast<SequenceObject&>(*object_).items; }
inline const DictObject& Value::dict() const { return static_cast<DictObject&>(*object_); }

/// Python's name of the type, for messages: "str", "dict".
const char* type_name(const Value& value);

/// bool(value).
bool truth(const Value& value);

/// left == right, as Python compares (1 == 1.0 == True).
bool equal(const Value& left, const Value& right);

/// left < right; RunError where Python has no order between the two. `symbol` is for the message.
bool less(const Value& left, const Value& right, const char* symbol = "<");

/// hash(value); RunError for lists, dicts and other unhashable values.
size_t hash(const Value& value);

/// What an undefined value says when it is used.
std::string undefined_message(const Value& value);
[[noreturn]] void undefined_error(const Value& value);

/// A constant outside any budget, for parsed templates.
Value constant_string(std::string text);

}  // namespace millrace::text::jinja
