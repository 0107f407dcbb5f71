#include "grammar/formats.h"

#include <string>
#include <unordered_map>

namespace millrace::grammar {
namespace {

// Gregorian dates with the right number of days, years 0001 to 9999 (RFC 3339, full-date).
#define YEAR "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP_YEAR "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                 \
  "(" YEAR                                                                                                   \
  "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))" \
  "|" LEAP_YEAR "-02-29)"
// Leap seconds are left out: whether one is right depends on the date.
#define TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([Zz]|[-+]([01][0-9]|2[0-3]):[0-5][0-9])"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(\\." OCTET "){3}"
#define LABEL "[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
#define H16 "[0-9A-Fa-f]{1,4}"
// RFC 4291: eight groups, or fewer around one "::"; the last two may be an IPv4 address.
#define IPV6                                                                                            \
  "((" H16 ":){6}(" H16 ":" H16 "|" IPV4 ")|::(" H16 ":){5}(" H16 ":" H16 "|" IPV4                      \
  ")"                                                                                                   \
  "|(" H16 ")?::(" H16 ":){4}(" H16 ":" H16 "|" IPV4 ")|((" H16 ":){0,1}" H16 ")?::(" H16 ":){3}(" H16  \
  ":" H16 "|" IPV4                                                                                      \
  ")"                                                                                                   \
  "|((" H16 ":){0,2}" H16 ")?::(" H16 ":){2}(" H16 ":" H16 "|" IPV4 ")|((" H16 ":){0,3}" H16 ")?::" H16 \
  ":(" H16 ":" H16 "|" IPV4                                                                             \
  ")"                                                                                                   \
  "|((" H16 ":){0,4}" H16 ")?::(" H16 ":" H16 "|" IPV4 ")|((" H16 ":){0,5}" H16 ")?::" H16 "|((" H16    \
  ":){0,6}" H16 ")?::)"
// RFC 3986, with host names in their registered form.
#define PCT "%[0-9A-Fa-f]{2}"
#define PCHAR "([-A-Za-z0-9._~!$&'()*+,;=:@]|" PCT ")"
#define QUERY "([-A-Za-z0-9._~!$&'()*+,;=:@/?]|" PCT ")*"
#define AUTHORITY                                                                              \
  "(([-A-Za-z0-9._~!$&'()*+,;=:]|" PCT ")*@)?(\\[" IPV6 "\\]|([-A-Za-z0-9._~!$&'()*+,;=]|" PCT \
  ")*)(:[0-9]{0,5})?"
#define SCHEME "[A-Za-z][-A-Za-z0-9+.]*"
#define TAIL "(\\?" QUERY ")?(#" QUERY ")?"
#define HIER "(//" AUTHORITY "(/" PCHAR "*)*|/(" PCHAR "+(/" PCHAR "*)*)?|" PCHAR "+(/" PCHAR "*)*|)"
#define RELATIVE                                                                                  \
  "(//" AUTHORITY "(/" PCHAR "*)*|/(" PCHAR "+(/" PCHAR "*)*)?|([-A-Za-z0-9._~!$&'()*+,;=@]|" PCT \
  ")+(/" PCHAR "*)*|)"
// RFC 3987: the same with characters beyond ASCII.
#define UCS                                                                                               \
  "\\u{a0}-\\u{d7ff}\\u{f900}-\\u{fdcf}\\u{fdf0}-\\u{ffef}\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}\\u{" \
  "30000}-\\u{3fffd}"
#define IPCHAR "([-A-Za-z0-9._~!$&'()*+,;=:@" UCS "]|" PCT ")"
#define IQUERY "([-A-Za-z0-9._~!$&'()*+,;=:@/?" UCS "]|" PCT ")*"
#define IAUTHORITY                                                                                           \
  "(([-A-Za-z0-9._~!$&'()*+,;=:" UCS "]|" PCT ")*@)?(\\[" IPV6 "\\]|([-A-Za-z0-9._~!$&'()*+,;=" UCS "]|" PCT \
  ")*)(:[0-9]{0,5})?"
#define ITAIL "(\\?" IQUERY ")?(#" IQUERY ")?"
#define IHIER "(//" IAUTHORITY "(/" IPCHAR "*)*|/(" IPCHAR "+(/" IPCHAR "*)*)?|" IPCHAR "+(/" IPCHAR "*)*|)"
#define IRELATIVE                                                                                            \
  "(//" IAUTHORITY "(/" IPCHAR "*)*|/(" IPCHAR "+(/" IPCHAR "*)*)?|([-A-Za-z0-9._~!$&'()*+,;=@" UCS "]|" PCT \
  ")+(/" IPCHAR "*)*|)"
// RFC 6570, without the operators that are reserved.
#define TEMPLATE_NAME "([A-Za-z0-9_]|" PCT ")+(:[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE                                                                                        \
  "([-A-Za-z0-9._~!#$&()*+,/:;=?@\\[\\]" UCS "]|" PCT "|\\{[+#./;?&]?" TEMPLATE_NAME "(," TEMPLATE_NAME \
  ")*\\})*"
#define ATOM "[-A-Za-z0-9!#$%&'*+/=?^_`{|}~]+"
#define POINTER "(/([^/~]|~[01])*)*"

#define RE_ESCAPE "\\\\[dDwWsSnrt.*+?()\\[\\]{}|^$/\\\\]"
#define RE_RANGE "(0-[0-9]|1-[1-9]|a-[a-z]|b-[b-z]|f-[f-z]|A-[A-Z]|B-[B-Z]|F-[F-Z])"
#define RE_SET "\\[\\^?([^\\[\\]\\\\^&|~\\x00-\\x1f-]|" RE_ESCAPE "|" RE_RANGE ")+\\]"
#define RE_BOUND "([*+?]|\\{[0-9]{1,3},?\\})\\??"
#define RE_ATOM "[^\\[\\]\\\\(){}*+?.^$|\\x00-\\x1f]|\\.|" RE_ESCAPE "|" RE_SET
#define RE_LEVEL0 "((" RE_ATOM ")(" RE_BOUND ")?|[|^$])*"
#define RE_LEVEL1 "((" RE_ATOM "|\\((\\?:)?" RE_LEVEL0 "\\))(" RE_BOUND ")?|[|^$])*"
#define RE_LEVEL2 "((" RE_ATOM "|\\((\\?:)?" RE_LEVEL1 "\\))(" RE_BOUND ")?|[|^$])*"
#define RE_LEVEL3 "((" RE_ATOM "|\\((\\?:)?" RE_LEVEL2 "\\))(" RE_BOUND ")?|[|^$])*"

const std::unordered_map<std::string_view, FormatRule>& table() {
  static const std::unordered_map<std::string_view, FormatRule> rules = {
      {"date", {FormatKind::kRegex, DATE}},
      {"time", {FormatKind::kRegex, TIME}},
      {"date-time", {FormatKind::kRegex, DATE "[Tt]" TIME}},
      // RFC 3339, appendix A: parts in order, each only below its neighbour.
      {"duration",
       {FormatKind::kRegex,
        "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
        "(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))?"
        "|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))"}},
      {"email", {FormatKind::kRegex, ATOM "(\\." ATOM ")*@" LABEL "(\\." LABEL ")*"}},
      {"hostname", {FormatKind::kRegex, LABEL "(\\." LABEL "){0,3}"}},
      {"ipv4", {FormatKind::kRegex, IPV4}},
      {"ipv6", {FormatKind::kRegex, IPV6}},
      {"uri", {FormatKind::kRegex, SCHEME ":" HIER TAIL}},
      {"uri-reference", {FormatKind::kRegex, "(" SCHEME ":" HIER "|" RELATIVE ")" TAIL}},
      {"iri", {FormatKind::kRegex, SCHEME ":" IHIER ITAIL}},
      {"iri-reference", {FormatKind::kRegex, "(" SCHEME ":" IHIER "|" IRELATIVE ")" ITAIL}},
      {"uuid", {FormatKind::kRegex, "[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"}},
      {"json-pointer", {FormatKind::kRegex, POINTER}},
      {"relative-json-pointer", {FormatKind::kRegex, "(0|[1-9][0-9]*)(#|" POINTER ")"}},
      // Expressions that every engine takes: characters, escapes, sets, groups to a depth of three, bounds.
      {"regex", {FormatKind::kRegex, RE_LEVEL3}},
      {"idn-email", {FormatKind::kRegex, ATOM "(\\." ATOM ")*@" LABEL "(\\." LABEL ")*"}},
      // Which names beyond ASCII are right is a matter of tables that readers have or have not.
      {"idn-hostname", {FormatKind::kRegex, LABEL "(\\." LABEL "){0,3}"}},
      {"uri-template", {FormatKind::kRegex, TEMPLATE}},
  };
  return rules;
}

}  // namespace

FormatRule find_format(std::string_view name) {
  const auto it = table().find(name);
  return it == table().end() ? FormatRule{} : it->second;
}

}  // namespace millrace::grammar
