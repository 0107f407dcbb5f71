// Builds safetensors bytes from a header text and data, right or wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace millrace::testing {

inline std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace millrace::testing
