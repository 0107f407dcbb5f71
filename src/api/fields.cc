#include "api/fields.h"

#include <cmath>

#include "core/utf8.h"

namespace millrace::api {

namespace {

constexpr int kMaxNesting = 64;

/// Objects keep their members in a list, so that reading one takes the number of its members times the bytes
/// of their names. So much is a third of a second, and about 15,000 members.
constexpr double kMostObjectWork = 5e9;

/// How deep a text nests, and the work of reading its objects, without reading it.
struct Shape {
  int deepest = 0;
  double object_work = 0;
};

Shape shape_of(std::string_view json) {
  struct Level {
    double members = 0, name_bytes = 0;
  };
  Shape shape;
  std::vector<Level> levels(1);
  size_t begin = 0, last_string = 0;  // where a string begins, and the length of the last one
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') {
        in_string = false;
        last_string = i - begin;
      }
    } else if (c == '"') {
      in_string = true;
      begin = i;
    } else if (c == '{' || c == '[') {
      // Deeper ones are refused anyway.
      if (levels.size() > static_cast<size_t>(kMaxNesting) + 1) return {kMaxNesting + 1, 0};
      levels.emplace_back();
      shape.deepest = std::max(shape.deepest, static_cast<int>(levels.size()) - 1);
    } else if (c == ':') {
      levels.back().members += 1;
      levels.back().name_bytes += static_cast<double>(last_string) + 16;
    } else if ((c == '}' || c == ']') && levels.size() > 1) {
      shape.object_work += levels.back().members * levels.back().name_bytes;
      levels.pop_back();
    }
  }
  // A text that ends too soon has been read until there.
  for (const Level& level : levels) shape.object_work += level.members * level.name_bytes;
  return shape;
}

}  // namespace

std::string json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "an array";
    default:
      return "an object";
  }
}

Json parse_body(std::string_view body) {
  const size_t invalid = utf8::find_invalid(body);
  if (invalid != std::string_view::npos)
    bad_request("", "the body is not valid UTF-8: byte {} cannot stand there", invalid);
  const Shape shape = shape_of(body);
  if (shape.deepest > kMaxNesting) bad_request("", "the body is nested deeper than {} levels", kMaxNesting);
  if (shape.object_work > kMostObjectWork) bad_request("", "an object of the body has too many members");
  Json json;
  try {
    json = Json::parse(body);
  } catch (const nlohmann::json::exception& e) {
    const std::string what = e.what();
    const size_t start = what.find("] ");
    bad_request("", "the body is not valid JSON: {}",
                (start == std::string::npos ? what : what.substr(start + 2)).substr(0, 200));
  }
  if (!json.is_object()) bad_request("", "the body must be a JSON object, found {}", json_kind(json));
  return json;
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object()) bad_request(path_, "'{}' must be an object, found {}", path_, json_kind(object));
}

const Json* Fields::find(const char* name) {
  read_.insert(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<bool> Fields::boolean(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean())
    bad_request(path(name), "'{}' must be true or false, found {}", path(name), json_kind(*value));
  return value->get<bool>();
}

std::optional<int64_t> Fields::integer(const char* name, int64_t low, int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer())
    bad_request(path(name), "'{}' must be an integer, found {}", path(name), json_kind(*value));
  const bool too_large =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (too_large || value->get<int64_t>() < low || value->get<int64_t>() > high)
    bad_request(path(name), "'{}' must be from {} to {}, found {}", path(name), low, high, value->dump());
  return value->get<int64_t>();
}

std::optional<double> Fields::number(const char* name, double low, double high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number())
    bad_request(path(name), "'{}' must be a number, found {}", path(name), json_kind(*value));
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < low || number > high)
    bad_request(path(name), "'{}' must be from {} to {}, found {}", path(name), low, high, value->dump());
  return number;
}

std::optional<std::string> Fields::text(const char* name, size_t max_bytes) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string())
    bad_request(path(name), "'{}' must be a string, found {}", path(name), json_kind(*value));
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes)
    bad_request(path(name), "'{}' has {} bytes, at most {} are allowed", path(name), text.size(), max_bytes);
  return text;
}

const Json* Fields::object(const char* name) {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object())
    bad_request(path(name), "'{}' must be an object, found {}", path(name), json_kind(*value));
  return value;
}

const Json* Fields::array(const char* name, size_t max_items) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array())
    bad_request(path(name), "'{}' must be an array, found {}", path(name), json_kind(*value));
  if (value->size() > max_items)
    bad_request(path(name), "'{}' has {} items, at most {} are allowed", path(name), value->size(),
                max_items);
  return value;
}

std::optional<std::string> Fields::word(const char* name, std::initializer_list<const char*> words) {
  auto value = text(name);
  if (!value) return value;
  std::string all;
  for (const char* word : words) {
    if (*value == word) return value;
    all += fmt::format("{}'{}'", all.empty() ? "" : ", ", word);
  }
  bad_request(path(name), "'{}' must be one of {}, found '{}'", path(name), all, value->substr(0, 100));
}

void Fields::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) read_.insert(name);
}

void Fields::finish() const {
  for (const auto& [name, value] : object_.items()) {
    if (read_.count(name) > 0) continue;
    const std::string full = path_.empty() ? name : path_ + "." + name;
    throw ApiError(ErrorCode::kInvalidArgument, fmt::format("Unknown parameter: '{}'.", full.substr(0, 200)),
                   full, "unknown_parameter");
  }
}

}  // namespace millrace::api
