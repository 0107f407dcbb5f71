// Grammars that come ready: as GBNF text, by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::grammar {

/// Error(kNotFound) lists the names.
std::string ready_grammar(std::string_view name);
std::vector<std::string> ready_grammar_names();

}  // namespace millrace::grammar
