// A value of a JSON file with its place, so that every error names file and key. Include in .cc files only.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace millrace::text {

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const nlohmann::json& json() const { return *value_; }
  const std::string& file() const { return file_; }
  /// "tokenizer.json: model.vocab", for messages.
  std::string place() const { return file_ + ": " + (path_.empty() ? "the file" : path_); }

  /// Error(kInvalidFile): "<place> <what>".
  [[noreturn]] void bad(const std::string& what) const {
    fail(ErrorCode::kInvalidFile, "{} {}", place(), what);
  }

  bool is_object() const { return value_->is_object(); }
  bool is_array() const { return value_->is_array(); }
  bool is_string() const { return value_->is_string(); }

  /// A member that must exist.
  JsonNode at(const char* key) const {
    if (const std::optional<JsonNode> found = find(key)) return *found;
    bad(std::string("has no key \"") + key + "\"");
  }
  /// A member that is there and not null.
  std::optional<JsonNode> find(const char* key) const {
    if (!value_->is_object()) bad("is not an object");
    const auto it = value_->find(key);
    if (it == value_->end() || it->is_null()) return std::nullopt;
    return JsonNode(*it, file_, path_.empty() ? key : path_ + "." + key);
  }

  size_t size() const { return value_->size(); }
  JsonNode operator[](size_t index) const {
    return JsonNode((*value_)[index], file_, path_ + "[" + std::to_string(index) + "]");
  }
  std::vector<JsonNode> items() const {
    if (!value_->is_array()) bad("is not an array");
    std::vector<JsonNode> out;
    for (size_t i = 0; i < value_->size(); ++i) out.push_back((*this)[i]);
    return out;
  }

  const std::string& string() const {
    if (!value_->is_string()) bad("is not a string");
    return value_->get_ref<const std::string&>();
  }
  double number() const {
    if (!value_->is_number()) bad("is not a number");
    return value_->get<double>();
  }
  /// An integer within [0, 2^31).
  int32_t id() const {
    if (!value_->is_number_integer() ||
        (value_->is_number_integer() && !value_->is_number_unsigned() && value_->get<int64_t>() < 0))
      bad("is not an id (an integer from 0)");
    const uint64_t wide = value_->get<uint64_t>();
    if (wide >= (uint64_t{1} << 31)) bad("is beyond 2^31 - 1");
    return static_cast<int32_t>(wide);
  }
  bool boolean() const {
    if (!value_->is_boolean()) bad("is neither true nor false");
    return value_->get<bool>();
  }

  bool flag(const char* key, bool fallback) const {
    const std::optional<JsonNode> found = find(key);
    return found ? found->boolean() : fallback;
  }
  std::string text(const char* key, const std::string& fallback = "") const {
    const std::optional<JsonNode> found = find(key);
    return found ? found->string() : fallback;
  }

 private:
  const nlohmann::json* value_;
  std::string file_, path_;
};

/// Components nest (a Sequence of Sequences); nothing published nests deeper than three.
inline constexpr int kMaxNesting = 16;

}  // namespace millrace::text
