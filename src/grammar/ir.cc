#include "grammar/ir.h"

namespace millrace::grammar {

ExprId Grammar::add(Expr e) {
  exprs.push_back(std::move(e));
  return static_cast<ExprId>(exprs.size() - 1);
}

ExprId Grammar::literal(std::string_view bytes) {
  if (bytes.empty()) return empty();
  literals.emplace_back(bytes);
  return add({ExprKind::kLiteral, static_cast<uint32_t>(literals.size() - 1), 0, 0, {}});
}

ExprId Grammar::char_class(CodepointSet set) {
  if (set.empty()) return never();
  classes.push_back(std::move(set));
  return add({ExprKind::kClass, static_cast<uint32_t>(classes.size() - 1), 0, 0, {}});
}

ExprId Grammar::sequence(std::vector<ExprId> children) {
  if (children.empty()) return empty();
  if (children.size() == 1) return children[0];
  return add({ExprKind::kSequence, 0, 0, 0, std::move(children)});
}

ExprId Grammar::choice(std::vector<ExprId> children) {
  if (children.empty()) return never();
  if (children.size() == 1) return children[0];
  return add({ExprKind::kChoice, 0, 0, 0, std::move(children)});
}

ExprId Grammar::repeat(ExprId child, uint32_t min, uint32_t max) {
  if (max == 0) return empty();
  if (min == 1 && max == 1) return child;
  return add({ExprKind::kRepeat, 0, min, max, {child}});
}

RuleId Grammar::add_rule(std::string name, ExprId expr) {
  Rule r;
  r.name = std::move(name);
  r.expr = expr;
  rules.push_back(std::move(r));
  return static_cast<RuleId>(rules.size() - 1);
}

}  // namespace millrace::grammar
