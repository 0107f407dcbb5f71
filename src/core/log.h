// Structured log to standard error: an event name and key-value pairs, as text or JSON lines.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace millrace::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

/// One key and its value, already as text; numbers are written without quotes in JSON.
struct Field {
  std::string_view key;
  std::string value;
  bool quoted = true;

  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  Field(std::string_view k, bool v) : key(k), value(v ? "true" : "false"), quoted(false) {}
  template <typename T>
  requires std::is_arithmetic_v<T> Field(std::string_view k, T v)
      : key(k), value(fmt::format("{}", v)), quoted(false) {}
};

void set_level(Level level);
/// JSON lines instead of text.
void set_json(bool json);
bool enabled(Level level);

void write(Level level, std::string_view event, std::initializer_list<Field> fields = {});

inline void debug(std::string_view e, std::initializer_list<Field> f = {}) { write(Level::kDebug, e, f); }
inline void info(std::string_view e, std::initializer_list<Field> f = {}) { write(Level::kInfo, e, f); }
inline void warn(std::string_view e, std::initializer_list<Field> f = {}) { write(Level::kWarn, e, f); }
inline void error(std::string_view e, std::initializer_list<Field> f = {}) { write(Level::kError, e, f); }

}  // namespace millrace::log
