#include "text/template/chat_template.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/template/interpreter.h"
#include "text/template/lexer.h"
#include "text/template/parser.h"

namespace millrace::text {

using Json = nlohmann::ordered_json;
using jinja::Value;

struct ChatTemplate::Parsed {
  jinja::Template tree;
};

namespace {

/// Deepest nesting of a context that is read.
constexpr int kMaxContextDepth = 150;

Value to_value(jinja::Runtime& runtime, const Json& json, int depth) {
  if (depth > kMaxContextDepth)
    jinja::limit_error("the context is nested deeper than {} levels", kMaxContextDepth);
  runtime.charge(1);
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto n = json.get<uint64_t>();
      if (n > static_cast<uint64_t>(INT64_MAX))
        jinja::limit_error("the context has the integer {}, beyond 64 bits", n);
      return Value::integer(static_cast<int64_t>(n));
    }
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return runtime.string(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      jinja::Values items;
      for (const Json& item : json) items.push_back(to_value(runtime, item, depth + 1));
      return runtime.list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, item] : json.items())
        entries.emplace_back(runtime.string(key), to_value(runtime, item, depth + 1));
      return runtime.dict(entries);
    }
    default:
      return Value::none();
  }
}

/// Nesting of a JSON text, read before it is parsed: parsers and destructors recurse.
int nesting(std::string_view json) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

Json parse_context(std::string_view text) {
  require(nesting(text) <= kMaxContextDepth, ErrorCode::kLimitExceeded,
          "the template's context is nested deeper than {} levels", kMaxContextDepth);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kInvalidArgument, "the template's context is not valid JSON: {}", e.what());
  }
  require(json.is_object(), ErrorCode::kInvalidArgument,
          "the template's context must be a JSON object, found {}", json.type_name());
  return json;
}

std::tm to_tm(const std::optional<LocalTime>& now) {
  std::tm tm{};
  if (!now) {
    const std::time_t t = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    localtime_r(&t, &tm);
    return tm;
  }
  tm.tm_year = now->year - 1900;
  tm.tm_mon = now->month - 1;
  tm.tm_mday = now->day;
  tm.tm_hour = now->hour;
  tm.tm_min = now->minute;
  tm.tm_sec = now->second;
  timegm(&tm);  // fills the day of the week and of the year
  return tm;
}

}  // namespace

std::optional<LocalTime> LocalTime::parse(std::string_view text) {
  LocalTime t;
  size_t at = 0;
  const auto number = [&](size_t digits, int low, int high, int& out) {
    if (at + digits > text.size()) return false;
    out = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = text[at++];
      if (c < '0' || c > '9') return false;
      out = out * 10 + (c - '0');
    }
    return out >= low && out <= high;
  };
  const auto mark = [&](std::string_view marks) {
    return at < text.size() && marks.find(text[at++]) != std::string_view::npos;
  };
  if (!number(4, 1900, 9999, t.year) || !mark("-") || !number(2, 1, 12, t.month) || !mark("-") ||
      !number(2, 1, 31, t.day))
    return std::nullopt;
  if (at == text.size()) return t;
  if (!mark("T ") || !number(2, 0, 23, t.hour) || !mark(":") || !number(2, 0, 59, t.minute))
    return std::nullopt;
  if (at == text.size()) return t;
  if (!mark(":") || !number(2, 0, 59, t.second) || at != text.size()) return std::nullopt;
  return t;
}

ChatTemplate ChatTemplate::parse(std::string_view source) {
  ChatTemplate result;
  result.source_ = std::string(source);
  auto parsed = std::make_shared<Parsed>();
  parsed->tree = jinja::parse_template(source);
  result.parsed_ = std::move(parsed);
  return result;
}

RenderedChat ChatTemplate::render(std::string_view context_json, const RenderOptions& options) const {
  check(parsed_ != nullptr, "a chat template was rendered before it was parsed");
  Json context = parse_context(context_json);
  for (const auto& [name, value] : options.fallbacks)
    if (!context.contains(name)) context[name] = value;
  jinja::Budget budget;
  budget.fuel = options.limits.steps;
  budget.max_live_bytes = options.limits.memory_bytes;
  jinja::InterpreterSettings settings;
  settings.max_output_bytes = options.limits.output_bytes;
  settings.now = [&options] { return to_tm(options.now); };
  jinja::Interpreter interpreter(budget, std::move(settings));
  try {
    RenderedChat rendered;
    rendered.text = interpreter.render(parsed_->tree, to_value(interpreter, context, 0));
    rendered.generated = interpreter.generated();
    return rendered;
  } catch (const jinja::RunError& e) {
    fail(e.code(), "chat template, line {}: {}", interpreter.line(), e.what());
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::kOutOfMemory, "chat template, line {}: out of memory", interpreter.line());
  }
}

}  // namespace millrace::text
