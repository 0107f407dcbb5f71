// Sets of values to rules.

#include "grammar/json_schema.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "grammar/schema_reader.h"

namespace millrace::grammar {
namespace {

constexpr size_t kFewKeys = 300;    ///< finite languages of keys up to this size are listed
constexpr size_t kFewValues = 256;  ///< the same for unique items

uint32_t clipped(uint64_t n) { return n >= kUnlimited ? kUnlimited : static_cast<uint32_t>(n); }

class Emitter {
 public:
  Emitter(ValueSets& sets, const JsonOptions& options, Budget& budget) : sets_(sets), budget_(budget) {
    g_.whitespace = options.whitespace;
    around_ = options.around;
  }

  Grammar run(SetId root) {
    const RuleId value = rule_of(root);
    while (!todo_.empty()) {
      const auto [set, rule] = todo_.back();
      todo_.pop_back();
      build(set, rule);
    }
    ExprId body = g_.rule_ref(value);
    if (around_ && g_.whitespace == Whitespace::kFlexible) {
      CodepointSet white(' ', ' ');
      white.add('\t', '\n');
      white.add('\r', '\r');
      const ExprId spaces = g_.repeat(g_.char_class(white), 0, kUnlimited);
      body = g_.sequence({spaces, body, spaces});
    }
    g_.root = g_.add_rule("root", body);
    return std::move(g_);
  }

 private:
  RuleId rule_of(SetId set) {
    const auto [it, fresh] = rules_.try_emplace(set, 0);
    if (fresh) {
      it->second = g_.add_rule(fmt::format("set-{}", set), 0);
      require(g_.rules.size() <= budget_.limits().rules, ErrorCode::kLimitExceeded,
              "the schema needs more than {} rules (limit on rules)", budget_.limits().rules);
      budget_.add_memory(200);
      todo_.push_back({set, it->second});
    }
    return it->second;
  }

  void build(SetId set, RuleId rule) {
    budget_.tick(4);
    const Shapes shapes = sets_.expand(set);
    if (shapes.size() == 1 && is_frame(shapes[0])) {
      // One rule less on every path.
      Rule made = frame_rule(shapes[0]);
      made.name = g_.rules[rule].name;
      g_.rules[rule] = std::move(made);
      return;
    }
    std::vector<ExprId> list;
    for (const Shape& s : shapes) {
      budget_.tick(4);
      switch (s.type) {
        case JsonType::kNull:
          list.push_back(g_.literal("null"));
          break;
        case JsonType::kBoolean:
          if (s.booleans & 2) list.push_back(g_.literal("true"));
          if (s.booleans & 1) list.push_back(g_.literal("false"));
          break;
        case JsonType::kNumber:
          list.push_back(number(*s.set.sure));
          break;
        default: {
          const Rule made = frame_rule(s);
          g_.rules.push_back(made);
          list.push_back(g_.rule_ref(static_cast<RuleId>(g_.rules.size() - 1)));
          break;
        }
      }
    }
    const ExprId e = g_.choice(std::move(list));
    g_.rules[rule].expr = e;
  }

  static bool is_frame(const Shape& s) {
    return s.type == JsonType::kString || s.type == JsonType::kArray || s.type == JsonType::kObject;
  }

  Rule frame_rule(const Shape& s) {
    Rule r;
    switch (s.type) {
      case JsonType::kString: {
        r.kind = RuleKind::kString;
        const std::string key =
            fmt::format("{},{},{}", static_cast<const void*>(s.set.sure.get()), s.min, s.max);
        const auto [it, fresh] = strings_.try_emplace(key, static_cast<uint32_t>(g_.strings.size()));
        if (fresh) g_.strings.push_back({s.set.sure, s.min, s.max});
        r.index = it->second;
        r.name = "string";
        break;
      }
      case JsonType::kArray:
        r.kind = RuleKind::kArray;
        r.name = "array";
        r.index = array(*s.array);
        break;
      default:
        r.kind = RuleKind::kObject;
        r.name = "object";
        r.index = object(*s.object);
        break;
    }
    return r;
  }

  // A number automaton becomes right-linear rules; lowering makes one automaton of the acyclic parts and
  // calls of the rest, so the automaton is handed over whole instead.
  ExprId number(const Dfa& dfa) {
    const auto it = numbers_.find(&dfa);
    if (it != numbers_.end()) return g_.rule_ref(it->second);
    Rule r;
    r.name = "number";
    r.kind = RuleKind::kExpr;
    r.automaton = std::make_shared<const Dfa>(dfa);
    r.expr = g_.empty();
    g_.rules.push_back(std::move(r));
    const auto id = static_cast<RuleId>(g_.rules.size() - 1);
    numbers_.emplace(&dfa, id);
    return g_.rule_ref(id);
  }

  // ---- objects

  struct KeyAutomaton {
    Dfa dfa;
    std::vector<uint32_t> accept_class;
    struct Signature {
      std::string name;  ///< of a listed key
      bool listed = false;
      std::vector<uint8_t> matches;  ///< by test: 0 surely not, 1 maybe, 2 surely
    };
    std::vector<Signature> classes;
  };

  /// Splits all keys by what the tests say about them, the names each for itself. `allowed` restricts keys.
  KeyAutomaton classify(const std::vector<std::string>& names, const std::vector<KeyTest>& tests,
                        const std::vector<FuzzySet>& allowed) {
    std::vector<std::u32string> words;
    words.reserve(names.size());
    for (const auto& n : names) words.push_back(decode_utf8(n));
    std::vector<const Dfa*> parts;
    const Dfa trie = from_words(words, budget_);
    if (tests.empty() && allowed.empty()) return classify_names(names, words, trie);
    parts.push_back(&trie);
    for (const KeyTest& t : tests) {
      parts.push_back(t.names.sure.get());
      if (!t.names.is_crisp()) parts.push_back(t.names.maybe.get());
    }
    for (const FuzzySet& a : allowed) parts.push_back(a.sure.get());
    std::map<uint32_t, size_t> word_at;  // trie state -> name
    for (size_t i = 0; i < words.size(); ++i) {
      uint32_t s = 0;
      for (char32_t c : words[i]) s = trie.step(s, c);
      word_at[s] = i;
    }
    KeyAutomaton out;
    std::map<std::vector<uint32_t>, uint32_t> ids;
    std::vector<std::vector<uint32_t>> todo;
    std::map<std::string, uint32_t> class_ids;
    const auto id_of = [&](const std::vector<uint32_t>& k) {
      const auto [it, fresh] = ids.try_emplace(k, static_cast<uint32_t>(todo.size()));
      if (fresh) {
        todo.push_back(k);
        budget_.add_memory(k.size() * 8 + 64);
        require(todo.size() <= 50'000, ErrorCode::kLimitExceeded,
                "the keys of an object need more than 50000 automaton states (limit on states)");
      }
      return it->second;
    };
    std::vector<uint32_t> start;
    start.reserve(parts.size());
    for (const Dfa* p : parts) start.push_back(p->never() ? Dfa::kDead : 0);
    id_of(start);
    const size_t first_allowed = parts.size() - allowed.size();
    std::vector<uint32_t> next(parts.size());
    std::vector<uint64_t> cuts;
    for (size_t at = 0; at < todo.size(); ++at) {
      const std::vector<uint32_t> k = todo[at];
      cuts.assign({0, 0xd800, 0xe000, uint64_t{kMaxCodepoint} + 1});
      for (size_t i = 0; i < parts.size(); ++i)
        if (k[i] != Dfa::kDead)
          for (const auto& e : parts[i]->out(k[i])) {
            cuts.push_back(e.lo);
            cuts.push_back(uint64_t{e.hi} + 1);
          }
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      const size_t begin = out.dfa.edges.size();
      for (size_t c = 0; c + 1 < cuts.size(); ++c) {
        const auto lo = static_cast<uint32_t>(cuts[c]), hi = static_cast<uint32_t>(cuts[c + 1] - 1);
        if (lo >= 0xd800 && hi <= 0xdfff) continue;
        bool dead = false;
        for (size_t i = 0; i < parts.size(); ++i) {
          next[i] = parts[i]->step(k[i], lo);
          dead |= i >= first_allowed && next[i] == Dfa::kDead;
        }
        if (dead) continue;
        const uint32_t t = id_of(next);
        if (out.dfa.edges.size() > begin && out.dfa.edges.back().target == t &&
            (out.dfa.edges.back().hi + 1 == lo || (out.dfa.edges.back().hi == 0xd7ff && lo == 0xe000))) {
          out.dfa.edges.back().hi = hi;
        } else {
          out.dfa.edges.push_back({lo, hi, t});
        }
        budget_.tick(parts.size());
      }
      bool permitted = true;
      for (size_t i = first_allowed; i < parts.size(); ++i)
        permitted &= k[i] != Dfa::kDead && parts[i]->accept[k[i]] != 0;
      uint32_t cls = kNone;
      if (permitted) {
        KeyAutomaton::Signature s;
        std::string key;
        const auto w = word_at.find(k[0]);
        if (k[0] != Dfa::kDead && w != word_at.end()) {
          s.listed = true;
          s.name = names[w->second];
          key = fmt::format("{};", w->second);
        }
        size_t p = 1;
        for (const KeyTest& t : tests) {
          const bool sure = k[p] != Dfa::kDead && parts[p]->accept[k[p]];
          ++p;
          bool maybe = sure;
          if (!t.names.is_crisp()) {
            maybe |= k[p] != Dfa::kDead && parts[p]->accept[k[p]] != 0;
            ++p;
          }
          s.matches.push_back(sure ? 2 : maybe ? 1 : 0);
          key += static_cast<char>('0' + s.matches.back());
        }
        const auto [it, fresh] = class_ids.try_emplace(key, static_cast<uint32_t>(out.classes.size()));
        if (fresh) out.classes.push_back(std::move(s));
        cls = it->second;
      }
      out.accept_class.push_back(cls);
      out.dfa.close_state(cls != kNone);
      budget_.add_states(1);
    }
    return out;
  }

  // Without tests: the names, and one state for every other key.
  KeyAutomaton classify_names(const std::vector<std::string>& names, const std::vector<std::u32string>& words,
                              const Dfa& trie) {
    KeyAutomaton out;
    const uint32_t other = std::max<uint32_t>(trie.size(), 1);
    out.accept_class.assign(size_t{other} + 1, 0);
    out.classes.push_back({});
    budget_.add_states(size_t{other} + 1);
    for (size_t i = 0; i < words.size(); ++i) {
      uint32_t s = 0;
      for (char32_t c : words[i]) s = trie.step(s, c);
      out.accept_class[s] = static_cast<uint32_t>(out.classes.size());
      out.classes.push_back({names[i], true, {}});
    }
    // Ranges between the edges of the trie lead away from it. A range may run over the surrogates, which no
    // text holds.
    for (uint32_t s = 0; s <= other; ++s) {
      uint32_t at = 0;
      const auto rest_to = [&](uint32_t end) {
        if (at < end && !(at >= 0xd800 && end <= 0xe000)) out.dfa.edges.push_back({at, end - 1, other});
      };
      if (s < trie.size())
        for (const Dfa::Edge& e : trie.out(s)) {
          rest_to(e.lo);
          out.dfa.edges.push_back(e);
          at = e.hi + 1;
        }
      rest_to(kMaxCodepoint + 1);
      out.dfa.close_state(true);
    }
    return out;
  }

  uint32_t object(const ObjectShape& shape) {
    std::vector<std::string> names;
    std::set<std::string> listed;
    const auto add_name = [&](const std::string& n) {
      if (listed.insert(n).second) names.push_back(n);
    };
    for (const ObjectGroup& g : shape.groups)
      for (const auto& p : g.properties) add_name(p.first);
    for (const auto& r : shape.required) add_name(r);
    for (const auto& i : shape.implies) add_name(i.first), add_name(i.second);
    std::vector<KeyTest> tests;
    const auto test_of = [&](const KeyTest& t) {
      for (size_t i = 0; i < tests.size(); ++i)
        if (!t.source.empty() ? tests[i].source == t.source
                              : tests[i].names.sure == t.names.sure && tests[i].names.maybe == t.names.maybe)
          return i;
      tests.push_back(t);
      return tests.size() - 1;
    };
    for (const ObjectGroup& g : shape.groups)
      for (const auto& p : g.patterns) test_of(p.first);
    for (const Witness& w : shape.witnesses) test_of(w.names);
    require(shape.witnesses.size() <= 60, ErrorCode::kLimitExceeded,
            "an object must show more than 60 properties of some kind (limit on alternatives)");
    KeyAutomaton keys = classify(names, tests, shape.key_names);
    std::vector<SetId> values = class_values(shape, keys, test_of);
    // Keys that are few are better listed: each may come once, and the engine knows when none is left.
    if ((!tests.empty() || !shape.key_names.empty()) && has_unlisted(keys, values)) {
      Dfa rest = keys.dfa;
      for (uint32_t s = 0; s < rest.size(); ++s) {
        const uint32_t c = keys.accept_class[s];
        rest.accept[s] = c != kNone && !keys.classes[c].listed && !sets_.surely_empty(values[c], 2);
      }
      const auto few = enumerate(trim(rest), kFewKeys);
      if (few && !few->empty()) {
        for (const auto& w : *few) add_name(encode_utf8(w));
        keys = classify(names, tests, shape.key_names);
        values = class_values(shape, keys, test_of);
      }
    }
    return emit_object(shape, keys, values, names, test_of);
  }

  static bool has_unlisted(const KeyAutomaton& keys, const std::vector<SetId>& values) {
    for (size_t c = 0; c < values.size(); ++c)
      if (!keys.classes[c].listed && values[c] != ValueSets::kNothing) return true;
    return false;
  }

  template <typename TestOf>
  std::vector<SetId> class_values(const ObjectShape& shape, const KeyAutomaton& keys, TestOf&& test_of) {
    std::vector<SetId> values;
    std::vector<std::map<std::string, SetId>> by_name(shape.groups.size());
    for (size_t i = 0; i < shape.groups.size(); ++i)
      for (const auto& [name, v] : shape.groups[i].properties) {
        const auto [it, fresh] = by_name[i].try_emplace(name, v);
        if (!fresh) it->second = sets_.both(it->second, v);
      }
    for (const auto& cls : keys.classes) {
      SetId value = ValueSets::kEverything;
      for (size_t i = 0; i < shape.groups.size(); ++i) {
        const ObjectGroup& g = shape.groups[i];
        bool surely = false;
        if (cls.listed) {
          const auto it = by_name[i].find(cls.name);
          if (it != by_name[i].end()) value = sets_.both(value, it->second), surely = true;
        }
        for (const auto& [test, v] : g.patterns) {
          const uint8_t m = cls.matches[test_of(test)];
          if (m > 0) value = sets_.both(value, v);
          surely |= m == 2;
        }
        if (!surely) value = sets_.both(value, g.rest);
      }
      values.push_back(value);
      budget_.tick(shape.groups.size());
    }
    return values;
  }

  template <typename TestOf>
  uint32_t emit_object(const ObjectShape& shape, KeyAutomaton& keys, const std::vector<SetId>& values,
                       const std::vector<std::string>& names, TestOf&& test_of) {
    ObjectRule o;
    o.num_tracked = static_cast<uint32_t>(names.size());
    std::map<std::string, uint32_t> bit_of;
    for (uint32_t i = 0; i < names.size(); ++i) bit_of[names[i]] = i;
    bool untracked = false;
    for (size_t c = 0; c < keys.classes.size(); ++c) {
      KeyClass k;
      const auto& cls = keys.classes[c];
      k.tracked = cls.listed;
      if (cls.listed) k.bit = bit_of[cls.name];
      if (values[c] != ValueSets::kNothing) {
        k.value = rule_of(values[c]);
        untracked |= !cls.listed;
        uint64_t all = 0;
        SetId all_value = values[c];
        for (size_t w = 0; w < shape.witnesses.size(); ++w) {
          if (cls.matches[test_of(shape.witnesses[w].names)] != 2) continue;
          const SetId claimed = sets_.both(values[c], shape.witnesses[w].value);
          if (claimed == ValueSets::kNothing) continue;
          k.claims.push_back({rule_of(claimed), uint64_t{1} << w});
          all |= uint64_t{1} << w;
          all_value = sets_.both(all_value, shape.witnesses[w].value);
        }
        if (std::popcount(all) > 1 && all_value != ValueSets::kNothing)
          k.claims.push_back({rule_of(all_value), all});
      }
      o.classes.push_back(std::move(k));
    }
    for (const auto& r : shape.required) {
      o.required.push_back(bit_of[r]);
    }
    for (const auto& [from, to] : shape.implies) o.implies.push_back({bit_of[from], bit_of[to]});
    // A listed key that the key automaton never accepts (propertyNames forbids it) has no class: it is
    // unusable.
    std::vector<uint8_t> has_class(names.size(), 0);
    for (const KeyClass& k : o.classes)
      if (k.tracked) has_class[k.bit] = 1;
    for (uint32_t b = 0; b < names.size(); ++b)
      if (!has_class[b]) {
        KeyClass k;
        k.tracked = true;
        k.bit = b;
        o.classes.push_back(k);
      }
    o.min_properties = clipped(shape.min);
    o.max_properties = clipped(shape.max);
    o.num_witnesses = static_cast<uint32_t>(shape.witnesses.size());
    // Repeating an unlisted key must not count twice, nor replace a value that something relied on.
    o.remember_keys = untracked && (o.min_properties > shape.required.size() || o.num_witnesses > 0);
    o.accept_class = std::move(keys.accept_class);
    o.keys = std::make_shared<const Dfa>(std::move(keys.dfa));
    g_.objects.push_back(std::move(o));
    return static_cast<uint32_t>(g_.objects.size() - 1);
  }

  // ---- arrays

  uint32_t array(const ArrayShape& shape) {
    ArrayRule a;
    array_bits_.clear();
    a.min_items = clipped(shape.min);
    a.max_items = clipped(shape.max);
    std::vector<ContainsRule> contains;
    size_t places = 0;
    for (const ArrayGroup& g : shape.groups) places = std::max(places, g.prefix.size());
    for (const ContainsRule& c : shape.contains) {
      if (c.min == 0 && c.max == ~uint64_t{0}) continue;
      contains.push_back(c);
      places = std::max<size_t>(places, std::min<uint64_t>(c.from, 4000));
      a.contains.push_back({clipped(c.min), clipped(c.max)});
    }
    require(contains.size() <= 4, ErrorCode::kLimitExceeded,
            "an array has more than 4 'contains' that hold at once (limit on alternatives)");
    places = std::min<size_t>(places, a.max_items);
    a.unique = shape.unique;
    a.repeats = a.unique_by_text = shape.repeats;
    for (size_t i = 0; i < places; ++i) a.prefix.push_back(choices(shape, contains, i, a));
    a.rest = choices(shape, contains, places, a);
    if (a.unique && !a.unique_by_text && a.prefix.empty() && a.max_items > a.num_unique_bits)
      a.max_items = a.num_unique_bits;
    g_.arrays.push_back(std::move(a));
    return static_cast<uint32_t>(g_.arrays.size() - 1);
  }

  std::vector<ArrayChoice> choices(const ArrayShape& shape, const std::vector<ContainsRule>& contains,
                                   size_t index, ArrayRule& a) {
    SetId item = ValueSets::kEverything;
    for (const ArrayGroup& g : shape.groups)
      item = sets_.both(item, index < g.prefix.size() ? g.prefix[index] : g.rest);
    std::vector<std::pair<SetId, uint32_t>> sets{{item, 0}};
    for (size_t j = 0; j < contains.size(); ++j) {
      const ContainsRule& c = contains[j];
      if (index < c.from) continue;
      std::vector<std::pair<SetId, uint32_t>> split;
      for (const auto& [s, bits] : sets) {
        split.push_back({sets_.both(s, c.value), bits | (1u << j)});
        // Without an upper bound an item that counts may also go uncounted: no complement is needed.
        split.push_back({c.max == ~uint64_t{0} ? s : sets_.both(s, sets_.complement(c.value)), bits});
      }
      sets = std::move(split);
    }
    std::vector<ArrayChoice> out;
    for (const auto& [s, bits] : sets) {
      if (s == ValueSets::kNothing) continue;
      if (a.unique) {
        unique_choices(s, bits, a, out);
      } else {
        out.push_back({rule_of(s), bits, kNone});
      }
    }
    return out;
  }

  // With uniqueItems, values that are few are separate choices, each usable once; the others are remembered
  // by value.
  void unique_choices(SetId set, uint32_t bits, ArrayRule& a, std::vector<ArrayChoice>& out) {
    Shapes others;
    const Shapes shapes = sets_.expand(set);
    const auto add = [&](const std::string& key, Shape s) {
      const auto [it, fresh] = unique_sets_.try_emplace(key, 0);
      if (fresh) it->second = sets_.of_shapes({std::move(s)});
      // Bits are numbered within one array.
      const auto [bit, first] = array_bits_.try_emplace(key, a.num_unique_bits);
      if (first) ++a.num_unique_bits;
      out.push_back({rule_of(it->second), bits, bit->second});
    };
    for (const Shape& s : shapes) {
      if (s.type == JsonType::kNull) {
        add("n", s);
        continue;
      }
      if (s.type == JsonType::kBoolean) {
        for (uint8_t b : {uint8_t{1}, uint8_t{2}})
          if (s.booleans & b) {
            Shape t = s;
            t.booleans = b;
            add(b == 2 ? "t" : "f", t);
          }
        continue;
      }
      if (s.type == JsonType::kNumber && s.values && s.values->size() <= kFewValues) {
        for (const Decimal& d : *s.values) {
          Shape t = sets_.number_shape(sets_.algebra().both(s.set, sets_.numbers().value(d)));
          if (!t.set.sure->never()) add("#" + d.text(), t);
        }
        continue;
      }
      if (s.type == JsonType::kNumber && !s.values &&
          sets_.algebra()
              .combined(s.set.sure, sets_.numbers().integers().sure, SetOperation::kMinus)
              ->never()) {
        // After "1" has been used "1." would lead nowhere.
        const auto plain =
            sets_.algebra().combined(s.set.sure, sets_.numbers().plain_integers(), SetOperation::kAnd);
        const auto few = enumerate(*plain, kFewValues);
        if (!few) {
          // Nothing can follow a zero either, so it is a constant of its own.
          Decimal zero;
          Shape t = s;
          t.set.sure = plain;
          if (plain->accepts_utf8("0")) {
            const FuzzySet zeros = sets_.numbers().value(Decimal{});
            add("#0", sets_.number_shape(sets_.algebra().both(s.set, zeros)));
            t.set.sure = sets_.algebra().combined(plain, zeros.sure, SetOperation::kMinus);
          }
          others.push_back(std::move(t));
          continue;
        }
        for (const auto& w : *few) {
          const Decimal d = decimal_of_text(encode_utf8(w));
          if (w == U"-0" && plain->accepts_utf8("0")) continue;
          add("#" + d.text(), sets_.number_shape(sets_.algebra().both(s.set, sets_.numbers().value(d))));
        }
        continue;
      }
      if (s.type == JsonType::kString && s.min == 0 && s.max == ~uint64_t{0}) {
        const auto few = enumerate(*s.set.sure, kFewValues);
        if (few) {
          for (const auto& w : *few)
            add("\"" + encode_utf8(w), sets_.string_shape(FuzzySet::crisp(from_words({w}, budget_))));
          continue;
        }
      }
      if (s.constant) {
        add(*s.constant, s);
        continue;
      }
      if (s.type == JsonType::kArray && s.array && s.array->max == 0) {
        add("[]", s);
        continue;
      }
      others.push_back(s);
    }
    if (others.empty()) return;
    a.unique_by_text = true;
    out.push_back({rule_of(sets_.of_shapes(std::move(others))), bits, kNone});
  }

  ValueSets& sets_;
  Budget& budget_;
  Grammar g_;
  bool around_ = true;
  std::unordered_map<SetId, RuleId> rules_;
  std::vector<std::pair<SetId, RuleId>> todo_;
  std::unordered_map<std::string, uint32_t> strings_;
  std::unordered_map<const Dfa*, RuleId> numbers_;
  std::map<std::string, SetId> unique_sets_;
  std::map<std::string, uint32_t> array_bits_;  ///< of the array being made
};

}  // namespace

Grammar json_schema_grammar(std::string_view schema, const JsonOptions& options, Budget& budget) {
  SchemaReader reader(schema, budget);
  const SetId root = reader.root();
  require(!reader.sets().expand(root).empty(), ErrorCode::kInvalidArgument,
          "#: the schema contradicts itself: no value can satisfy it");
  Emitter emitter(reader.sets(), options, budget);
  return emitter.run(root);
}

Grammar json_grammar(AnyJson what, const JsonOptions& options, Budget& budget) {
  return json_schema_grammar(what == AnyJson::kObject ? R"({"type": "object"})" : "true", options, budget);
}

}  // namespace millrace::grammar
