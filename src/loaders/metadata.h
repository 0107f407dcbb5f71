// Key-value metadata of a checkpoint, the same for GGUF (its own keys) and Hugging Face directories
// (config.json flattened: nested objects join their keys with '.', so "rope_scaling.factor"; null values are
// left out).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace::loaders {

using Value =
    std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                 std::vector<uint64_t>, std::vector<double>, std::vector<std::string>>;

class Metadata {
 public:
  /// `origin` names the file in errors.
  explicit Metadata(std::string origin = "") : origin_(std::move(origin)) {}

  const std::string& origin() const { return origin_; }
  bool has(std::string_view key) const;
  void set(const std::string& key, Value value);
  const Value* find(std::string_view key) const;
  const std::map<std::string, Value, std::less<>>& entries() const { return entries_; }

  /// Typed reads. Integers convert between signs when the value fits, and to double; a wrong type or range is
  /// Error(kInvalidFile) naming file, key, and what was expected. The first form needs the key to exist.
  int64_t get_int(std::string_view key) const;
  double get_float(std::string_view key) const;
  const std::string& get_string(std::string_view key) const;
  std::optional<int64_t> find_int(std::string_view key) const;
  std::optional<double> find_float(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  const std::string* find_string(std::string_view key) const;
  const std::vector<std::string>* find_strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> find_ints(std::string_view key) const;  ///< any integer or bool array
  std::optional<std::vector<float>> find_floats(std::string_view key) const;  ///< any numeric array

 private:
  std::string origin_;
  std::map<std::string, Value, std::less<>> entries_;
};

}  // namespace millrace::loaders
