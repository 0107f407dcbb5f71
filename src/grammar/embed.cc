#include "grammar/embed.h"

#include "grammar/gbnf.h"

namespace millrace::grammar {

RuleId append_grammar(Grammar& into, Grammar part) {
  const auto exprs = static_cast<uint32_t>(into.exprs.size());
  const auto classes = static_cast<uint32_t>(into.classes.size());
  const auto literals = static_cast<uint32_t>(into.literals.size());
  const auto rules = static_cast<uint32_t>(into.rules.size());
  const auto strings = static_cast<uint32_t>(into.strings.size());
  const auto objects = static_cast<uint32_t>(into.objects.size());
  const auto arrays = static_cast<uint32_t>(into.arrays.size());
  const auto move_rule = [rules](RuleId& r) {
    if (r != kNone) r += rules;
  };
  for (Expr& e : part.exprs) {
    if (e.kind == ExprKind::kClass) e.index += classes;
    if (e.kind == ExprKind::kLiteral) e.index += literals;
    if (e.kind == ExprKind::kRule) e.index += rules;
    for (ExprId& child : e.children) child += exprs;
    into.exprs.push_back(std::move(e));
  }
  for (auto& c : part.classes) into.classes.push_back(std::move(c));
  for (auto& l : part.literals) into.literals.push_back(std::move(l));
  for (Rule& r : part.rules) {
    r.expr += exprs;
    if (r.kind == RuleKind::kString) r.index += strings;
    if (r.kind == RuleKind::kObject) r.index += objects;
    if (r.kind == RuleKind::kArray) r.index += arrays;
    into.rules.push_back(std::move(r));
  }
  for (StringRule& s : part.strings) into.strings.push_back(std::move(s));
  for (ObjectRule& o : part.objects) {
    for (KeyClass& k : o.classes) {
      move_rule(k.value);
      for (auto& claim : k.claims) move_rule(claim.first);
    }
    into.objects.push_back(std::move(o));
  }
  for (ArrayRule& a : part.arrays) {
    for (auto& choices : a.prefix)
      for (ArrayChoice& c : choices) move_rule(c.value);
    for (ArrayChoice& c : a.rest) move_rule(c.value);
    into.arrays.push_back(std::move(a));
  }
  into.whitespace = part.whitespace;
  return part.root + rules;
}

Grammar gbnf_with_schemas(std::string_view gbnf,
                          const std::vector<std::pair<std::string, std::string>>& schemas,
                          const JsonOptions& options, Budget& budget) {
  // The open rules get a body that stands for the schema until it is there.
  std::string text(gbnf);
  for (const auto& [name, schema] : schemas) text += "\n" + name + " ::= \"\"\n";
  Grammar g = gbnf_grammar(text, budget);
  for (const auto& [name, schema] : schemas) {
    RuleId rule = kNone;
    for (RuleId r = 0; r < g.rules.size(); ++r)
      if (g.rules[r].name == name) rule = r;
    check(rule != kNone, "rule {} is not in the grammar that was just made of it", name);
    Grammar part;
    try {
      part = schema.empty() ? json_grammar(AnyJson::kValue, options, budget)
                            : json_schema_grammar(schema, options, budget);
    } catch (const Error& e) {
      fail(e.code(), "{}: {}", name, e.what());
    }
    const RuleId root = append_grammar(g, std::move(part));
    g.rules[rule].expr = g.rule_ref(root);
  }
  return g;
}

}  // namespace millrace::grammar
