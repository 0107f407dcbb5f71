// Which rules can match anything, and which the empty text.
#pragma once

#include <vector>

#include "grammar/ir.h"

namespace millrace::grammar {

struct Usable {
  std::vector<uint8_t> usable;    ///< matches some text that is not empty, or the empty one
  std::vector<uint8_t> nullable;  ///< matches the empty text
};

Usable find_usable(const Grammar& g, Budget& budget);

/// Takes unusable values out of objects and arrays.
void prune_members(Grammar& g, const std::vector<uint8_t>& usable);

/// Whether an object or array rule can be completed, given which rules can.
bool object_usable(const ObjectRule& o, const std::vector<uint8_t>& usable);
bool array_usable(const ArrayRule& a, const std::vector<uint8_t>& usable);

template <typename F>
void for_each_reference(const Grammar& g, RuleId r, F&& f) {
  const Rule& rule = g.rules[r];
  if (rule.kind == RuleKind::kObject) {
    for (const KeyClass& k : g.objects[rule.index].classes) {
      if (k.value != kNone) f(k.value);
      for (const auto& c : k.claims) f(c.first);
    }
  } else if (rule.kind == RuleKind::kArray) {
    for (const auto& choices : g.arrays[rule.index].prefix)
      for (const auto& c : choices) f(c.value);
    for (const auto& c : g.arrays[rule.index].rest) f(c.value);
  } else if (rule.kind == RuleKind::kExpr) {
    if (!g.counted.empty() && g.counted[r].is) {
      f(g.counted[r].body);
      return;
    }
    std::vector<ExprId> stack{rule.expr};
    while (!stack.empty()) {
      const Expr& e = g.exprs[stack.back()];
      stack.pop_back();
      if (e.kind == ExprKind::kRule) f(e.index);
      stack.insert(stack.end(), e.children.begin(), e.children.end());
    }
  }
}

}  // namespace millrace::grammar
