#include "server/fields.h"

#include <cmath>
#include <limits>

#include "core/utf8.h"
#include "server/errors.h"

namespace millrace::server {
namespace {

[[noreturn]] void wrong_type(const char* name, const char* expected, const nlohmann::json& found) {
  throw ApiError(400, fmt::format("'{}' must be {}, but is {}", name, expected, found.type_name()), name);
}

/// Depth of brackets outside strings: what is too deep is refused before anything recursive sees it.
int depth_of(const std::string& text) {
  int depth = 0, most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      most = std::max(most, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return most;
}

}  // namespace

nlohmann::json parse_body(const std::string& body, int max_depth) {
  const size_t invalid = utf8::find_invalid(body);
  if (invalid != std::string::npos)
    throw ApiError(400,
                   fmt::format("the request's body is not valid UTF-8: byte {} cannot stand there", invalid));
  const int depth = depth_of(body);
  if (depth > max_depth)
    throw ApiError(400, fmt::format("the request's JSON is nested {} levels deep, but at most {} are allowed",
                                    depth, max_depth));
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(body);
  } catch (const nlohmann::json::parse_error& e) {
    throw ApiError(400, fmt::format("the request's body is not valid JSON: byte {} is unexpected", e.byte));
  } catch (const nlohmann::json::exception&) {
    throw ApiError(400, "the request's body is not valid JSON: a number in it is out of range");
  }
  if (!value.is_object())
    throw ApiError(400,
                   fmt::format("the request's body must be a JSON object, but is {}", value.type_name()));
  return value;
}

const nlohmann::json* Fields::find(const char* name) {
  known_.insert(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

bool Fields::boolean(const char* name, bool fallback) {
  const nlohmann::json* v = find(name);
  if (v == nullptr) return fallback;
  if (!v->is_boolean()) wrong_type(name, "true or false", *v);
  return v->get<bool>();
}

std::optional<int64_t> Fields::big_integer(const char* name) {
  const nlohmann::json* v = find(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number_integer()) wrong_type(name, "an integer", *v);
  if (v->is_number_unsigned() &&
      v->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    throw ApiError(400, fmt::format("'{}' is {}, but must fit 64 bits", name, v->get<uint64_t>()), name);
  return v->get<int64_t>();
}

int32_t Fields::integer(const char* name, int32_t fallback) {
  const auto v = big_integer(name);
  if (!v) return fallback;
  if (*v < std::numeric_limits<int32_t>::min() || *v > std::numeric_limits<int32_t>::max())
    throw ApiError(400, fmt::format("'{}' is {}, but must fit 32 bits", name, *v), name);
  return static_cast<int32_t>(*v);
}

double Fields::real(const char* name, double fallback) {
  const nlohmann::json* v = find(name);
  if (v == nullptr) return fallback;
  if (!v->is_number()) wrong_type(name, "a number", *v);
  const auto value = v->get<double>();
  if (!std::isfinite(value)) throw ApiError(400, fmt::format("'{}' must be a finite number", name), name);
  return value;
}

float Fields::number(const char* name, float fallback) {
  const double v = real(name, static_cast<double>(fallback));
  if (std::abs(v) > 1e30)
    throw ApiError(400, fmt::format("'{}' is {}, which is out of every range", name, v), name);
  return static_cast<float>(v);
}

std::string Fields::text(const char* name, const std::string& fallback) {
  const nlohmann::json* v = find(name);
  if (v == nullptr) return fallback;
  if (!v->is_string()) wrong_type(name, "a string", *v);
  return v->get<std::string>();
}

void Fields::refuse_unknown() const {
  for (const auto& [name, value] : object_.items())
    if (!known_.contains(name))
      throw ApiError(400, fmt::format("Unrecognized request argument supplied: {}", name), name,
                     "unknown_parameter");
}

}  // namespace millrace::server
