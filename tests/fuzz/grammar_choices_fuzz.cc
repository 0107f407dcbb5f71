// Lists of choices, and names of ready grammars (a text that begins with '@').
#include "grammar_front_end.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::grammar::SourceKind;
  if (size > 0 && data[0] == '@')
    return millrace::fuzz::run_front_end(SourceKind::kReady, data + 1, size - 1);
  return millrace::fuzz::run_front_end(SourceKind::kChoices, data, size);
}
