#include "grammar/ready.h"

#include "core/error.h"

namespace millrace::grammar {
namespace {

// Sums, products, powers and signs over decimal numbers, with parentheses.
constexpr const char* kArithmetic = R"GBNF(
root    ::= space sum
sum     ::= product ( ("+" | "-") space product )*
product ::= power ( ("*" | "/" | "%") space power )*
power   ::= unary ( "^" space unary )*
unary   ::= ( "-" space )? atom
atom    ::= number space | "(" space sum ")" space
number  ::= ( "0" | [1-9] [0-9]* ) ( "." [0-9]+ )?
space   ::= " "?
)GBNF";

constexpr const char* kDate = R"GBNF(
root      ::= leap | common
common    ::= year "-" ( month31 "-" ( "0" [1-9] | [12] [0-9] | "3" [01] ) | month30 "-" ( "0" [1-9] | [12] [0-9] | "30" ) | "02-" ( "0" [1-9] | "1" [0-9] | "2" [0-8] ) )
leap      ::= leap-year "-02-29"
year      ::= "000" [1-9] | "00" [1-9] [0-9] | "0" [1-9] [0-9] [0-9] | [1-9] [0-9] [0-9] [0-9]
leap-year ::= [0-9] [0-9] ( "0" [48] | [2468] [048] | [13579] [26] ) | ( "0" [48] | [2468] [048] | [13579] [26] ) "00"
month31   ::= "0" [13578] | "1" [02]
month30   ::= "0" [469] | "11"
)GBNF";

constexpr const char* kTimePart = R"GBNF(
time      ::= ( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9] ":" [0-5] [0-9] ( "." [0-9]{1,9} )? ( "Z" | [-+] ( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9] )
)GBNF";

// One query of a subset of SQL: select with joins, where, group by, having, order by, limit; keywords in
// capitals.
constexpr const char* kSql = R"GBNF(
root       ::= select ";"?
select     ::= "SELECT " ( "DISTINCT " )? columns " FROM " table joins ( " WHERE " condition )? ( " GROUP BY " names ( " HAVING " condition )? )? ( " ORDER BY " order ( ", " order )* )? ( " LIMIT " integer ( " OFFSET " integer )? )?
columns    ::= "*" | column ( ", " column )*
column     ::= value ( " AS " name )?
table      ::= name ( " AS " name )? | "(" select ") AS " name
joins      ::= ( " " ( "INNER " | "LEFT " | "RIGHT " | "FULL " )? "JOIN " table " ON " condition )*
names      ::= path ( ", " path )*
order      ::= value ( " ASC" | " DESC" )?
condition  ::= conjunction ( " OR " conjunction )*
conjunction ::= predicate ( " AND " predicate )*
predicate  ::= "NOT " predicate | "(" condition ")" | "EXISTS (" select ")" | value comparison
comparison ::= " " ( "=" | "<>" | "<=" | ">=" | "<" | ">" ) " " value | " IS " ( "NOT " )? "NULL" | " " ( "NOT " )? "IN (" ( select | value ( ", " value )* ) ")" | " " ( "NOT " )? "LIKE " string | " " ( "NOT " )? "BETWEEN " value " AND " value
value      ::= term ( " " [-+] " " term )*
term       ::= factor ( " " [*/%] " " factor )*
factor     ::= number | string | "NULL" | "TRUE" | "FALSE" | call | path | "(" value ")"
call       ::= function "(" ( "*" | ( "DISTINCT " )? value ( ", " value )* )? ")"
function   ::= "COUNT" | "SUM" | "AVG" | "MIN" | "MAX" | "LOWER" | "UPPER" | "LENGTH" | "ABS" | "ROUND" | "COALESCE"
path       ::= name ( "." name )?
name       ::= [a-z_] [a-z0-9_]{0,62}
number     ::= "-"? integer ( "." [0-9]+ )?
integer    ::= "0" | [1-9] [0-9]*
string     ::= "'" ( [^'\n] | "''" )* "'"
)GBNF";

}  // namespace

std::vector<std::string> ready_grammar_names() { return {"arithmetic", "date", "date-time", "sql"}; }

std::string ready_grammar(std::string_view name) {
  if (name == "arithmetic") return kArithmetic;
  if (name == "sql") return kSql;
  if (name == "date") return kDate;
  if (name == "date-time") {
    std::string text = kDate;
    text.replace(text.find("root "), 5, "date ");
    return "root ::= date \"T\" time\n" + text + kTimePart;
  }
  std::string names;
  for (const auto& n : ready_grammar_names()) names += (names.empty() ? "" : ", ") + n;
  fail(ErrorCode::kNotFound, "there is no ready grammar '{}'; there are {}", name, names);
}

}  // namespace millrace::grammar
