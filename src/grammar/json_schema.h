// JSON Schema (draft 2020-12 and 7; 4, 6 and 2019-09 as far as they agree) to a grammar. What each keyword
// means here, and what is refused: docs/grammar.md.
#pragma once

#include <string_view>

#include "grammar/ir.h"

namespace millrace::grammar {

struct JsonOptions {
  Whitespace whitespace = Whitespace::kFlexible;
  bool around = true;  ///< kFlexible: white space before and after the whole value, too
};

/// Errors: kInvalidArgument (malformed or unsatisfiable schema), kUnsupported (a keyword that cannot be
/// enforced, named with its JSON pointer), kLimitExceeded.
Grammar json_schema_grammar(std::string_view schema, const JsonOptions& options, Budget& budget);

/// Any JSON value, or (objects_only) any JSON object.
enum class AnyJson : uint8_t { kValue, kObject };
Grammar json_grammar(AnyJson what, const JsonOptions& options, Budget& budget);

}  // namespace millrace::grammar
