#include "text/template/runtime.h"

#include <cmath>

#include "core/utf8.h"
#include "text/template/builtins.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

// --- arguments ---

Bound::Bound(const char* callee, const Arguments& arguments, std::initializer_list<const char*> names,
             size_t required)
    : callee_(callee), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size())
    run_error("{}() takes at most {} arguments, got {}", callee, names.size(), arguments.positional.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [key, value] : arguments.keyword) {
    size_t i = 0;
    for (const char* name : names) {
      if (key == name) break;
      ++i;
    }
    if (i == names.size()) run_error("{}() got an unexpected keyword argument '{}'", callee, key);
    if (values_[i] != nullptr) run_error("{}() got two values for the argument '{}'", callee, key);
    values_[i] = &value;
  }
  size_t i = 0;
  for (const char* name : names) {
    if (i >= required) break;
    if (values_[i] == nullptr) run_error("{}() misses its argument '{}'", callee, name);
    ++i;
  }
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  const Value& value = *values_[i];
  if (value.is_undefined()) undefined_error(value);
  if (!value.is_integral()) run_error("{}() needs an integer, got '{}'", callee_, type_name(value));
  return value.as_int();
}

std::string_view Bound::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return fallback;
  const Value& value = *values_[i];
  if (value.is_undefined()) undefined_error(value);
  if (!value.is_string()) run_error("{}() needs a string, got '{}'", callee_, type_name(value));
  return value.text();
}

// --- building ---

void Runtime::account(Object& object, size_t bytes) {
  budget_.allocate(bytes);
  object.budget = &budget_;
  object.charged = bytes;
}

Value Runtime::string(std::string text, bool markup) {
  charge(1 + text.size() / 256);
  auto object = make<StringObject>(text.capacity());
  object->text = std::move(text);
  object->markup = markup;
  return Value::object(Kind::kString, std::move(object));
}

namespace {

int depth_of(const Values& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth >= kMaxValueDepth) limit_error("values nested deeper than {} levels", kMaxValueDepth);
  return depth + 1;
}

}  // namespace

Value Runtime::list(Values items) {
  charge(1 + items.size() / 16);
  auto object = make<SequenceObject>(items.capacity() * sizeof(Value));
  object->depth = depth_of(items);
  object->items = std::move(items);
  return Value::object(Kind::kList, std::move(object));
}

Value Runtime::tuple(Values items) {
  const Value value = list(std::move(items));
  auto object = make<SequenceObject>();
  auto& from = value.as<SequenceObject>();
  std::swap(object->items, from.items);
  std::swap(object->charged, from.charged);
  object->depth = from.depth;
  return Value::object(Kind::kTuple, std::move(object));
}

Value Runtime::group(Value grouper, Value items) {
  Value value = tuple({std::move(grouper), std::move(items)});
  value.as<SequenceObject>().group = true;
  return value;
}

Value Runtime::generator(Values items) {
  charge(1 + items.size() / 16);
  auto object = make<GeneratorObject>(items.capacity() * sizeof(Value));
  object->depth = depth_of(items);
  object->items = std::move(items);
  return Value::object(Kind::kGenerator, std::move(object));
}

Value Runtime::dict(const std::vector<std::pair<Value, Value>>& entries) {
  charge(1 + entries.size());
  auto object = make<DictObject>(entries.size() * (2 * sizeof(Value) + 48));
  object->entries.reserve(entries.size());
  for (const auto& [key, value] : entries) object->set(key, value);
  if (object->depth > kMaxValueDepth) limit_error("values nested deeper than {} levels", kMaxValueDepth);
  return Value::object(Kind::kDict, std::move(object));
}

Value Runtime::method(const Value& self, std::string_view name) {
  auto object = make<MethodObject>();
  object->self = self;
  object->name = std::string(name);
  object->depth = self.depth() + 1;
  if (object->depth > kMaxValueDepth) limit_error("values nested deeper than {} levels", kMaxValueDepth);
  return Value::object(Kind::kMethod, std::move(object));
}

Value Runtime::undefined(std::string message) {
  auto object = make<UndefinedObject>(message.size());
  object->message = std::move(message);
  return Value::object(Kind::kUndefined, std::move(object));
}

void Runtime::check_room(size_t bytes) {
  if (bytes > budget_.max_live_bytes - budget_.live_bytes)
    limit_error("the template needs more than {} bytes of memory", budget_.max_live_bytes);
}

void Runtime::reserve(const std::string& out, size_t bytes) {
  check_room(bytes);
  check_room(out.size() + bytes);
  charge(bytes / 256);
}

// --- walking ---

Iterator::Iterator(Runtime& runtime, Value value) : runtime_(runtime), value_(std::move(value)) {
  if (!runtime_.iterable(value_)) run_error("'{}' object is not iterable", type_name(value_));
}

int64_t Iterator::known_length() const {
  switch (value_.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value_.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value_.dict().entries.size());
    case Kind::kRange:
      return value_.as<RangeObject>().count;
    case Kind::kDictView:
      return static_cast<int64_t>(value_.as<DictViewObject>().dict.dict().entries.size());
    default:
      return -1;
  }
}

bool Iterator::next(Value& out) {
  runtime_.charge(1);
  switch (value_.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      if (index_ >= value_.items().size()) return false;
      out = value_.items()[index_++];
      return true;
    case Kind::kDict:
      if (index_ >= value_.dict().entries.size()) return false;
      out = value_.dict().entries[index_++].first;
      return true;
    case Kind::kString: {
      const std::string& text = value_.text();
      if (index_ >= text.size()) return false;
      const size_t start = index_;
      utf8::next(text, index_);
      out = runtime_.string(text.substr(start, index_ - start));
      return true;
    }
    case Kind::kRange: {
      const auto& range = value_.as<RangeObject>();
      if (index_ >= static_cast<size_t>(range.count)) return false;
      out = Value::integer(range.start + static_cast<int64_t>(index_++) * range.step);
      return true;
    }
    case Kind::kGenerator: {
      auto& generator = value_.as<GeneratorObject>();
      if (generator.next >= generator.items.size()) return false;
      out = generator.items[generator.next++];
      return true;
    }
    case Kind::kDictView: {
      const auto& view = value_.as<DictViewObject>();
      const auto& entries = view.dict.dict().entries;
      if (index_ >= entries.size()) return false;
      const auto& [key, value] = entries[index_++];
      if (view.view == DictViewObject::View::kKeys) {
        out = key;
      } else if (view.view == DictViewObject::View::kValues) {
        out = value;
      } else {
        out = runtime_.tuple({key, value});
      }
      return true;
    }
    default:
      return false;
  }
}

bool Runtime::iterable(const Value& value) const {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kGenerator:
    case Kind::kDictView:
      return true;
    default:
      return false;
  }
}

Values Runtime::to_values(const Value& value) {
  if (value.is_sequence()) {
    charge(1 + value.items().size() / 16);
    check_room(value.items().size() * sizeof(Value));
    return value.items();
  }
  Values items;
  Iterator it(*this, value);
  Value item;
  while (it.next(item)) items.push_back(std::move(item));
  return items;
}

int64_t Runtime::length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString: {
      const auto& object = value.as<StringObject>();
      if (object.length < 0) {
        budget_.charge_bytes(object.text.size());
        const int64_t length = code_points(object.text);
        if (object.budget == nullptr) return length;  // constants may be shared between threads
        object.length = length;
      }
      return object.length;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView:
      return Iterator(*this, value).known_length();
    case Kind::kLoop:
      return loop_attribute(value, "length").as_int();
    default:
      run_error("object of type '{}' has no len()", type_name(value));
  }
}

bool Runtime::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string())
        run_error("'in <string>' requires string as left operand, not {}", type_name(item));
      budget_.charge_bytes(container.text().size());
      return find_text(container.text(), item.text()) != std::string_view::npos;
    case Kind::kDict:
      return container.dict().find(item) != nullptr;
    case Kind::kRange: {
      const auto& range = container.as<RangeObject>();
      if (!item.is_number()) return false;
      const double d = item.as_double();
      if (d != std::floor(d) || std::abs(d) > 9e15) return false;
      const int64_t offset = static_cast<int64_t>(d) - range.start;
      return range.count > 0 && offset % range.step == 0 && offset / range.step >= 0 &&
             offset / range.step < range.count;
    }
    default:
      break;
  }
  if (!iterable(container)) run_error("argument of type '{}' is not iterable", type_name(container));
  Iterator it(*this, container);
  Value other;
  while (it.next(other))
    if (equal(other, item)) return true;
  return false;
}

// --- calls ---

Value Runtime::call(const Value& callable, Arguments& arguments) {
  charge(1);
  switch (callable.kind()) {
    case Kind::kUndefined:
      undefined_error(callable);
    case Kind::kMacro:
      return call_macro(callable, arguments);
    case Kind::kLoop:
      return call_loop(callable, arguments);
    case Kind::kMethod:
      return call_method(callable.as<MethodObject>().self, callable.as<MethodObject>().name, arguments);
    case Kind::kFunction:
      return call_global(*this, callable.as<FunctionObject>().name, arguments);
    case Kind::kJoiner: {
      Bound bound("joiner", arguments, {});
      auto& joiner = callable.as<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : string("");
    }
    default:
      run_error("'{}' object is not callable", type_name(callable));
  }
}

Value Runtime::call_filter(const std::string& name, const Value& value, Arguments& arguments) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) run_error("no filter named '{}'", name);
  charge(1);
  return filter(*this, value, arguments);
}

bool Runtime::call_test(const std::string& name, const Value& value, Arguments& arguments) {
  const TestFunction test = find_test(name);
  if (test == nullptr) run_error("no test named '{}'", name);
  charge(1);
  return test(*this, value, arguments);
}

}  // namespace millrace::text::jinja
