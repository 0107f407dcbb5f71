// Reading the members of a JSON request one by one, each with its type and range, so that in the end those
// nobody asked for can be named.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

namespace millrace::server {

/// Parses a request's body: an object, valid UTF-8, no deeper than `max_depth`. ApiError(400) says what is
/// wrong.
nlohmann::json parse_body(const std::string& body, int max_depth = 64);

class Fields {
 public:
  explicit Fields(const nlohmann::json& object) : object_(object) {}

  /// The member, or null when it is missing or null. Asking marks it as known.
  const nlohmann::json* find(const char* name);
  bool has(const char* name) { return find(name) != nullptr; }
  /// Known, and without meaning here.
  void ignore(std::initializer_list<const char*> names);

  bool boolean(const char* name, bool fallback);
  int32_t integer(const char* name, int32_t fallback);
  std::optional<int64_t> big_integer(const char* name);
  float number(const char* name, float fallback);
  double real(const char* name, double fallback);
  std::string text(const char* name, const std::string& fallback = "");

  /// ApiError(400) naming the first member that was never asked for.
  void refuse_unknown() const;

 private:
  const nlohmann::json& object_;
  std::set<std::string> known_;
};

}  // namespace millrace::server
