// Grammars in Lark-like EBNF.
#include "grammar_front_end.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return millrace::fuzz::run_front_end(millrace::grammar::SourceKind::kLark, data, size);
}
