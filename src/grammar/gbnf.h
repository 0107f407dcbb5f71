// Grammars written as text: GBNF (as llama.cpp takes it) and a Lark-like form.
#pragma once

#include <string_view>

#include "grammar/ir.h"

namespace millrace::grammar {

/// GBNF: `name ::= ...`, literals "..." with \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH, classes [a-z] and
/// [^...],
/// `.`, groups, alternatives, ? * + {m} {m,} {m,n}, comments with #. The root rule is `root`.
Grammar gbnf_grammar(std::string_view source, Budget& budget);

/// Lark-like: `name: a b | c` with lower-case rules and upper-case terminals, strings "..." (with i suffix),
/// regular expressions /.../ (flags i), ranges "a".."z", groups, [optional], ? * + ~n ~n..m, %ignore
/// TERMINAL, %import is refused, comments with // and #. The start rule is `start`.
Grammar lark_grammar(std::string_view source, Budget& budget);

}  // namespace millrace::grammar
