// One grammar inside another: GBNF whose open rules are JSON schemas (a tool call around its arguments).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/json_schema.h"

namespace millrace::grammar {

/// Adds the rules of `part` to `into`; returns what its root has become.
RuleId append_grammar(Grammar& into, Grammar part);

/// GBNF that uses, without defining them, the rules named in `schemas` (rule name, JSON schema). An empty
/// schema is any JSON value. Errors: those of both front ends, with the rule's name where a schema is
/// refused.
Grammar gbnf_with_schemas(std::string_view gbnf,
                          const std::vector<std::pair<std::string, std::string>>& schemas,
                          const JsonOptions& options, Budget& budget);

}  // namespace millrace::grammar
