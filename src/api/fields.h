// Strict reading of a request's JSON object: types and ranges checked, every error naming the parameter,
// unknown members refused. For .cc files (it brings nlohmann/json.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/request.h"

namespace millrace::api {

using Json = nlohmann::ordered_json;

template <typename... Args>
[[noreturn]] void bad_request(const std::string& param, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), param,
                 "invalid_value");
}

/// Parses a body: an object, nested at most 64 deep, valid UTF-8.
Json parse_body(std::string_view body);

/// Members of one object. null counts as absent.
class Fields {
 public:
  Fields(const Json& object, std::string path);

  /// The member, noted as read; null when absent.
  const Json* find(const char* name);
  bool has(const char* name) { return find(name) != nullptr; }
  std::string path(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

  std::optional<bool> boolean(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);
  std::optional<double> number(const char* name, double low, double high);
  std::optional<std::string> text(const char* name, size_t max_bytes = SIZE_MAX);
  const Json* object(const char* name);
  const Json* array(const char* name, size_t max_items = SIZE_MAX);
  /// One of the given words.
  std::optional<std::string> word(const char* name, std::initializer_list<const char*> words);

  /// Members of these names are accepted and have no effect.
  void ignore(std::initializer_list<const char*> names);
  /// Error for the first member that nothing has read.
  void finish() const;

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string> read_;
};

/// JSON's word for a value's type, as messages use it: "a string", "an array".
std::string json_kind(const Json& value);

// Shared by the APIs (chat_messages.cc).
/// OpenAI's messages as templates want them; errors name messages[i].
Json template_messages(const Json& messages, const SchemaLimits& limits);
/// OpenAI's tools into `request`.
void read_tools(const Json& tools, const SchemaLimits& limits, GenerationRequest& request);
void check_function_name(const std::string& name, const std::string& param);

}  // namespace millrace::api
