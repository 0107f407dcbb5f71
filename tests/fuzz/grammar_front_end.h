// One front end on any text: an Error that says why, or a program whose masks agree with what it takes. A
// zero byte separates the grammar from a text that is then matched with masks along the way.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "grammar/compiler.h"

namespace millrace::fuzz {

inline int run_front_end(grammar::SourceKind kind, const uint8_t* data, size_t size) {
  using namespace grammar;
  if (size > 4096) return 0;
  static const auto trie = std::make_shared<const TokenTrie>(byte_vocabulary());
  const std::string all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  Source source;
  source.kind = kind;
  source.text = all.substr(0, zero);
  const std::string text = zero == std::string::npos ? "" : all.substr(zero + 1);
  CompileOptions options;
  options.limits.seconds = 2;
  try {
    Matcher m(compile(source, trie, options));
    std::vector<uint64_t> mask(m.mask_words());
    for (char c : text) {
      m.fill_mask(mask);
      const auto b = static_cast<uint8_t>(c);
      const bool allowed = (mask[b >> 6] >> (b & 63)) & 1;
      if (m.accept(b) != allowed) __builtin_trap();
      if (!allowed) break;
    }
    // What is forced is the only way.
    const std::string forced = m.forced_bytes(16);
    for (char c : forced) {
      m.fill_mask(mask);
      int ways = 0;
      for (size_t t = 0; t < 257; ++t) ways += static_cast<int>((mask[t >> 6] >> (t & 63)) & 1);
      if (ways != 1 || !m.accept(static_cast<uint8_t>(c))) __builtin_trap();
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInternal) __builtin_trap();
  }
  return 0;
}

}  // namespace millrace::fuzz
