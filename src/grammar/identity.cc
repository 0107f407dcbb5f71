#include "grammar/identity.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "grammar/components.h"
#include "grammar/value_hash.h"

namespace millrace::grammar {
namespace {

uint64_t process_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) ^ device();
  }();
  return seed;
}

class Hasher {
 public:
  explicit Hasher(uint64_t what) : a_(mix_hash(process_seed(), what)), b_(mix_hash(~process_seed(), what)) {}
  void add(uint64_t v) {
    a_ = mix_hash(a_, v);
    b_ = mix_hash(b_, v * 0x9e3779b97f4a7c15ULL + 0x7f4a7c15);
  }
  void add(const RuleIdentity& i) { add(i.a), add(i.b); }
  void add(const ByteSet& set) {
    uint64_t word = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      word = word << 1 | (set.test(static_cast<uint8_t>(byte)) ? 1u : 0u);
      if (byte % 64 == 63) add(word);
    }
  }
  void add(const Dfa& dfa) {
    add(dfa.size());
    for (uint32_t s = 0; s < dfa.size(); ++s) {
      add(uint64_t{dfa.accept[s]} << 32 | dfa.out(s).size());
      for (const auto& e : dfa.out(s)) add(uint64_t{e.lo} << 32 | e.hi), add(e.target);
    }
  }
  RuleIdentity get() const { return {a_, b_}; }

 private:
  uint64_t a_, b_;
};

// What a rule is by itself, and the rules that it calls, in an order that belongs to its content.
struct Content {
  RuleIdentity own;
  std::vector<uint32_t> calls;
};

class Identities {
 public:
  Identities(const Program& p, Budget& budget) : p_(p), budget_(budget) {}

  std::vector<RuleIdentity> run() {
    const size_t n = p_.rules.size();
    content_.resize(n);
    for (uint32_t r = 0; r < n; ++r) content_[r] = content(r);
    names_.resize(n);
    name_all();
    return std::move(names_);
  }

 private:
  Content content(uint32_t r) {
    const ProgramRule& rule = p_.rules[r];
    Content c;
    Hasher h(static_cast<uint64_t>(rule.kind) << 8 | static_cast<uint64_t>(p_.whitespace));
    h.add(rule.positions);
    h.add(rule.follow);
    switch (rule.kind) {
      case ProgramRuleKind::kAutomaton:
        automaton(rule, h, c);
        break;
      case ProgramRuleKind::kString: {
        const CompiledString& s = p_.strings[rule.index];
        h.add(*s.dfa);
        h.add(s.lengths->min());
        h.add(s.lengths->max());
        budget_.tick(s.dfa->edges.size() / 8);
        break;
      }
      case ProgramRuleKind::kObject:
        object(p_.objects[rule.index], h, c);
        break;
      case ProgramRuleKind::kArray:
        array(p_.arrays[rule.index], h, c);
        break;
    }
    c.own = h.get();
    return c;
  }
  void automaton(const ProgramRule& rule, Hasher& h, Content& c) {
    h.add(rule.counted ? uint64_t{rule.min} << 32 | rule.max : 1);
    for (Position q = rule.start; q < rule.start + rule.positions; ++q) {
      h.add(uint64_t{p_.accept[q]} << 2 | uint64_t{p_.loop_head[q]} << 1);
      h.add(p_.edge_first[q + 1] - p_.edge_first[q]);
      for (uint32_t e = p_.edge_first[q]; e < p_.edge_first[q + 1]; ++e) {
        const ByteEdge& edge = p_.edges[e];
        h.add(uint64_t{edge.lo} | uint64_t{edge.hi} << 8 | uint64_t{edge.counts} << 16 |
              uint64_t{edge.target - rule.start} << 32);
      }
      h.add(p_.call_first[q + 1] - p_.call_first[q]);
      for (uint32_t k = p_.call_first[q]; k < p_.call_first[q + 1]; ++k) {
        const CallEdge& call = p_.calls[k];
        h.add(uint64_t{call.counts} | uint64_t{call.target - rule.start} << 32);
        c.calls.push_back(call.rule);
      }
    }
    budget_.tick(rule.positions / 4);
  }
  void object(const CompiledObject& o, Hasher& h, Content& c) {
    const ObjectRule& rule = o.rule;
    h.add(*rule.keys);
    for (uint32_t x : rule.accept_class) h.add(x);
    h.add(rule.classes.size());
    for (const KeyClass& k : rule.classes) {
      h.add(uint64_t{k.tracked} | uint64_t{k.bit} << 1 | uint64_t{k.value != kNone} << 40);
      if (k.value != kNone) c.calls.push_back(k.value);
      h.add(k.claims.size());
      for (const auto& [value, bits] : k.claims) {
        h.add(bits);
        c.calls.push_back(value);
      }
    }
    h.add(uint64_t{rule.num_tracked} << 32 | rule.num_witnesses);
    h.add(rule.required.size());
    for (uint32_t b : rule.required) h.add(b);
    h.add(rule.implies.size());
    for (const auto& [from, to] : rule.implies) h.add(uint64_t{from} << 32 | to);
    h.add(uint64_t{rule.min_properties} << 32 | rule.max_properties);
    h.add(rule.remember_keys);
    for (uint8_t u : o.bit_usable) h.add(u);
    h.add(o.free_string.size());
    for (size_t s = 0; s < o.free_string.size(); ++s) {
      h.add(o.free_string[s] == kNone ? 0 : 1 + uint64_t{o.free_class[s]});
      if (o.free_string[s] == kNone) continue;
      // A position: its rule, and where in it.
      const uint32_t called = p_.rule_of[o.free_string[s]];
      h.add(o.free_string[s] - p_.rules[called].start);
      if (c.calls.empty() || c.calls.back() != called) {
        c.calls.push_back(called);
        h.add(2);
      }
    }
    budget_.tick(rule.keys->edges.size() / 8);
  }
  void array(const ArrayRule& a, Hasher& h, Content& c) {
    const auto choices = [&](const std::vector<ArrayChoice>& list) {
      h.add(list.size());
      for (const ArrayChoice& x : list) {
        h.add(uint64_t{x.contains} << 32 | x.unique_bit);
        c.calls.push_back(x.value);
      }
    };
    h.add(a.prefix.size());
    for (const auto& list : a.prefix) choices(list);
    choices(a.rest);
    h.add(uint64_t{a.min_items} << 32 | a.max_items);
    h.add(a.contains.size());
    for (const ArrayContains& x : a.contains) h.add(uint64_t{x.min} << 32 | x.max);
    h.add(uint64_t{a.unique} | uint64_t{a.unique_by_text} << 1 | uint64_t{a.num_unique_bits} << 2 |
          uint64_t{a.repeats} << 40);
  }

  RuleIdentity combined(uint32_t r, const std::vector<RuleIdentity>& names) const {
    Hasher h(3);
    h.add(content_[r].own);
    for (uint32_t c : content_[r].calls) h.add(names[c]);
    return h.get();
  }

  void name_all() {
    std::vector<std::vector<uint32_t>> calls;
    for (const Content& c : content_) calls.push_back(c.calls);
    std::vector<uint32_t> order, members;
    const auto component = components(calls, order);
    for (size_t i = 0; i < order.size(); ++i) {
      members.push_back(order[i]);
      if (i + 1 < order.size() && component[order[i + 1]] == component[order[i]]) continue;
      name(members);
      members.clear();
    }
  }

  void name(const std::vector<uint32_t>& members) {
    const uint32_t first = members[0];
    const auto& calls = content_[first].calls;
    if (members.size() == 1 && std::find(calls.begin(), calls.end(), first) == calls.end()) {
      names_[first] = combined(first, names_);
      return;
    }
    // Rules that call each other: refined until rules that differ anywhere have different names. Two systems
    // of m rules that differ do so within 2m rounds. Large ones keep to themselves.
    size_t work = 0;
    for (uint32_t r : members) work += content_[r].calls.size() + 1;
    const size_t rounds = 2 * members.size();
    if (work * rounds > 100'000) {
      static std::atomic<uint64_t> unique{1};
      const uint64_t salt = unique.fetch_add(1);
      for (uint32_t r : members) {
        Hasher h(5);
        h.add(salt);
        h.add(r);
        names_[r] = h.get();
      }
      return;
    }
    budget_.tick(work * rounds / 8);
    for (uint32_t r : members) {
      Hasher h(4);
      h.add(members.size());
      names_[r] = h.get();
    }
    std::vector<RuleIdentity> fresh(members.size());
    for (size_t round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < members.size(); ++i) fresh[i] = combined(members[i], names_);
      for (size_t i = 0; i < members.size(); ++i) names_[members[i]] = fresh[i];
    }
  }

  const Program& p_;
  Budget& budget_;
  std::vector<Content> content_;
  std::vector<RuleIdentity> names_;
};

}  // namespace

std::vector<RuleIdentity> rule_identities(const Program& program, Budget& budget) {
  return Identities(program, budget).run();
}

}  // namespace millrace::grammar
