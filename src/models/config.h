// A model's configuration, read the same way from GGUF metadata and from config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/checkpoint.h"

namespace millrace::models {

/// One setting's name in both worlds. `gguf` is written without the architecture prefix ("block_count"); a
/// leading '/' marks a name that has none ("/general.name"). Either may be null where the setting does not
/// exist.
struct Key {
  const char* gguf;
  const char* hf;
};

class Config {
 public:
  explicit Config(const loaders::Checkpoint& checkpoint);

  bool gguf() const { return gguf_; }
  const std::string& architecture() const { return architecture_; }
  const std::string& origin() const { return metadata_.origin(); }
  const loaders::Metadata& metadata() const { return metadata_; }

  /// What config.json leaves to the modelling code's own default: `key` counts as `value` where it is
  /// missing.
  void assume(const char* hf_key, loaders::Value value);

  /// Needed values: Error(kInvalidFile) naming file and key when missing, of the wrong type or not in [low,
  /// high].
  int32_t integer(Key key, int64_t low = 1, int64_t high = 1 << 30) const;
  float number(Key key) const;

  std::optional<int32_t> find_integer(Key key, int64_t low = 0, int64_t high = 1 << 30) const;
  std::optional<float> find_number(Key key) const;
  bool flag(Key key, bool fallback) const;
  std::string text(Key key, const std::string& fallback = "") const;
  std::vector<int64_t> integers(Key key) const;  ///< empty when missing; one value for a scalar
  std::vector<float> numbers(Key key) const;
  std::vector<std::string> texts(Key key) const;
  bool has(Key key) const;

  /// Error(kInvalidFile) about a setting: "<file>: <key> <sentence>".
  [[noreturn]] void refuse(Key key, const std::string& sentence) const;
  std::string name_of(Key key) const;

 private:
  std::string resolve(Key key) const;  ///< full name of the key, "" when it has none here
  /// Where the value under a full name is: the file's, or the assumed ones.
  const loaders::Metadata& holder(const std::string& name) const;

  const loaders::Metadata& metadata_;
  loaders::Metadata assumed_;
  bool gguf_;
  std::string architecture_;
};

}  // namespace millrace::models
