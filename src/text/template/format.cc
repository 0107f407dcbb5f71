// Python's three ways of formatting: "..." % values, "...".format(...), datetime.strftime.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/utf8.h"
#include "text/template/runtime.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int kMaxPrecision = 500;

struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = '\0';
  int precision = -1;
  char type = '\0';
};

std::string pad(Runtime& runtime, const std::string& text, const Spec& spec, char default_align,
                size_t sign_length) {
  const int64_t missing = spec.width - code_points(text);
  if (missing <= 0) return text;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  runtime.reserve(text, static_cast<size_t>(missing) * spec.fill.size());
  std::string before, after;
  for (int64_t i = 0; i < left; ++i) before += spec.fill;
  for (int64_t i = left; i < missing; ++i) after += spec.fill;
  if (align == '=') return text.substr(0, sign_length) + before + text.substr(sign_length);
  return before + text + after;
}

std::string group_digits(const std::string& digits, char separator, size_t every) {
  if (separator == '\0') return digits;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

std::string digits_of(uint64_t value, int base) {
  char buffer[72];
  const auto [end, ec] = std::to_chars(buffer, buffer + sizeof buffer, value, base);
  (void)ec;
  return std::string(buffer, end);
}

/// Magnitude of a finite double in C's notation `type` (e, f, g, E, F, G).
std::string float_digits(double magnitude, char type, int precision, bool alternate) {
  const std::string pattern = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  char buffer[1024];
  const int n =
      std::snprintf(buffer, sizeof buffer, pattern.c_str(), std::min(precision, kMaxPrecision), magnitude);
  return std::string(buffer, static_cast<size_t>(std::clamp(n, 0, static_cast<int>(sizeof buffer) - 1)));
}

std::string sign_text(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' ? "+" : sign == ' ' ? " " : "";
}

std::string finish_number(Runtime& runtime, const std::string& sign, const std::string& body, Spec spec) {
  if (spec.zero && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  // Zeros between sign and digits keep the grouping.
  if (spec.grouping != '\0' && spec.fill == "0" && spec.align == '=') {
    const size_t point = std::min(body.find_first_not_of("0123456789,_"), body.size());
    std::string whole = body.substr(0, point);
    const std::string rest = body.substr(point);
    std::string plain;
    for (const char c : whole)
      if (c != spec.grouping) plain.push_back(c);
    while (static_cast<int64_t>(sign.size() + whole.size() + rest.size()) < spec.width) {
      plain.insert(plain.begin(), '0');
      whole = group_digits(plain, spec.grouping, 3);
    }
    return sign + whole + rest;
  }
  return pad(runtime, sign + body, spec, '>', sign.size());
}

std::string format_float(Runtime& runtime, double value, const Spec& spec) {
  const bool percent = spec.type == '%';
  const bool negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::abs(value) * (percent ? 100.0 : 1.0);
  const std::string sign = sign_text(negative, spec.sign);
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  std::string body;
  if (std::isnan(value) || std::isinf(value)) {
    body = std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  } else if (spec.type == '\0' && spec.precision < 0) {
    body = float_text(magnitude);
  } else if (spec.type == '\0') {
    // Like g, but with a digit after the point.
    body = float_digits(magnitude, 'g', std::max(spec.precision, 1), spec.alternate);
    if (body.find_first_of(".en") == std::string::npos) body += ".0";
  } else {
    const char type = percent ? 'f' : spec.type == 'n' ? 'g' : spec.type;
    int precision = spec.precision < 0 ? 6 : spec.precision;
    if ((type == 'g' || type == 'G') && precision == 0) precision = 1;
    body = float_digits(magnitude, type, precision, spec.alternate);
  }
  if (spec.grouping != '\0') {
    const size_t point = std::min(body.find_first_not_of("0123456789"), body.size());
    body = group_digits(body.substr(0, point), spec.grouping, 3) + body.substr(point);
  }
  if (percent) body += "%";
  return finish_number(runtime, sign, body, spec);
}

std::string format_integer(Runtime& runtime, int64_t value, const Spec& spec) {
  if (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos)
    return format_float(runtime, static_cast<double>(value), spec);
  if (spec.precision >= 0) run_error("Precision not allowed in integer format specifier");
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      run_error("%c arg not in range(0x110000)");
    std::string out;
    utf8::append(out, static_cast<uint32_t>(value));
    return pad(runtime, out, spec, '<', 0);
  }
  int base = 10;
  std::string prefix;
  if (spec.type == 'b') base = 2, prefix = "0b";
  if (spec.type == 'o') base = 8, prefix = "0o";
  if (spec.type == 'x') base = 16, prefix = "0x";
  if (spec.type == 'X') base = 16, prefix = "0X";
  std::string digits = digits_of(magnitude, base);
  if (spec.type == 'X') digits = to_upper(digits);
  if (spec.grouping == ',' && base != 10) run_error("Cannot specify ',' with '{}'.", spec.type);
  digits = group_digits(digits, spec.grouping, base == 10 ? 3 : 4);
  return finish_number(runtime, sign_text(value < 0, spec.sign) + (spec.alternate ? prefix : ""), digits,
                       spec);
}

std::string_view first_character(std::string_view text) {
  size_t at = 0;
  if (text.empty()) return text;
  utf8::next(text, at);
  return text.substr(0, at);
}

int64_t read_number(std::string_view text, size_t& at) {
  int64_t n = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    n = n * 10 + (text[at++] - '0');
    if (n > kMaxWidth) limit_error("a format asks for more than {} characters", kMaxWidth);
  }
  return n;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const std::string_view fill = first_character(text);
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!fill.empty() && fill.size() < text.size() && is_align(text[fill.size()])) {
    spec.fill = std::string(fill);
    spec.align = text[fill.size()];
    at = fill.size() + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    at = 1;
  }
  const auto here = [&] { return at < text.size() ? text[at] : '\0'; };
  if (here() == '+' || here() == '-' || here() == ' ') spec.sign = text[at++];
  if (here() == '#') spec.alternate = true, ++at;
  if (here() == '0') {
    ++at;
    if (spec.align == '\0') {
      spec.zero = true;
    } else if (spec.fill == " " && at == 2) {
      spec.fill = "0";
    }
  }
  spec.width = read_number(text, at);
  if (here() == ',' || here() == '_') spec.grouping = text[at++];
  if (here() == '.') {
    ++at;
    if (here() < '0' || here() > '9') run_error("Format specifier missing precision");
    spec.precision = static_cast<int>(read_number(text, at));
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) run_error("Invalid format specifier {}", python_quoted(text));
  return spec;
}

std::string apply_spec(Runtime& runtime, const Value& value, std::string_view text) {
  if (text.empty()) return runtime.str(value);
  const Spec spec = parse_spec(text);
  const auto unknown = [&]() {
    run_error("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  };
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') unknown();
    if (spec.align == '=') run_error("'=' alignment not allowed in string format specifier");
    if (spec.grouping != '\0') run_error("Cannot specify '{}' with 's'.", spec.grouping);
    std::string shown = value.text();
    if (spec.precision >= 0) shown.resize(byte_offset(shown, spec.precision));
    Spec padding = spec;
    if (spec.zero) padding.fill = "0", padding.align = '<';
    return pad(runtime, shown, padding, '<', 0);
  }
  if (value.is_integral()) {
    if (spec.type != '\0' && std::string_view("bcdoxXneEfFgG%").find(spec.type) == std::string_view::npos)
      unknown();
    return format_integer(runtime, value.as_int(), spec);
  }
  if (value.is(Kind::kFloat)) {
    if (spec.type != '\0' && std::string_view("neEfFgG%").find(spec.type) == std::string_view::npos)
      unknown();
    return format_float(runtime, value.as_double(), spec);
  }
  run_error("unsupported format string passed to {}.__format__", type_name(value));
}

/// repr() with everything beyond ASCII escaped.
std::string ascii(Runtime& runtime, const Value& value) {
  const std::string text = runtime.repr(value);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = utf8::next(text, at);
    if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\U{:08x}", c);
    }
  }
  return out;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 1) run_error("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
        out.push_back(c);
        at += 2;
      } else if (c == '}') {
        run_error("Single '}}' encountered in format string");
      } else if (c == '{') {
        const size_t end = field_end(format, at + 1);
        const std::string shown = field(format.substr(at + 1, end - at - 1), depth);
        runtime_.reserve(out, shown.size());
        out += shown;
        at = end + 1;
      } else {
        out.push_back(c);
        ++at;
      }
    }
    return out;
  }

 private:
  static size_t field_end(std::string_view format, size_t at) {
    int open = 1;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    run_error("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    runtime_.charge(1);
    size_t name_end = 0;
    bool bracket = false;
    for (; name_end < text.size(); ++name_end) {
      const char c = text[name_end];
      if (c == '[') bracket = true;
      if (c == ']') bracket = false;
      if (!bracket && (c == '!' || c == ':')) break;
    }
    Value value = lookup(text.substr(0, name_end));
    text.remove_prefix(name_end);
    if (!text.empty() && text[0] == '!') {
      if (text.size() < 2) run_error("end of string while looking for conversion specifier");
      const char conversion = text[1];
      if (conversion == 'r') {
        value = runtime_.string(runtime_.repr(value));
      } else if (conversion == 's') {
        value = runtime_.string(runtime_.str(value));
      } else if (conversion == 'a') {
        value = runtime_.string(ascii(runtime_, value));
      } else {
        run_error("Unknown conversion specifier '{}'", conversion);
      }
      text.remove_prefix(2);
      if (!text.empty() && text[0] != ':') run_error("expected ':' after conversion specifier");
    }
    if (!text.empty()) text.remove_prefix(1);
    return apply_spec(runtime_, value,
                      text.find('{') == std::string_view::npos ? std::string(text) : run(text, depth + 1));
  }

  Value lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, first_end));
    name.remove_prefix(first_end);
    while (!name.empty()) {
      if (name[0] == '.') {
        const size_t end = std::min(name.find_first_of(".[", 1), name.size());
        if (end == 1) run_error("Empty attribute in format string");
        value = runtime_.attribute(value, std::string(name.substr(1, end - 1)));
        name.remove_prefix(end);
      } else {
        const size_t end = name.find(']');
        if (end == std::string_view::npos) run_error("Missing ']' in format string");
        const std::string_view key = name.substr(1, end - 1);
        if (key.empty()) run_error("Empty attribute in format string");
        value = runtime_.subscript(
            value, is_number(key) ? Value::integer(number(key)) : runtime_.string(std::string(key)));
        name.remove_prefix(end + 1);
        if (!name.empty() && name[0] != '.' && name[0] != '[')
          run_error("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  static int64_t number(std::string_view text) {
    int64_t n = 0;
    std::from_chars(text.data(), text.data() + text.size(), n);
    return n;
  }

  Value first(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const bool automatic = name.empty();
      if (numbering_ != '\0' && numbering_ != (automatic ? 'a' : 'm'))
        run_error("cannot switch between manual field specification and automatic field numbering");
      numbering_ = automatic ? 'a' : 'm';
      const size_t index = automatic ? next_++ : static_cast<size_t>(number(name));
      if (index >= arguments_.positional.size())
        run_error("Replacement index {} out of range for positional args tuple", index);
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.keyword)
      if (key == name) return value;
    run_error("format() misses the argument {}", python_quoted(name));
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  size_t next_ = 0;
  char numbering_ = '\0';
};

/// The values on the right of "%", taken one by one.
class PercentValues {
 public:
  explicit PercentValues(const Value& right) : right_(right) {}

  const Value& next() {
    if (right_.is(Kind::kTuple)) {
      if (taken_ >= right_.items().size()) run_error("not enough arguments for format string");
      return right_.items()[taken_++];
    }
    if (taken_++ > 0) run_error("not enough arguments for format string");
    return right_;
  }
  const Value& named(std::string_view key) {
    if (!right_.is(Kind::kDict)) run_error("format requires a mapping");
    const Value* found = right_.dict().find(key);
    if (found == nullptr) run_error("the format's mapping has no key {}", python_quoted(key));
    taken_ = 1;
    return *found;
  }
  void finish() const {
    // Whatever has keys may be left unread: for Python these have.
    if (right_.is(Kind::kDict) || right_.is(Kind::kList) || right_.is_undefined()) return;
    if (right_.is(Kind::kTuple) ? taken_ < right_.items().size() : taken_ == 0)
      run_error("not all arguments converted during string formatting");
  }

 private:
  const Value& right_;
  size_t taken_ = 0;
};

std::string percent_number(Runtime& runtime, const Value& value, Spec spec) {
  if (value.is_undefined()) undefined_error(value);
  if (!value.is_number()) {
    run_error("%{} format: a {} is required, not {}", spec.type,
              spec.type == 'd' || spec.type == 'i' || spec.type == 'u' ? "real number" : "number",
              type_name(value));
  }
  const bool integer_type = std::string_view("diuoxX").find(spec.type) != std::string_view::npos;
  if (!integer_type) return format_float(runtime, value.as_double(), spec);
  if (value.is(Kind::kFloat) && (spec.type == 'o' || spec.type == 'x' || spec.type == 'X'))
    run_error("%{} format: an integer is required, not float", spec.type);
  const double d = value.as_double();
  if (value.is(Kind::kFloat) && !(std::abs(d) < 9.2e18)) limit_error("an integer goes beyond 64 bits");
  const int64_t n = value.is(Kind::kFloat) ? static_cast<int64_t>(d) : value.as_int();
  const int precision = std::exchange(spec.precision, -1);
  if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
  if (precision < 0) return format_integer(runtime, n, spec);
  Spec plain;
  plain.type = spec.type;
  const uint64_t magnitude = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  std::string digits = digits_of(magnitude, spec.type == 'o' ? 8 : spec.type == 'd' ? 10 : 16);
  if (spec.type == 'X') digits = to_upper(digits);
  if (static_cast<int>(digits.size()) < precision) {
    runtime.check_room(static_cast<size_t>(precision));
    digits.insert(0, static_cast<size_t>(precision) - digits.size(), '0');
  }
  return finish_number(runtime, sign_text(n < 0, spec.sign), digits, spec);
}

std::string percent_field(Runtime& runtime, const Value& value, Spec spec) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      std::string text = spec.type == 's'   ? runtime.str(value)
                         : spec.type == 'r' ? runtime.repr(value)
                                            : ascii(runtime, value);
      if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
      spec.zero = false;
      return pad(runtime, text, spec, '>', 0);
    }
    case 'c': {
      std::string text;
      if (value.is_string() && code_points(value.text()) == 1) {
        text = value.text();
      } else if (value.is_integral() && value.as_int() >= 0 && value.as_int() < 0xd800) {
        utf8::append(text, static_cast<uint32_t>(value.as_int()));
      } else {
        run_error("%c requires int or char");
      }
      return pad(runtime, text, spec, '>', 0);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return percent_number(runtime, value, spec);
    default:
      run_error("unsupported format character '{}'", spec.type);
  }
}

/// Reads flags, width and precision of a "%" field; `at` is behind the "%" (and its key).
Spec percent_spec(std::string_view format, size_t& at, PercentValues& values) {
  Spec spec;
  const auto here = [&] { return at < format.size() ? format[at] : '\0'; };
  for (; std::string_view("-+ #0").find(here()) != std::string_view::npos && here() != '\0'; ++at) {
    if (here() == '-') spec.align = '<';
    if (here() == '+') spec.sign = '+';
    if (here() == ' ' && spec.sign != '+') spec.sign = ' ';
    if (here() == '#') spec.alternate = true;
    if (here() == '0') spec.zero = true;
  }
  const auto star = [&]() -> int64_t {
    ++at;
    const Value& value = values.next();
    if (!value.is_integral()) run_error("* wants int");
    if (std::abs(value.as_int()) > kMaxWidth)
      limit_error("a format asks for more than {} characters", kMaxWidth);
    return value.as_int();
  };
  spec.width = here() == '*' ? star() : read_number(format, at);
  if (spec.width < 0) {
    spec.width = -spec.width;
    spec.align = '<';
  }
  if (here() == '.') {
    ++at;
    spec.precision = static_cast<int>(here() == '*' ? std::max<int64_t>(star(), 0) : read_number(format, at));
  }
  while (here() == 'h' || here() == 'l' || here() == 'L') ++at;
  if (at >= format.size()) run_error("incomplete format");
  spec.type = format[at++];
  return spec;
}

}  // namespace

Value percent_format(Runtime& runtime, const Value& left, const Value& right) {
  const std::string& format = left.text();
  PercentValues values(right);
  std::string out;
  for (size_t at = 0; at < format.size();) {
    const size_t percent = format.find('%', at);
    runtime.charge(1);
    out += format.substr(at, percent - at);
    if (percent == std::string::npos) break;
    at = percent + 1;
    const Value* named = nullptr;
    if (at < format.size() && format[at] == '(') {
      size_t end = at;
      int open = 0;
      for (; end < format.size(); ++end) {
        if (format[end] == '(') ++open;
        if (format[end] == ')' && --open == 0) break;
      }
      if (end >= format.size()) run_error("incomplete format key");
      named = &values.named(std::string_view(format).substr(at + 1, end - at - 1));
      at = end + 1;
    }
    const Spec spec = percent_spec(format, at, values);
    if (spec.type == '%') {
      out += "%";
      continue;
    }
    const std::string shown = percent_field(runtime, named != nullptr ? *named : values.next(), spec);
    runtime.reserve(out, shown.size());
    out += shown;
  }
  values.finish();
  return runtime.string(std::move(out), left.as<StringObject>().markup);
}

std::string brace_format(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  runtime.charge(1 + format.size() / 64);
  return BraceFormatter(runtime, arguments).run(format, 0);
}

std::string format_time(const std::tm& time, const std::string& format) {
  if (format.empty()) return "";
  if (format.size() > 4096) limit_error("a date format has more than 4096 bytes");
  // Microseconds are Python's own; the clock here has whole seconds.
  std::string pattern;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] == '%' && i + 1 < format.size()) {
      const char c = format[++i];
      if (c == 'f') {
        pattern += "000000";
      } else if (c == 'z' || c == 'Z') {
        continue;  // a date without a time zone prints nothing
      } else {
        pattern += '%';
        pattern += c;
      }
    } else {
      pattern += format[i] == '\0' ? ' ' : format[i];
    }
  }
  // A leading byte tells an empty result from a buffer that is too small.
  pattern.insert(pattern.begin(), 'x');
  std::string out(pattern.size() * 8 + 256, '\0');
  const size_t n = std::strftime(out.data(), out.size(), pattern.c_str(), &time);
  if (n == 0) run_error("the date format {} cannot be used", python_quoted(format));
  return out.substr(1, n - 1);
}

}  // namespace millrace::text::jinja
