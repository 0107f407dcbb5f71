// Grammars whose time is not what is tested: under a sanitizer, on a busy machine, they take many times as
// long.
#pragma once

#include "api/grammar_service.h"

namespace millrace::api {

inline GrammarService::Options patient() {
  GrammarService::Options options;
  options.compiler.limits.seconds = 100;
  options.wait_seconds = 300;
  return options;
}

}  // namespace millrace::api
