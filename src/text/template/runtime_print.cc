// Values as text: as Python prints them, and as JSON.
#include <algorithm>
#include <cmath>

#include "text/template/runtime.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

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

}  // namespace millrace::text::jinja
