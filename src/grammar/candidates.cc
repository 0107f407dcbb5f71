// Which bytes may follow a configuration: asked before stepping, since most bytes lead nowhere.
#include "grammar/machine.h"
#include "grammar/string_candidates.h"

namespace millrace::grammar {

const ByteSet& Machine::candidates(StateId s) {
  if (states_[s].candidates == ~uint32_t{0}) {
    const ByteSet set = compute_candidates(s);
    states_[s].candidates = static_cast<uint32_t>(candidates_.size());
    candidates_.push_back(set);
  }
  return candidates_[states_[s].candidates];
}

ByteSet Machine::compute_candidates(StateId s) {
  ByteSet set;
  if (s == kDeadState) return set;
  std::vector<Item> all(items(s).begin(), items(s).end());
  bool escaped = false;
  add_returns(all, nullptr, escaped);
  if (escaped) {
    set.set_range(0, 255);
    return set;
  }
  for (const Item& item : all) {
    // Frames below the known part of the stack: what may follow the rule in any context.
    if (item.node == kUnknown && may_accept(item))
      set |= program_->rules[program_->rule_of[item.position]].follow;
    add_candidates(item, set);
  }
  return set;
}

void Machine::add_candidates(const Item& item, ByteSet& set) {
  const Program& p = *program_;
  const ProgramRule& rule = p.rules[p.rule_of[item.position]];
  switch (rule.kind) {
    case ProgramRuleKind::kAutomaton:
      for (uint32_t e = p.edge_first[item.position]; e < p.edge_first[item.position + 1]; ++e)
        set.set_range(p.edges[e].lo, p.edges[e].hi);
      for (uint32_t c = p.call_first[item.position]; c < p.call_first[item.position + 1]; ++c)
        set |= p.rules[p.calls[c].rule].first;
      return;
    case ProgramRuleKind::kString: {
      const CompiledString& s = p.strings[rule.index];
      const uint32_t state = item.position - rule.start;
      return add_string_candidates(
          *s.dfa, state, item.reg, s.dfa->accept[state], [](uint32_t) { return true; }, set);
    }
    case ProgramRuleKind::kObject:
      return add_object_candidates(item, rule, set);
    case ProgramRuleKind::kArray:
      return add_array_candidates(item, rule, set);
  }
}

}  // namespace millrace::grammar
