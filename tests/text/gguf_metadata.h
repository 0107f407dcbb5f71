// The metadata of a GGUF file, read as plainly as can be: for tests of this folder, which knows no loaders.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/vocabulary_data.h"

namespace millrace::testing {

class GgufMetadata {
 public:
  explicit GgufMetadata(const std::string& bytes, std::string origin)
      : bytes_(bytes), origin_(std::move(origin)) {
    if (bytes_.substr(0, 4) != "GGUF") throw std::runtime_error("not a GGUF file");
    at_ = 4 + 4 + 8;
    const auto count = read<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key = read_string();
      read_value(values_[key], read<uint32_t>());
    }
  }

  const std::string& origin() const { return origin_; }
  const std::string* find_string(std::string_view key) const {
    const Value* value = find(key);
    return value != nullptr && !value->strings.empty() && !value->array ? value->strings.data() : nullptr;
  }
  const std::vector<std::string>* find_strings(std::string_view key) const {
    const Value* value = find(key);
    return value != nullptr && value->array ? &value->strings : nullptr;
  }
  std::optional<int64_t> find_int(std::string_view key) const {
    const Value* value = find(key);
    return value != nullptr && !value->numbers.empty() ? std::optional<int64_t>(value->numbers[0])
                                                       : std::nullopt;
  }
  std::optional<bool> find_bool(std::string_view key) const {
    const auto value = find_int(key);
    return value ? std::optional<bool>(*value != 0) : std::nullopt;
  }
  std::optional<std::vector<float>> find_floats(std::string_view key) const {
    const Value* value = find(key);
    if (value == nullptr || !value->array) return std::nullopt;
    return std::vector<float>(value->numbers.begin(), value->numbers.end());
  }
  std::optional<std::vector<int64_t>> find_ints(std::string_view key) const {
    const Value* value = find(key);
    if (value == nullptr || !value->array) return std::nullopt;
    return std::vector<int64_t>(value->numbers.begin(), value->numbers.end());
  }

 private:
  struct Value {
    bool array = false;
    std::vector<double> numbers;
    std::vector<std::string> strings;
  };

  const Value* find(std::string_view key) const {
    const auto it = values_.find(std::string(key));
    return it == values_.end() ? nullptr : &it->second;
  }
  template <typename T>
  T read() {
    T value;
    if (at_ + sizeof(T) > bytes_.size()) throw std::runtime_error("GGUF file ends early");
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string read_string() {
    const auto size = read<uint64_t>();
    std::string value = bytes_.substr(at_, size);
    at_ += size;
    return value;
  }
  void read_value(Value& value, uint32_t type) {
    switch (type) {
      case 0:
        value.numbers.push_back(read<uint8_t>());
        break;
      case 1:
        value.numbers.push_back(read<int8_t>());
        break;
      case 2:
        value.numbers.push_back(read<uint16_t>());
        break;
      case 3:
        value.numbers.push_back(read<int16_t>());
        break;
      case 4:
        value.numbers.push_back(read<uint32_t>());
        break;
      case 5:
        value.numbers.push_back(read<int32_t>());
        break;
      case 6:
        value.numbers.push_back(read<float>());
        break;
      case 7:
        value.numbers.push_back(read<uint8_t>());
        break;
      case 8:
        value.strings.push_back(read_string());
        break;
      case 9: {
        value.array = true;
        const auto element = read<uint32_t>();
        const auto count = read<uint64_t>();
        for (uint64_t i = 0; i < count; ++i) read_value(value, element);
        value.array = true;
        break;
      }
      case 10:
        value.numbers.push_back(static_cast<double>(read<uint64_t>()));
        break;
      case 11:
        value.numbers.push_back(static_cast<double>(read<int64_t>()));
        break;
      case 12:
        value.numbers.push_back(read<double>());
        break;
      default:
        throw std::runtime_error("GGUF value type");
    }
  }

  std::string bytes_;
  std::string origin_;
  size_t at_ = 0;
  std::map<std::string, Value> values_;
};

}  // namespace millrace::testing
