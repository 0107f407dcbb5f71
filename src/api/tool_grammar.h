// What a tool call must look like in each format, as data for the grammar engine: literal text around
// arguments that follow a JSON schema. Used when tools must be called (tool_choice "required" or one function
// by name), or when a call that has begun must be valid ("auto").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/output_parser.h"

namespace millrace::api {

enum class ToolChoice { kNone, kAuto, kRequired, kNamed };

struct ToolChoiceSetting {
  ToolChoice choice = ToolChoice::kAuto;
  std::string name;      ///< of kNamed
  bool parallel = true;  ///< more than one call allowed
};

/// One part of a call.
struct GrammarPart {
  enum class Kind {
    kLiteral,      ///< exactly `text`
    kJson,         ///< a JSON value that `text`, a JSON schema, allows
    kTextUntil,    ///< any characters that do not contain `text`, which follows as a literal part of its own
    kChoice,       ///< one of `alternatives`
    kOptionalSet,  ///< each of `alternatives` at most once, in their order; those marked required exactly
                   ///< once
  };
  Kind kind = Kind::kLiteral;
  std::string text;
  std::vector<std::vector<GrammarPart>> alternatives;
  std::vector<bool> required;
};

/// A call of one function: its parts in order.
struct CallGrammar {
  std::string name;
  std::vector<GrammarPart> parts;
};

/// `begin` call (`separator` call)* `end`. With parallel false, one call only. With a text part, parts of
/// text may stand between and around the calls, and need no call beside them.
struct ToolGrammar {
  std::string begin;
  std::string separator;
  std::string end;
  bool parallel = true;
  std::vector<CallGrammar> calls;
  /// Where every part of an answer names its recipient and calls are optional: what a text part begins with,
  /// and what may not stand in it. Empty: no text parts.
  std::string text_begin, text_mark;
  /// Text after which (and not before) the grammar holds when calls are optional ("auto"); empty: from the
  /// start.
  std::string trigger;
};

/// Error(kInvalidArgument) when there are no tools, or the named one is not among them. kNone gives the
/// generic JSON form.
ToolGrammar tool_grammar(ToolFormat format, const std::vector<Tool>& tools, const ToolChoiceSetting& setting);

/// The grammar as GBNF. `schema_rule` turns a JSON schema into the right-hand side of a rule or the name of
/// one (the grammar engine's front end); each schema is asked for once.
template <typename SchemaRule>
std::string to_gbnf(const ToolGrammar& grammar, SchemaRule schema_rule);

/// A GBNF literal of the text.
std::string gbnf_literal(std::string_view text);
/// GBNF for any text that does not contain `mark` (a nonempty ASCII text). `whole`: nor ends with a beginning
/// of it, so that it may follow.
std::string gbnf_text_without(std::string_view mark, bool whole = false);

namespace internal {
template <typename SchemaRule>
std::string parts_to_gbnf(const std::vector<GrammarPart>& parts, SchemaRule& schema_rule) {
  std::string out;
  for (const GrammarPart& part : parts) {
    if (!out.empty()) out += " ";
    switch (part.kind) {
      case GrammarPart::Kind::kLiteral:
        out += gbnf_literal(part.text);
        break;
      case GrammarPart::Kind::kJson:
        out += "(" + schema_rule(part.text) + ")";
        break;
      case GrammarPart::Kind::kTextUntil:
        out += "(" + gbnf_text_without(part.text) + ")";
        break;
      case GrammarPart::Kind::kChoice:
        for (size_t i = 0; i < part.alternatives.size(); ++i)
          out += (i == 0 ? "(" : " | ") + parts_to_gbnf(part.alternatives[i], schema_rule);
        out += part.alternatives.empty() ? "\"\"" : ")";
        break;
      case GrammarPart::Kind::kOptionalSet:
        for (size_t i = 0; i < part.alternatives.size(); ++i)
          out += std::string(i == 0 ? "(" : " (") + parts_to_gbnf(part.alternatives[i], schema_rule) +
                 (part.required[i] ? ")" : ")?");
        if (part.alternatives.empty()) out += "\"\"";
        break;
    }
  }
  return out.empty() ? "\"\"" : out;
}
}  // namespace internal

template <typename SchemaRule>
std::string to_gbnf(const ToolGrammar& grammar, SchemaRule schema_rule) {
  const std::string separator = gbnf_literal(grammar.separator);
  std::string out = "root ::= " + gbnf_literal(grammar.begin);
  if (!grammar.text_begin.empty()) {
    const auto text = [&](bool whole) {
      return gbnf_literal(grammar.text_begin) + " (" + gbnf_text_without(grammar.text_mark, whole) + ")";
    };
    out += grammar.parallel ? " ((part | call) " + separator + ")* (last | call)"
                            : " (last | (part " + separator + ")? call)";
    out += " " + gbnf_literal(grammar.end) + "\npart ::= " + text(true) + "\nlast ::= " + text(false);
  } else {
    out += " call";
    if (grammar.parallel) out += " (" + separator + " call)*";
    out += " " + gbnf_literal(grammar.end);
  }
  out += "\ncall ::= ";
  for (size_t i = 0; i < grammar.calls.size(); ++i)
    out += (i == 0 ? "" : " | ") + internal::parts_to_gbnf(grammar.calls[i].parts, schema_rule);
  return out + "\n";
}

}  // namespace millrace::api
