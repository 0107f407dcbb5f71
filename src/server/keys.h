// API keys: known only by their SHA-256, compared in constant time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace::server {

class ApiKeys {
 public:
  ApiKeys() = default;
  /// Errors: kNotFound, kInvalidFile for a file without keys.
  explicit ApiKeys(const std::string& file);

  bool required() const { return !digests_.empty(); }
  /// The tenant that an Authorization header (or a bare key) belongs to; none: refused. Takes the same time
  /// whichever key it is, if any.
  std::optional<std::string> tenant_of(const std::string& authorization) const;

 private:
  std::vector<std::array<uint8_t, 32>> digests_;
};

}  // namespace millrace::server
