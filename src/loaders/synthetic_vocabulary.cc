#include "core/error.h"
#include "core/utf8.h"
#include "loaders/synthetic.h"

namespace millrace::loaders {
namespace {

constexpr int32_t kNormal = 1, kControl = 3;
constexpr int kLetters = 26;

/// The printable character that byte-level BPE (GPT-2) writes for a byte.
std::string byte_character(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  uint32_t code = static_cast<uint32_t>(byte);
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  std::string text;
  utf8::append(text, code);
  return text;
}

std::string letter(int i) { return std::string(1, static_cast<char>('a' + i)); }

}  // namespace

SyntheticVocabulary make_synthetic_vocabulary(int32_t size) {
  constexpr int32_t kControlTokens = 4, kLeast = 256 + kControlTokens;
  constexpr int64_t kMost = 256 + kControlTokens + kLetters * (1 + 2 * kLetters) + int64_t{676} * 676;
  require(size >= kLeast && size <= kMost, ErrorCode::kInvalidArgument,
          "a vocabulary of {} tokens: expected {} to {}", size, kLeast, kMost);
  SyntheticVocabulary v;
  const size_t normal = static_cast<size_t>(size - kControlTokens);
  v.tokens.reserve(static_cast<size_t>(size));
  for (int byte = 0; byte < 256; ++byte) v.tokens.push_back(byte_character(byte));
  const auto merge = [&](const std::string& left, const std::string& right) {
    if (v.tokens.size() >= normal) return;
    v.merges.push_back(left + " " + right);
    v.tokens.push_back(left + right);
  };
  const std::string space = byte_character(' ');
  std::vector<std::string> pairs;
  for (int a = 0; a < kLetters; ++a)
    for (int b = 0; b < kLetters; ++b) pairs.push_back(letter(a) + letter(b));
  for (const std::string& pair : pairs) merge(pair.substr(0, 1), pair.substr(1));
  for (int a = 0; a < kLetters; ++a) merge(space, letter(a));
  for (const std::string& pair : pairs) merge(space, pair);
  // Quadruples in an order that takes from the whole alphabet from the start: a step prime to their number.
  constexpr int64_t kQuadruples = 676 * 676, kStep = 104729;
  for (int64_t i = 0, q = 0; i < kQuadruples && v.tokens.size() < normal; ++i, q = (q + kStep) % kQuadruples)
    merge(pairs[static_cast<size_t>(q / 676)], pairs[static_cast<size_t>(q % 676)]);
  v.types.assign(v.tokens.size(), kNormal);
  const auto control = [&](const char* text) {
    v.tokens.emplace_back(text);
    v.types.push_back(kControl);
    return static_cast<uint32_t>(v.tokens.size() - 1);
  };
  v.bos = control("<|begin_of_text|>");
  v.eos = control("<|endoftext|>");
  v.turn_begin = control("<|im_start|>");
  v.turn_end = control("<|im_end|>");
  return v;
}

}  // namespace millrace::loaders
