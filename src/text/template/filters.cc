// Filters on single values: text, numbers, JSON.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/utf8.h"
#include "text/template/builtins.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

/// The value as a string value: itself when it is one.
Value soft_string(Runtime& rt, const Value& value) {
  return value.is_string() ? value : rt.string(rt.str(value));
}

template <const char* kName>
Value by_method(Runtime& rt, const Value& value, Arguments& arguments) {
  return rt.call_method(soft_string(rt, value), kName, arguments);
}

constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kCapitalize[] = "capitalize";
constexpr char kStrip[] = "strip";

Value filter_abs(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("abs", arguments, {});
  if (value.is(Kind::kFloat)) return Value::real(std::abs(value.as_double()));
  if (!value.is_integral()) run_error("bad operand type for abs(): '{}'", type_name(value));
  return value.as_int() < 0 ? rt.negate(value) : Value::integer(value.as_int());
}

Value filter_attr(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("attr", arguments, {"name"}, 1);
  const std::string name(bound.text(0, ""));
  if (value.is(Kind::kDict) && !has_method(value, name))
    return rt.undefined(
        fmt::format("'{} object' has no attribute {}", type_name(value), python_quoted(name)));
  return rt.attribute(value, name);
}

Value filter_center(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("center", arguments, {"width"});
  Arguments forwarded{{Value::integer(bound.integer(0, 80))}, {}};
  return rt.call_method(soft_string(rt, value), "center", forwarded);
}

Value filter_default(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && !(bound.flag(1, false) && !truth(value))) return value;
  return bound.has(0) ? bound[0] : rt.string("");
}

Value filter_trim(Runtime& rt, const Value& value, Arguments& arguments) {
  return by_method<kStrip>(rt, value, arguments);
}

std::string escape_text(Runtime& rt, const std::string& text) {
  rt.check_room(6 * text.size());
  rt.charge(1 + text.size() / 32);
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

Value filter_escape(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("escape", arguments, {});
  if (value.is_string() && value.as<StringObject>().markup) return value;
  return rt.string(escape_text(rt, rt.str(value)), true);
}

Value filter_force_escape(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("forceescape", arguments, {});
  return rt.string(escape_text(rt, rt.str(value)), true);
}

Value filter_safe(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("safe", arguments, {});
  return rt.string(rt.str(value), true);
}

Value filter_string(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("string", arguments, {});
  return soft_string(rt, value);
}

Value filter_title(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("title", arguments, {});
  const std::string text = rt.str(value);
  rt.charge(1 + text.size() / 16);
  std::string out;
  size_t start = 0;
  const auto flush = [&](size_t end) {
    if (end <= start) return;
    const std::string_view word = std::string_view(text).substr(start, end - start);
    size_t first = 0;
    utf8::next(word, first);
    out += to_upper(word.substr(0, first));
    out += to_lower(word.substr(first));
  };
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const uint32_t c = utf8::next(text, at);
    const bool border = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
    if (!border) continue;
    flush(before);
    out += text.substr(before, at - before);
    start = at;
  }
  flush(text.size());
  return rt.string(std::move(out));
}

Value filter_replace(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  Arguments forwarded{{rt.string(rt.str(bound[0])), rt.string(rt.str(bound[1]))}, {}};
  if (bound.given(2) != nullptr) forwarded.positional.push_back(bound[2]);
  return rt.call_method(rt.string(rt.str(value)), "replace", forwarded);
}

/// int(text, base) of Python; nullopt where it raises ValueError.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  text = strip(text, kBoth);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  bool joint = false;  // an underscore may come next
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(2);
      joint = true;
    }
  }
  if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
  }
  std::string digits = negative ? "-" : "";
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = utf8::next(text, at);
    if (c == '_') {
      if (!joint || at >= text.size()) return std::nullopt;
      joint = false;
      continue;
    }
    if (c >= 0x80) return std::nullopt;
    digits.push_back(static_cast<char>(c));
    joint = true;
  }
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, ec] = std::from_chars(digits.data(), end, value, static_cast<int>(base));
  if (ec == std::errc::result_out_of_range && stop == end) limit_error("an integer goes beyond 64 bits");
  if (ec != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// float(text) of Python; nullopt where it raises ValueError.
std::optional<double> parse_float(std::string_view text) {
  text = strip(text, kBoth);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t j) { return j < text.size() && text[j] >= '0' && text[j] <= '9'; };
    if (text[i] == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
      continue;
    }
    if (text[i] == 'x' || text[i] == 'X' || text[i] == 'p' || text[i] == 'P' || text[i] == '(')
      return std::nullopt;
    plain.push_back(text[i]);
  }
  if (plain.empty() || plain.size() > 4096) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  if (end != plain.c_str() + plain.size() || is_space(static_cast<unsigned char>(plain[0])))
    return std::nullopt;
  return value;
}

std::optional<int64_t> truncate(double d) {
  if (std::isnan(d) || std::isinf(d)) return std::nullopt;
  if (std::abs(d) >= 9.2233720368547758e18) limit_error("an integer goes beyond 64 bits");
  return static_cast<int64_t>(d);
}

Value filter_int(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("int", arguments, {"default", "base"});
  Value fallback = bound.has(0) ? bound[0] : Value::integer(0);
  if (value.is_undefined()) undefined_error(value);
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) {
    if (std::isinf(value.as_double())) run_error("cannot convert float infinity to integer");
    const auto whole = truncate(value.as_double());
    return whole ? Value::integer(*whole) : fallback;
  }
  if (!value.is_string()) return fallback;
  const int64_t base = bound.integer(1, 10);
  rt.budget().charge_bytes(value.text().size());
  if (base == 0 || (base >= 2 && base <= 36))
    if (const auto whole = parse_integer(value.text(), base)) return Value::integer(*whole);
  const auto real = parse_float(value.text());
  const auto whole = real ? truncate(*real) : std::nullopt;
  return whole ? Value::integer(*whole) : fallback;
}

Value filter_float(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("float", arguments, {"default"});
  Value fallback = bound.has(0) ? bound[0] : Value::real(0.0);
  if (value.is_undefined()) undefined_error(value);
  if (value.is_number()) return Value::real(value.as_double());
  if (!value.is_string()) return fallback;
  rt.budget().charge_bytes(value.text().size());
  const auto real = parse_float(value.text());
  return real ? Value::real(*real) : fallback;
}

Value filter_format(Runtime& rt, const Value& value, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty())
    run_error("format takes positional or keyword arguments, not both");
  const Value format = soft_string(rt, value);
  if (arguments.keyword.empty()) return percent_format(rt, format, rt.tuple(arguments.positional));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, item] : arguments.keyword) entries.emplace_back(rt.string(key), item);
  return percent_format(rt, format, rt.dict(entries));
}

Value filter_indent(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("indent", arguments, {"width", "first", "blank"});
  if (value.is_undefined()) undefined_error(value);
  if (!value.is_string()) run_error("indent needs a string, got '{}'", type_name(value));
  std::string indentation(4, ' ');
  if (bound.has(0)) {
    if (bound[0].is_string()) {
      indentation = bound[0].text();
    } else {
      const int64_t width = std::max<int64_t>(bound.integer(0, 4), 0);
      rt.check_room(static_cast<size_t>(width));
      indentation.assign(static_cast<size_t>(width), ' ');
    }
  }
  const bool first = bound.flag(1, false), blank = bound.flag(2, false);
  const std::string text = value.text() + "\n";
  rt.charge(1 + text.size() / 32);
  std::string out = first ? indentation : "";
  bool is_first = true;
  for (const std::string_view line : split_lines(text, LineEnds::kDrop)) {
    if (!is_first) out += "\n";
    if (!is_first && (blank || !line.empty())) {
      rt.reserve(out, indentation.size() + line.size());
      out += indentation;
    }
    out += line;
    is_first = false;
  }
  return rt.string(std::move(out), value.as<StringObject>().markup);
}

Value filter_truncate(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = bound.integer(0, 255);
  const std::string end(bound.text(2, "..."));
  const int64_t leeway = bound.given(3) != nullptr ? bound.integer(3, 5) : 5;
  const int64_t keep = length - code_points(end);
  if (keep < 0) run_error("truncate: expected a length of at least {}, got {}", code_points(end), length);
  if (leeway < 0) run_error("truncate: expected a leeway of at least 0, got {}", leeway);
  if (rt.length(value) <= length + leeway) return value;
  if (!value.is_string()) run_error("truncate needs a string, got '{}'", type_name(value));
  std::string text = value.text().substr(0, byte_offset(value.text(), keep));
  if (!bound.flag(1, false)) text = std::string(rsplit(text, " ", 1)[0]);
  return rt.string(text + end);
}

Value filter_word_count(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("wordcount", arguments, {});
  const std::string text = rt.str(value);
  rt.charge(1 + text.size() / 32);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = is_word_character(utf8::next(text, at));
    words += word && !inside;
    inside = word;
  }
  return Value::integer(words);
}

Value filter_round(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("round", arguments, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string method(bound.text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor")
    run_error("round: the method must be common, ceil or floor");
  if (value.is_undefined()) undefined_error(value);
  if (!value.is_number()) run_error("type {} doesn't define __round__ method", type_name(value));
  if (method != "common") {
    // Python: ceil gives an integer, which is then divided.
    const Value scale = rt.binary(Operator::kPower, Value::integer(10), Value::integer(precision));
    const double scaled = rt.binary(Operator::kMultiply, value, scale).as_double();
    const auto whole = truncate(method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
    if (!whole) run_error("cannot round {}", rt.str(value));
    return rt.binary(Operator::kDivide, Value::integer(*whole), scale);
  }
  if (value.is_integral()) {
    if (precision >= 0) return Value::integer(value.as_int());
    if (precision < -18) return Value::integer(0);
    int64_t unit = 1;
    for (int64_t i = 0; i < -precision; ++i) unit *= 10;
    const int64_t n = value.as_int();
    const int64_t rest = ((n % unit) + unit) % unit;
    const int64_t down = n - rest;
    const bool even = (down / unit) % 2 == 0;
    return Value::integer(rest > unit - rest || (rest == unit - rest && !even) ? down + unit : down);
  }
  const double d = value.as_double();
  if (std::isnan(d) || std::isinf(d) || precision > 300) return value;
  if (precision >= 0) {
    char buffer[768];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), d);
    return Value::real(std::strtod(buffer, nullptr));
  }
  if (precision < -308) return Value::real(std::copysign(0.0, d));
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return Value::real(std::nearbyint(d / unit) * unit);
}

Value filter_tojson(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = bound.flag(0, false);
  if (const Value* indent = bound.given(1)) {
    if (indent->is_string()) {
      style.indent = indent->text();
    } else {
      const int64_t width = std::clamp<int64_t>(bound.integer(1, 0), 0, 1000);
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (const Value* separators = bound.given(2)) {
    const Values pair = rt.to_values(*separators);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      run_error("tojson: separators must be two strings");
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  style.sort_keys = bound.flag(3, false);
  return rt.string(rt.json(value, style));
}

std::string percent_encode(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain) {
      out.push_back(c);
    } else if (query && c == ' ') {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

Value filter_urlencode(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("urlencode", arguments, {});
  if (value.is_string() || !rt.iterable(value)) {
    const std::string text = rt.str(value);
    rt.check_room(3 * text.size());
    rt.charge(text.size() / 16);
    return rt.string(percent_encode(text, false));
  }
  std::string out;
  Arguments none;
  Iterator it(rt, value.is(Kind::kDict) ? rt.call_method(value, "items", none) : value);
  for (Value item; it.next(item);) {
    const Values pair = rt.to_values(item);
    if (pair.size() != 2) run_error("urlencode needs pairs of key and value");
    if (!out.empty()) out += "&";
    const std::string piece =
        percent_encode(rt.str(pair[0]), true) + "=" + percent_encode(rt.str(pair[1]), true);
    rt.reserve(out, piece.size());
    out += piece;
  }
  return rt.string(std::move(out));
}

Value filter_xmlattr(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("xmlattr", arguments, {"autospace"});
  if (value.is_undefined()) undefined_error(value);
  if (!value.is(Kind::kDict)) run_error("xmlattr needs a mapping, got '{}'", type_name(value));
  std::string out;
  for (const auto& [key, item] : value.dict().entries) {
    if (item.is_none() || item.is_undefined()) continue;
    if (!key.is_string()) run_error("xmlattr: expected a string as key, got '{}'", type_name(key));
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      run_error("Invalid character in attribute name: {}", python_quoted(key.text()));
    Arguments none;
    const Value escaped = filter_escape(rt, item, none);
    if (!out.empty() || bound.flag(0, true)) out += " ";
    out += escape_text(rt, key.text()) + "=\"";
    rt.append_str(out, escaped);
    out += "\"";
  }
  return rt.string(std::move(out));
}

Value filter_file_size(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("filesizeformat", arguments, {"binary"});
  Arguments none;
  const bool binary = bound.flag(0, false);
  double bytes = 0;
  if (value.is_string()) {
    const auto parsed = parse_float(value.text());
    if (!parsed) run_error("could not convert string to float: {}", python_quoted(value.text()));
    bytes = *parsed;
  } else if (value.is_number()) {
    bytes = value.as_double();
  } else {
    run_error("filesizeformat needs a number, got '{}'", type_name(value));
  }
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return rt.string("1 Byte");
  if (bytes < base) return rt.string(fmt::format("{} Bytes", static_cast<int64_t>(std::max(bytes, -9e18))));
  static constexpr const char* kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr const char* kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  size_t i = 0;
  double unit = base * base;
  while (bytes >= unit && i < 7) {
    unit *= base;
    ++i;
  }
  return rt.string(fmt::format("{:.1f} {}", base * bytes / unit, binary ? kBinary[i] : kDecimal[i]));
}

constexpr FilterEntry kValueFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", by_method<kCapitalize>},
    {"center", filter_center},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", filter_file_size},
    {"float", filter_float},
    {"forceescape", filter_force_escape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", by_method<kLower>},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", by_method<kUpper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_word_count},
    {"xmlattr", filter_xmlattr},
};

}  // namespace

std::span<const FilterEntry> value_filters() { return kValueFilters; }

FilterFunction find_filter(std::string_view name) {
  for (const auto table : {value_filters(), sequence_filters(), layout_filters()})
    for (const FilterEntry& entry : table)
      if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace millrace::text::jinja
