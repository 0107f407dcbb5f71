// Attributes, subscripts and slices.
#include <algorithm>

#include "core/utf8.h"
#include "text/template/builtins.h"
#include "text/template/runtime.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

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

}  // namespace millrace::text::jinja
