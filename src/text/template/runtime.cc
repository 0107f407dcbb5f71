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

// --- printing ---

void Runtime::append_items(std::string& out, const Values& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i], depth);
  }
}

void Runtime::append_repr(std::string& out, const Value& value, int depth) {
  charge(1);
  check_room(out.size());
  if (depth > kMaxValueDepth) limit_error("values nested deeper than {} levels", kMaxValueDepth);
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.as_int() != 0 ? "True" : "False";
      return;
    case Kind::kInt:
      out += std::to_string(value.as_int());
      return;
    case Kind::kFloat:
      out += float_text(value.as_double());
      return;
    case Kind::kString: {
      budget_.charge_bytes(4 * value.text().size());
      const bool markup = value.as<StringObject>().markup;
      if (markup) out += "Markup(";
      out += python_quoted(value.text());
      if (markup) out += ")";
      return;
    }
    case Kind::kList:
      out += "[";
      append_items(out, value.items(), depth + 1);
      out += "]";
      return;
    case Kind::kTuple:
      out += "(";
      append_items(out, value.items(), depth + 1);
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kDict: {
      out += "{";
      bool first = true;
      for (const auto& [key, item] : value.dict().entries) {
        if (!first) out += ", ";
        first = false;
        append_repr(out, key, depth + 1);
        out += ": ";
        append_repr(out, item, depth + 1);
      }
      out += "}";
      return;
    }
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      out += range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                             : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
      return;
    }
    case Kind::kDictView: {
      out += type_name(value);
      out += "([";
      Iterator it(*this, value);
      Value item;
      for (bool first = true; it.next(item); first = false) {
        if (!first) out += ", ";
        append_repr(out, item, depth + 1);
      }
      out += "])";
      return;
    }
    case Kind::kNamespace: {
      out += "<Namespace {";
      bool first = true;
      for (const auto& [key, item] : value.as<NamespaceObject>().attributes) {
        if (!first) out += ", ";
        first = false;
        out += python_quoted(key) + ": ";
        append_repr(out, item, depth + 1);
      }
      out += "}>";
      return;
    }
    case Kind::kMacro:
      out += macro_name(value).empty() ? "<Macro anonymous>"
                                       : fmt::format("<Macro {}>", python_quoted(macro_name(value)));
      return;
    case Kind::kLoop:
      out += fmt::format("<LoopContext {}/{}>", loop_attribute(value, "index").as_int(), length(value));
      return;
    case Kind::kMethod:
      out += fmt::format("<built-in method {}>", value.as<MethodObject>().name);
      return;
    case Kind::kFunction:
      out += fmt::format("<function {}>", value.as<FunctionObject>().name);
      return;
    default:
      out += fmt::format("<{} object>", type_name(value));
      return;
  }
}

void Runtime::append_str(std::string& out, const Value& value) {
  if (value.is_undefined()) return;
  if (value.is_string()) {
    reserve(out, value.text().size());
    out += value.text();
    return;
  }
  if (value.is(Kind::kJoiner)) {
    run_error("a joiner is printed by calling it");
  }
  append_repr(out, value, 0);
  check_room(out.size());
}

std::string Runtime::str(const Value& value) {
  std::string out;
  append_str(out, value);
  return out;
}

std::string Runtime::repr(const Value& value) {
  std::string out;
  append_repr(out, value, 0);
  return out;
}

void Runtime::json_key(std::string& out, const Value& key, const JsonStyle& style) {
  switch (key.kind()) {
    case Kind::kString:
      append_json_string(out, key.text(), style.ascii_only);
      return;
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      out += "\"";
      append_json(out, key, style, 0);
      out += "\"";
      return;
    default:
      run_error("keys must be str, int, float, bool or None, not {}", type_name(key));
  }
}

void Runtime::append_json(std::string& out, const Value& value, const JsonStyle& style, int depth) {
  charge(1);
  check_room(out.size());
  if (depth > kMaxValueDepth) limit_error("values nested deeper than {} levels", kMaxValueDepth);
  const auto line = [&](int level) {
    if (!style.indent) return;
    reserve(out, 1 + style.indent->size() * static_cast<size_t>(level));
    out += "\n";
    for (int i = 0; i < level; ++i) out += *style.indent;
  };
  switch (value.kind()) {
    case Kind::kNone:
      out += "null";
      return;
    case Kind::kBool:
      out += value.as_int() != 0 ? "true" : "false";
      return;
    case Kind::kInt:
      out += std::to_string(value.as_int());
      return;
    case Kind::kFloat: {
      const double d = value.as_double();
      out += std::isnan(d) ? "NaN" : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity") : float_text(d);
      return;
    }
    case Kind::kString:
      budget_.charge_bytes(4 * value.text().size());
      append_json_string(out, value.text(), style.ascii_only);
      return;
    case Kind::kList:
    case Kind::kTuple: {
      const Values& items = value.items();
      out += "[";
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += style.item_separator;
        line(depth + 1);
        append_json(out, items[i], style, depth + 1);
      }
      if (!items.empty()) line(depth);
      out += "]";
      return;
    }
    case Kind::kDict: {
      std::vector<const std::pair<Value, Value>*> entries;
      for (const auto& entry : value.dict().entries) entries.push_back(&entry);
      if (style.sort_keys)
        std::stable_sort(entries.begin(), entries.end(),
                         [](const auto* a, const auto* b) { return less(a->first, b->first); });
      out += "{";
      for (size_t i = 0; i < entries.size(); ++i) {
        if (i > 0) out += style.item_separator;
        line(depth + 1);
        json_key(out, entries[i]->first, style);
        out += style.key_separator;
        append_json(out, entries[i]->second, style, depth + 1);
      }
      if (!entries.empty()) line(depth);
      out += "}";
      return;
    }
    default:
      run_error("Object of type {} is not JSON serializable", type_name(value));
  }
}

std::string Runtime::json(const Value& value, const JsonStyle& style) {
  std::string out;
  append_json(out, value, style, 0);
  return out;
}

// --- attributes ---

namespace {

std::string object_text(const Value& object) {
  if (object.is_none()) return "None";
  return fmt::format("{} object", type_name(object));
}

}  // namespace

Value Runtime::own_attribute(const Value& object, const std::string& name) {
  switch (object.kind()) {
    case Kind::kNamespace: {
      Value* found = object.as<NamespaceObject>().find(name);
      return found != nullptr ? *found : Value();
    }
    case Kind::kLoop: {
      Value own = loop_attribute(object, name);
      if (!own.is_undefined() || own.object() != nullptr) return own;
      break;
    }
    case Kind::kTuple:
      if (object.as<SequenceObject>().group && (name == "grouper" || name == "list"))
        return object.items()[name == "grouper" ? 0 : 1];
      break;
    case Kind::kRange: {
      const auto& range = object.as<RangeObject>();
      if (name == "start") return Value::integer(range.start);
      if (name == "step") return Value::integer(range.step);
      if (name == "stop") return Value::integer(range.stop);
      break;
    }
    case Kind::kMacro:
      if (name == "name") return macro_name(object).empty() ? Value::none() : string(macro_name(object));
      break;
    case Kind::kCycler: {
      const auto& cycler = object.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.position];
      break;
    }
    case Kind::kBool:
    case Kind::kInt:
      if (name == "real" || name == "numerator") return Value::integer(object.as_int());
      if (name == "imag") return Value::integer(0);
      if (name == "denominator") return Value::integer(1);
      break;
    case Kind::kFloat:
      if (name == "real") return object;
      if (name == "imag") return Value::real(0.0);
      break;
    default:
      break;
  }
  if (has_method(object, name)) return method(object, name);
  if (is_refused_method(object, name))
    return undefined(
        fmt::format("'{}' would change the {}, which templates cannot do", name, type_name(object)));
  return Value();
}

Value Runtime::attribute(const Value& object, const std::string& name) {
  charge(1);
  if (object.is_undefined()) undefined_error(object);
  Value own = own_attribute(object, name);
  if (!own.is_undefined() || own.object() != nullptr) return own;
  if (object.is(Kind::kDict))
    if (const Value* found = object.dict().find(name)) return *found;
  return undefined(fmt::format("'{}' has no attribute {}", object_text(object), python_quoted(name)));
}

Value Runtime::subscript(const Value& object, const Value& key) {
  charge(1);
  switch (object.kind()) {
    case Kind::kUndefined:
      undefined_error(object);
    case Kind::kList:
    case Kind::kTuple:
      if (key.is_integral()) {
        const auto& items = object.items();
        int64_t i = key.as_int();
        if (i < 0) i += static_cast<int64_t>(items.size());
        if (i >= 0 && i < static_cast<int64_t>(items.size())) return items[static_cast<size_t>(i)];
      }
      break;
    case Kind::kDict:
      if (!key.is(Kind::kList) && !key.is(Kind::kDict) && !key.is(Kind::kDictView))
        if (const Value* found = object.dict().find(key)) return *found;
      break;
    case Kind::kString:
      if (key.is_integral()) {
        const int64_t size = length(object);
        int64_t i = key.as_int();
        if (i < 0) i += size;
        if (i >= 0 && i < size) {
          const std::string& text = object.text();
          if (static_cast<size_t>(size) == text.size()) return string(text.substr(static_cast<size_t>(i), 1));
          budget_.charge_bytes(text.size());
          size_t at = byte_offset(text, i);
          const size_t start = at;
          utf8::next(text, at);
          return string(text.substr(start, at - start));
        }
      }
      break;
    case Kind::kRange:
      if (key.is_integral()) {
        const auto& range = object.as<RangeObject>();
        int64_t i = key.as_int();
        if (i < 0) i += range.count;
        if (i >= 0 && i < range.count) return Value::integer(range.start + i * range.step);
      }
      break;
    default:
      break;
  }
  if (key.is_string()) {
    Value own = own_attribute(object, key.text());
    if (!own.is_undefined() || own.object() != nullptr) return own;
    return undefined(fmt::format("'{}' has no attribute {}", object_text(object), python_quoted(key.text())));
  }
  return undefined(fmt::format("{} has no element {}", object_text(object), repr(key).substr(0, 100)));
}

namespace {

/// Positions that a slice takes, as slice.indices gives them.
struct SliceRange {
  int64_t start, stop, step;
  int64_t count() const {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return stop < start ? (start - stop - 1) / -step + 1 : 0;
  }
};

int64_t slice_bound(const Value& bound, int64_t fallback, int64_t low, int64_t high, int64_t size) {
  if (bound.is_none()) return fallback;
  if (!bound.is_integral()) run_error("slice indices must be integers or None");
  int64_t i = bound.as_int();
  if (i < 0) i = i < -size ? low : i + size;
  return std::clamp(i, low, high);
}

SliceRange slice_range(const Value& start, const Value& stop, const Value& step, int64_t size) {
  SliceRange range{0, 0, 1};
  if (!step.is_none()) {
    if (!step.is_integral()) run_error("slice indices must be integers or None");
    range.step = std::clamp<int64_t>(step.as_int(), -(int64_t{1} << 40), int64_t{1} << 40);
    if (range.step == 0) run_error("slice step cannot be zero");
  }
  const bool forward = range.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  range.start = slice_bound(start, forward ? low : high, low, high, size);
  range.stop = slice_bound(stop, forward ? high : low, low, high, size);
  return range;
}

}  // namespace

Value Runtime::slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) undefined_error(object);
  for (const Value* bound : {&start, &stop, &step})
    if (bound->is_undefined())
      run_error("slice indices must be integers or None: {}", undefined_message(*bound));
  if (object.is_string()) {
    const std::string& text = object.text();
    const int64_t size = length(object);
    const SliceRange range = slice_range(start, stop, step, size);
    budget_.charge_bytes(text.size());
    if (range.step == 1) {
      if (range.start >= range.stop) return string("");
      const bool ascii = static_cast<size_t>(size) == text.size();
      const size_t first = ascii ? static_cast<size_t>(range.start) : byte_offset(text, range.start);
      const size_t bytes = ascii
                               ? static_cast<size_t>(range.stop - range.start)
                               : byte_offset(std::string_view(text).substr(first), range.stop - range.start);
      return string(text.substr(first, bytes));
    }
    charge(text.size() / 4);
    std::vector<std::string_view> characters;
    for (size_t at = 0; at < text.size();) {
      const size_t before = at;
      utf8::next(text, at);
      characters.push_back(std::string_view(text).substr(before, at - before));
    }
    std::string out;
    for (int64_t i = 0; i < range.count(); ++i)
      out += characters[static_cast<size_t>(range.start + i * range.step)];
    return string(std::move(out));
  }
  if (object.is(Kind::kRange)) {
    const auto& from = object.as<RangeObject>();
    const SliceRange taken = slice_range(start, stop, step, from.count);
    const auto place = [&](__int128 base, int64_t times) {
      const __int128 at = base + static_cast<__int128>(times) * from.step;
      if (at != static_cast<int64_t>(at)) limit_error("an integer goes beyond 64 bits");
      return static_cast<int64_t>(at);
    };
    auto range = make<RangeObject>();
    range->start = place(from.start, taken.start);
    range->stop = place(from.start, taken.stop);
    range->step = place(0, taken.step);
    range->count = taken.count();
    return Value::object(Kind::kRange, std::move(range));
  }
  if (object.is_sequence()) {
    Values items;
    const SliceRange range = slice_range(start, stop, step, Iterator(*this, object).known_length());
    charge(1 + static_cast<size_t>(range.count()) / 8);
    for (int64_t i = 0; i < range.count(); ++i)
      items.push_back(subscript(object, Value::integer(range.start + i * range.step)));
    return object.is(Kind::kTuple) ? tuple(std::move(items)) : list(std::move(items));
  }
  run_error("'{}' object is not subscriptable", type_name(object));
}

Value Runtime::path(const Value& object, const Value& attribute, const Value* fallback) {
  if (attribute.is_none()) return object;
  Value value = object;
  const auto step = [&](const Value& key) {
    value = subscript(value, key);
    if (fallback != nullptr && value.is_undefined()) value = *fallback;
  };
  if (!attribute.is_string()) {
    step(attribute);
    return value;
  }
  for (const std::string_view part : split(attribute.text(), ".", -1)) {
    const bool number = !part.empty() && part.size() < 18 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    step(number ? Value::integer(std::strtoll(std::string(part).c_str(), nullptr, 10))
                : string(std::string(part)));
  }
  return value;
}

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
