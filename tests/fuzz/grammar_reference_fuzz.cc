// GBNF grammars against the slow reference matcher.
#include <cstdint>
#include <string>

#include "../grammar/reference.h"
#include "core/error.h"
#include "grammar/compiler.h"
#include "grammar/gbnf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::grammar;
  if (size < 2 || size > 300) return 0;
  static const auto trie = std::make_shared<const TokenTrie>(byte_vocabulary());
  const std::string all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  if (zero == std::string::npos || size - zero > 14) return 0;
  if (all.find('{') < zero) return 0;  // the reference counts one by one
  try {
    Limits limits;
    limits.depth = 12;
    Budget budget(limits);
    const Grammar g = gbnf_grammar(all.substr(0, zero), budget);
    if (g.rules.size() > 6 || g.exprs.size() > 40) return 0;
    const auto compiled = std::make_shared<const CompiledGrammar>(lower(g, budget), trie);
    const std::string text = all.substr(zero + 1);
    if (match_text(compiled, text).accepted != reference::Reference(g, text).matches()) __builtin_trap();
  } catch (const millrace::Error& e) {
    if (e.code() == millrace::ErrorCode::kInternal) __builtin_trap();
  }
  return 0;
}
