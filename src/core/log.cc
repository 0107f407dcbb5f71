#include "core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>

namespace millrace::log {
namespace {

std::atomic<bool> g_json{false};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("millrace", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->set_level(spdlog::level::warn);
    made->flush_on(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

const char* level_name(Level level) {
  constexpr const char* kNames[] = {"debug", "info", "warn", "error", "off"};
  return kNames[static_cast<int>(level)];
}

/// Appends `text` as a JSON string. Bytes that are not printable ASCII or UTF-8 lead bytes are escaped.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string timestamp() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ms % 1000);
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
void set_json(bool json) { g_json = json; }
bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

void write(Level level, std::string_view event, std::initializer_list<Field> fields) {
  if (!enabled(level)) return;
  std::string line;
  if (g_json) {
    line = fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",\"event\":", timestamp(), level_name(level));
    append_quoted(line, event);
    for (const Field& f : fields) {
      line += ',';
      append_quoted(line, f.key);
      line += ':';
      if (f.quoted)
        append_quoted(line, f.value);
      else
        line += f.value;
    }
    line += '}';
  } else {
    line = fmt::format("{} {} {}", timestamp(), level_name(level), event);
    for (const Field& f : fields) {
      line += fmt::format(" {}=", f.key);
      if (f.quoted && f.value.find_first_of(" \"\n\t=") != std::string::npos)
        append_quoted(line, f.value);
      else
        line += f.value;
    }
  }
  logger().log(to_spdlog(level), fmt::runtime("{}"), line);
}

}  // namespace millrace::log
