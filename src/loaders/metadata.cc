#include "loaders/metadata.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace millrace::loaders {
namespace {

const char* kind_name(const Value& value) {
  constexpr const char* kNames[] = {"a boolean",
                                    "an integer",
                                    "an integer",
                                    "a number",
                                    "a string",
                                    "an array of booleans",
                                    "an array of integers",
                                    "an array of integers",
                                    "an array of numbers",
                                    "an array of strings"};
  return kNames[value.index()];
}

[[noreturn]] void wrong_kind(const Metadata& m, std::string_view key, const Value& value,
                             const char* expected) {
  fail(ErrorCode::kInvalidFile, "{}: metadata key '{}' is {}: expected {}", m.origin(), key, kind_name(value),
       expected);
}

const Value& need(const Metadata& m, std::string_view key, const char* expected) {
  const Value* value = m.find(key);
  require(value, ErrorCode::kInvalidFile, "{}: metadata key '{}' is missing: expected {}", m.origin(), key,
          expected);
  return *value;
}

int64_t to_int(const Metadata& m, std::string_view key, const Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return *i;
  if (const auto* u = std::get_if<uint64_t>(&value)) {
    require(*u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), ErrorCode::kInvalidFile,
            "{}: metadata key '{}' is {}: expected an integer below 2^63", m.origin(), key, *u);
    return static_cast<int64_t>(*u);
  }
  // JSON writers may give 1e6 for a whole number.
  if (const auto* d = std::get_if<double>(&value); d && std::nearbyint(*d) == *d && std::fabs(*d) < 0x1p53)
    return static_cast<int64_t>(*d);
  wrong_kind(m, key, value, "an integer");
}

double to_float(const Metadata& m, std::string_view key, const Value& value) {
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
  wrong_kind(m, key, value, "a number");
}

}  // namespace

bool Metadata::has(std::string_view key) const { return entries_.find(key) != entries_.end(); }

void Metadata::set(const std::string& key, Value value) { entries_[key] = std::move(value); }

const Value* Metadata::find(std::string_view key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : &at->second;
}

int64_t Metadata::get_int(std::string_view key) const {
  return to_int(*this, key, need(*this, key, "an integer"));
}

double Metadata::get_float(std::string_view key) const {
  return to_float(*this, key, need(*this, key, "a number"));
}

const std::string& Metadata::get_string(std::string_view key) const {
  const Value& value = need(*this, key, "a string");
  const auto* text = std::get_if<std::string>(&value);
  if (!text) wrong_kind(*this, key, value, "a string");
  return *text;
}

std::optional<int64_t> Metadata::find_int(std::string_view key) const {
  const Value* value = find(key);
  return value ? std::optional(to_int(*this, key, *value)) : std::nullopt;
}

std::optional<double> Metadata::find_float(std::string_view key) const {
  const Value* value = find(key);
  return value ? std::optional(to_float(*this, key, *value)) : std::nullopt;
}

std::optional<bool> Metadata::find_bool(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  const auto* flag = std::get_if<bool>(value);
  if (!flag) wrong_kind(*this, key, *value, "true or false");
  return *flag;
}

const std::string* Metadata::find_string(std::string_view key) const {
  return has(key) ? &get_string(key) : nullptr;
}

const std::vector<std::string>* Metadata::find_strings(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return nullptr;
  const auto* list = std::get_if<std::vector<std::string>>(value);
  if (!list) wrong_kind(*this, key, *value, "an array of strings");
  return list;
}

std::optional<std::vector<int64_t>> Metadata::find_ints(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  if (const auto* list = std::get_if<std::vector<int64_t>>(value)) return *list;
  if (const auto* list = std::get_if<std::vector<bool>>(value))
    return std::vector<int64_t>(list->begin(), list->end());
  if (const auto* list = std::get_if<std::vector<uint64_t>>(value)) {
    std::vector<int64_t> out;
    out.reserve(list->size());
    for (const uint64_t u : *list) out.push_back(to_int(*this, key, u));
    return out;
  }
  wrong_kind(*this, key, *value, "an array of integers");
}

std::optional<std::vector<float>> Metadata::find_floats(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  const auto convert = [](const auto& list) {
    std::vector<float> out;
    out.reserve(list.size());
    for (const auto x : list) {
      const auto value = static_cast<double>(x);
      const bool fits = std::fabs(value) <= static_cast<double>(std::numeric_limits<float>::max());
      out.push_back(fits || std::isnan(value) ? static_cast<float>(value)
                                              : std::copysign(std::numeric_limits<float>::infinity(),
                                                              static_cast<float>(value > 0 ? 1 : -1)));
    }
    return out;
  };
  if (const auto* list = std::get_if<std::vector<double>>(value)) return convert(*list);
  if (const auto* list = std::get_if<std::vector<int64_t>>(value)) return convert(*list);
  if (const auto* list = std::get_if<std::vector<uint64_t>>(value)) return convert(*list);
  wrong_kind(*this, key, *value, "an array of numbers");
}

}  // namespace millrace::loaders
