#include "grammar/value_hash.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millrace::grammar {
namespace {

uint64_t hash_text(std::string_view text, uint64_t h) {
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ULL;
  return mix_hash(h, text.size());
}

// Builds the hash from parser events with a stack of its own: a value's depth must not cost C stack.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return value(0x11); }
  bool boolean(bool v) override { return value(v ? 0x22 : 0x33); }
  bool number_integer(int64_t v) override { return value(mix_hash(0x44, static_cast<uint64_t>(v))); }
  bool number_unsigned(uint64_t v) override { return value(mix_hash(0x44, v)); }
  bool number_float(double v, const std::string& text) override {
    if (std::floor(v) == v && std::fabs(v) < 9.2e18) return number_integer(static_cast<int64_t>(v));
    if (text.find_first_of(".eE") == std::string::npos)
      return value(hash_text(text, 0x55));  // an integer beyond 64 bits
    return value(mix_hash(0x66, std::bit_cast<uint64_t>(v)));
  }
  bool string(std::string& v) override { return value(hash_text(v, 0x77)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(0x88, true); }
  bool key(std::string& v) override {
    stack_.back().key = hash_text(v, 0x99);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(0xaa, false); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
  uint64_t result = 0;

 private:
  struct Level {
    uint64_t hash, key;
    bool object;
  };
  bool open(uint64_t seed, bool object) {
    stack_.push_back({seed, 0, object});
    return true;
  }
  bool close() {
    const uint64_t h = mix_hash(stack_.back().hash, 0xbb);
    stack_.pop_back();
    return value(h);
  }
  bool value(uint64_t h) {
    if (stack_.empty()) {
      result = h;
    } else if (stack_.back().object) {
      stack_.back().hash += mix_hash(stack_.back().key, h);  // in any order
    } else {
      stack_.back().hash = mix_hash(stack_.back().hash, h);
    }
    return true;
  }
  std::vector<Level> stack_;
};

}  // namespace

uint64_t json_value_hash(std::string_view text) {
  Handler handler;
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler, nlohmann::json::input_format_t::json, true);
  return handler.result;
}

}  // namespace millrace::grammar
