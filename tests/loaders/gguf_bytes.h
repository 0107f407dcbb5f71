// Builds GGUF bytes field by field, wrong ones included, which the project's own writer refuses to make.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace millrace::testing {

class GgufBytes {
 public:
  explicit GgufBytes(uint32_t version = 3, uint64_t tensors = 0, uint64_t keys = 0) {
    bytes_ = "GGUF";
    put(version).put(tensors).put(keys);
  }

  template <typename T>
  GgufBytes& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view s) {
    put<uint64_t>(s.size());
    bytes_.append(s);
    return *this;
  }
  /// A key and its type; the value follows by put().
  GgufBytes& key(std::string_view name, uint32_t type) { return text(name).put(type); }
  /// A key that holds an array; the elements follow by put().
  GgufBytes& array(std::string_view name, uint32_t element_type, uint64_t count) {
    return key(name, 9).put(element_type).put(count);
  }
  GgufBytes& tensor(std::string_view name, std::initializer_list<uint64_t> innermost_first, uint32_t type,
                    uint64_t offset) {
    text(name).put(static_cast<uint32_t>(innermost_first.size()));
    for (const uint64_t size : innermost_first) put(size);
    return put(type).put(offset);
  }
  GgufBytes& pad(size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }
  GgufBytes& zeros(size_t count) {
    bytes_.append(count, '\0');
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace millrace::testing
