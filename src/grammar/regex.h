// Regular expressions (the constructs that ECMA-262, Python and PCRE agree on) to grammar expressions.
#pragma once

#include <string_view>
#include <vector>

#include "grammar/ir.h"

namespace millrace::grammar {

struct RegexLookahead {
  ExprId expr = 0;
  bool negative = false;
};

struct ParsedRegex {
  ExprId expr = 0;
  /// Assertions at the very start of the text ("^(?=...)(?!...)"): the text must, or must not, begin with a
  /// match.
  std::vector<RegexLookahead> lookaheads;
};

enum class RegexDialect : uint8_t {
  kText,   ///< a whole grammar: '.' is anything but a line feed
  kSure,   ///< `pattern`: where ECMA-262 and Python differ, only what both match
  kMaybe,  ///< `pattern`: what either matches
};

/// Errors: kInvalidArgument for malformed expressions, kUnsupported for constructs outside the set (back
/// references, look-behind, ...), each with the offset.
ParsedRegex parse_regex(Grammar& grammar, std::string_view source, RegexDialect dialect, Budget& budget);

/// The set of texts that `pattern` matches somewhere in (as JSON Schema means it). `dialect`: kSure or
/// kMaybe.
Dfa schema_pattern(std::string_view pattern, RegexDialect dialect, Budget& budget);
/// Whether the two dialects can differ on this pattern.
bool dialects_differ(std::string_view pattern);
/// The set of texts that the expression matches as a whole.
Dfa whole_text(std::string_view regex, Budget& budget);

/// A grammar for the texts that an automaton over code points accepts.
Grammar dfa_grammar(const Dfa& dfa, Budget& budget);

/// A grammar whose texts are matched by the expression as a whole.
Grammar regex_grammar(std::string_view source, Budget& budget);

}  // namespace millrace::grammar
