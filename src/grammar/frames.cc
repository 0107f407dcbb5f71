// Frames of JSON objects and arrays: which keys were seen, how many items, what is still owed.

#include <algorithm>

#include "core/error.h"
#include "grammar/machine.h"
#include "grammar/plain_room.h"
#include "grammar/string_candidates.h"
#include "grammar/string_step.h"
#include "grammar/value_hash.h"

namespace millrace::grammar {

namespace {

bool insert_hash(std::vector<uint64_t>& words, size_t from, uint64_t hash) {
  const auto it = std::lower_bound(words.begin() + static_cast<ptrdiff_t>(from), words.end(), hash);
  if (it != words.end() && *it == hash) return false;
  words.insert(it, hash);
  return true;
}

}  // namespace

// Record of an object: count, class of the key just read, a word that is 0, witnesses claimed, then the words
// of the set of tracked keys, then hashes of remembered keys.
class ObjectFrame {
 public:
  static constexpr size_t kCount = 0, kClass = 1, kWitnesses = 3, kSeen = 4;

  ObjectFrame(const CompiledObject& o, std::span<const uint64_t> record)
      : o_(o), words_(record.begin(), record.end()) {}
  static std::vector<uint64_t> initial(const CompiledObject& o) {
    return std::vector<uint64_t>(kSeen + o.words, 0);
  }

  std::vector<uint64_t>& words() { return words_; }
  bool seen(uint32_t bit) const { return (words_[kSeen + (bit >> 6)] >> (bit & 63)) & 1; }
  uint64_t all_witnesses() const {
    return o_.rule.num_witnesses == 0 ? 0 : ~uint64_t{0} >> (64 - o_.rule.num_witnesses);
  }
  int witnesses_owed() const { return std::popcount(all_witnesses() & ~words_[kWitnesses]); }

  /// Keys that must still come once `also` (or kNone) is taken as well.
  uint64_t owed(uint32_t also) {
    if (!need_valid_) {
      need_valid_ = true;
      need_ = o_.required;
      if (!o_.rule.implies.empty()) {
        for (uint32_t b = 0; b < o_.rule.num_tracked; ++b)
          if (seen(b) || ((need_[b >> 6] >> (b & 63)) & 1)) close_over(need_, b);
      }
    }
    if (also == kNone) return missing(need_, kNone);
    if (o_.implied_by[also].empty()) return missing(need_, also);
    std::vector<uint64_t> more = need_;
    close_over(more, also);
    return missing(more, also);
  }

  bool room_for(uint32_t bit, const KeyClass& k) {
    const uint32_t max = o_.rule.max_properties;
    if (max == kUnlimited) return true;
    int owed_witnesses = witnesses_owed(), best = 0;
    for (const auto& c : k.claims) best = std::max(best, std::popcount(c.second & ~words_[kWitnesses]));
    return words_[kCount] + 1 + owed(bit) + static_cast<uint64_t>(owed_witnesses - best) <= max;
  }
  bool tracked_allowed(uint32_t bit) {
    return o_.bit_usable[bit] && !seen(bit) && room_for(bit, o_.rule.classes[o_.bit_class[bit]]);
  }
  bool untracked_allowed() {
    if (o_.untracked_usable == 0) return false;
    if (o_.rule.max_properties == kUnlimited) return true;
    for (const KeyClass& k : o_.rule.classes)
      if (!k.tracked && (k.value != kNone || !k.claims.empty()) && room_for(kNone, k)) return true;
    return false;
  }
  bool class_allowed(uint32_t cls) {
    const KeyClass& k = o_.rule.classes[cls];
    if (k.tracked) return tracked_allowed(k.bit);
    return (k.value != kNone || !k.claims.empty()) && room_for(kNone, k);
  }
  /// Whether some key that starts like key state `s` may be used now.
  bool alive(uint32_t s) {
    if (o_.reach_untracked[s] && untracked_allowed()) return true;
    const uint64_t* reach = o_.reach_tracked.data() + size_t{s} * o_.words;
    for (uint32_t w = 0; w < o_.words; ++w) {
      uint64_t left = reach[w] & ~words_[kSeen + w];
      if (o_.rule.max_properties == kUnlimited && left) return true;
      while (left) {
        const uint32_t bit = w * 64 + static_cast<uint32_t>(std::countr_zero(left));
        if (tracked_allowed(bit)) return true;
        left &= left - 1;
      }
    }
    return false;
  }
  bool another_key() { return o_.rule.keys->size() > 0 && alive(0); }
  bool may_close() {
    return words_[kCount] >= o_.rule.min_properties && owed(kNone) == 0 && witnesses_owed() == 0;
  }
  void take(uint32_t cls) {
    const KeyClass& k = o_.rule.classes[cls];
    words_[kClass] = cls;
    if (k.tracked) words_[kSeen + (k.bit >> 6)] |= uint64_t{1} << (k.bit & 63);
    const bool bounded = o_.rule.max_properties != kUnlimited;
    if (bounded || words_[kCount] < o_.rule.min_properties) ++words_[kCount];
    need_valid_ = false;
  }

 private:
  void close_over(std::vector<uint64_t>& set, uint32_t bit) const {
    std::vector<uint32_t> stack(o_.implied_by[bit].begin(), o_.implied_by[bit].end());
    while (!stack.empty()) {
      const uint32_t b = stack.back();
      stack.pop_back();
      if ((set[b >> 6] >> (b & 63)) & 1) continue;
      set[b >> 6] |= uint64_t{1} << (b & 63);
      stack.insert(stack.end(), o_.implied_by[b].begin(), o_.implied_by[b].end());
    }
  }
  uint64_t missing(const std::vector<uint64_t>& need, uint32_t also) const {
    uint64_t n = 0;
    for (uint32_t w = 0; w < o_.words; ++w) n += std::popcount(need[w] & ~words_[kSeen + w]);
    if (also != kNone && ((need[also >> 6] >> (also & 63)) & 1) && !seen(also)) --n;
    return n;
  }

  const CompiledObject& o_;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> need_;
  bool need_valid_ = false;
};

void Machine::step_object(const Item& item, const ProgramRule& rule, uint8_t byte) {
  using namespace object_at;
  const CompiledObject& o = program_->objects[rule.index];
  const Position at = item.position - rule.start;
  if (at == kOpen) {
    if (byte == '{') emit(rule.start + kFirst, item.node, item.reg);
    return;
  }
  if (at < kKey && white(byte)) {
    emit(item.position, item.node, item.reg);
    return;
  }
  if (at == kColon) {
    if (byte == ':') emit(rule.start + kValue, item.node, item.reg);
    return;
  }
  if (at >= kKey) return step_key(item, rule, o, byte);
  ObjectFrame f(o, record(item.reg));
  switch (at) {
    case kFirst:
    case kNext:
      if (byte == '"' && f.another_key()) {
        const uint64_t string = StringRegister{string_phase::kChar, 0, 0}.pack();
        const uint32_t rest = o.free_string[0];
        if (rest != kNone) return enter_key_rest(item, rule, o, 0, f.words(), string);
        emit(rule.start + kKey, item.node, string << 32 | item.reg);
      } else if (byte == '}' && at == kFirst && f.may_close()) {
        finish(item.node, results_);
      }
      return;
    case kAfterValue:
      if (byte == ',' && f.another_key()) emit(rule.start + kNext, item.node, item.reg);
      if (byte == '}' && f.may_close()) finish(item.node, results_);
      return;
    case kValue: {
      const KeyClass& k = o.rule.classes[f.words()[ObjectFrame::kClass]];
      f.words()[ObjectFrame::kClass] = 0;
      const uint64_t claimed = f.words()[ObjectFrame::kWitnesses];
      const auto fits = [&] {
        return o.rule.max_properties == kUnlimited ||
               f.words()[ObjectFrame::kCount] + f.owed(kNone) + static_cast<uint64_t>(f.witnesses_owed()) <=
                   o.rule.max_properties;
      };
      if (k.value != kNone && program_->rules[k.value].first.test(byte) && fits())
        add_call(k.value, {rule.start + kAfterValue, item.node, intern_record(f.words())});
      for (const auto& [value, bits] : k.claims) {
        if (!program_->rules[value].first.test(byte) || (bits & ~claimed) == 0) continue;
        f.words()[ObjectFrame::kWitnesses] = claimed | bits;
        if (fits()) add_call(value, {rule.start + kAfterValue, item.node, intern_record(f.words())});
        f.words()[ObjectFrame::kWitnesses] = claimed;
      }
      return;
    }
    default:
      break;
  }
}

const uint64_t* Machine::key_facts(uint32_t object, uint64_t reg) {
  const uint64_t name = uint64_t{object} << 32 | static_cast<uint32_t>(reg);
  uint32_t at = facts_of_.find(name);
  if (at == NumberMap::kNone) {
    const CompiledObject& o = program_->objects[object];
    ObjectFrame f(o, record(reg));
    at = static_cast<uint32_t>(object_facts_.size());
    object_facts_.resize(object_facts_.size() + o.words + 1, 0);
    for (uint32_t b = 0; b < o.rule.num_tracked; ++b)
      if (f.tracked_allowed(b)) object_facts_[at + (b >> 6)] |= uint64_t{1} << (b & 63);
    object_facts_[at + o.words] = f.untracked_allowed() ? 1 : 0;
    facts_of_.insert(name, at);
  }
  return object_facts_.data() + at;
}

// Whether some key that starts like key state `s` may be used now.
bool Machine::key_alive(const CompiledObject& o, const uint64_t* facts, uint32_t s) const {
  if (o.reach_untracked[s] && facts[o.words]) return true;
  const uint64_t* reach = o.reach_tracked.data() + size_t{s} * o.words;
  for (uint32_t w = 0; w < o.words; ++w)
    if (reach[w] & facts[w]) return true;
  return false;
}

void Machine::step_key(const Item& item, const ProgramRule& rule, const CompiledObject& o, uint8_t byte) {
  using namespace object_at;
  uint32_t state = item.position - rule.start - kKey;
  StringRegister r = StringRegister::unpack(key_register(item.reg));
  const uint64_t* facts = key_facts(rule.index, item.reg);
  const StringResult result = step_string(
      *o.rule.keys, state, r, byte, [&](uint32_t t, uint64_t) { return key_alive(o, facts, t); },
      [](uint64_t) { return 0; },
      [&](uint32_t t, uint64_t) {
        const uint32_t cls = o.rule.accept_class[t];
        if (cls == kNone) return false;
        const KeyClass& k = o.rule.classes[cls];
        if (k.tracked) return ((facts[k.bit >> 6] >> (k.bit & 63)) & 1) != 0;
        return ObjectFrame(o, record(item.reg)).class_allowed(cls);
      });
  if (result == StringResult::kInside) {
    if (string_phase::settled(r.phase) && o.free_string[state] != kNone) {
      const auto words = record(item.reg);
      return enter_key_rest(item, rule, o, state, {words.begin(), words.end()}, r.pack());
    }
    emit(rule.start + kKey + state, item.node, r.pack() << 32 | (item.reg & 0xffffffff));
  } else if (result == StringResult::kClosed) {
    ObjectFrame f(o, record(item.reg));
    const uint32_t cls = o.rule.accept_class[state];
    f.take(cls);
    const bool compare = o.rule.remember_keys && !o.rule.classes[cls].tracked;
    emit(rule.start + (compare ? kUntrackedKey : kColon), item.node, intern_record(f.words()));
  }
}

bool Machine::key_place(StateId s, KeyPlace& place) const {
  if (states_[s].count != 1 || states_[s].guarded || states_[s].escaped) return false;
  const Item& item = state_items_[states_[s].first];
  const ProgramRule& rule = program_->rules[program_->rule_of[item.position]];
  if (rule.kind != ProgramRuleKind::kObject || item.position - rule.start < object_at::kKey) return false;
  if (program_->objects[rule.index].looping[item.position - rule.start - object_at::kKey]) return false;
  place = {item, item.position - rule.start - object_at::kKey, key_register(item.reg)};
  return true;
}

Machine::KeyStep Machine::step_key(KeyPlace& place, uint8_t byte) {
  const ProgramRule& rule = program_->rules[program_->rule_of[place.item.position]];
  const CompiledObject& o = program_->objects[rule.index];
  StringRegister r = StringRegister::unpack(place.reg);
  if (byte == '"' && r.phase == string_phase::kChar)
    return o.rule.accept_class[place.state] == kNone ? KeyStep::kDead : KeyStep::kLeaves;
  const uint64_t* facts = key_facts(rule.index, place.item.reg);
  uint32_t state = place.state;
  const StringResult result = step_string(
      *o.rule.keys, state, r, byte, [&](uint32_t t, uint64_t) { return key_alive(o, facts, t); },
      [](uint64_t) { return 0; }, [](uint32_t, uint64_t) { return true; });
  if (result == StringResult::kDead) return KeyStep::kDead;
  if (result == StringResult::kClosed || o.looping[state] ||
      (string_phase::settled(r.phase) && o.free_string[state] != kNone))
    return KeyStep::kLeaves;
  place.state = state;
  place.reg = r.pack();
  return KeyStep::kInside;
}

Item Machine::item_of(const KeyPlace& place) const {
  const ProgramRule& rule = program_->rules[program_->rule_of[place.item.position]];
  return {rule.start + object_at::kKey + place.state, place.item.node,
          place.reg << 32 | (place.item.reg & 0xffffffff)};
}

uint64_t Machine::key_room(const Item& item, const ProgramRule& rule) const {
  const Position at = item.position - rule.start;
  if (at < object_at::kKey) return 0;
  const CompiledObject& o = program_->objects[rule.index];
  const uint16_t room = o.plain_room[at - object_at::kKey];
  if (room == kNoTelling) return 0;
  const auto words = record(item.reg);
  if (StringRegister::unpack(key_register(item.reg)).phase != string_phase::kChar) return 0;
  if (!ObjectFrame(o, words).untracked_allowed()) return 0;
  return room == kEndless ? ~uint64_t{0} : room;
}

// No tracked key can come any more: the rest of the key is read by a plain string frame, which then returns
// to the place after the key.
void Machine::enter_key_rest(const Item& item, const ProgramRule& rule, const CompiledObject& o,
                             uint32_t state, const std::vector<uint64_t>& words, uint64_t string) {
  ObjectFrame f(o, words);
  f.take(o.free_class[state]);
  const Position to = rule.start + (o.rule.remember_keys ? object_at::kUntrackedKey : object_at::kColon);
  std::vector<Item> callers{{to, item.node, intern_record(f.words())}};
  emit(o.free_string[state], intern_node(callers), string);
}

// Record of an array: index, contains counters, words of constants used, with `repeats` whether two items
// were equal, then (compared by text) the offset where the current item starts and the sorted hashes of the
// items before.
class ArrayFrame {
 public:
  ArrayFrame(const ArrayRule& a, std::span<const uint64_t> record)
      : a_(a), words_(record.begin(), record.end()) {}
  static std::vector<uint64_t> initial(const ArrayRule& a) {
    return std::vector<uint64_t>(1 + a.contains.size() + (a.num_unique_bits + 63) / 64 + (a.repeats ? 1 : 0) +
                                     (a.unique_by_text ? 1 : 0),
                                 0);
  }
  std::vector<uint64_t>& words() { return words_; }
  uint64_t index() const { return words_[0]; }
  uint64_t& contains(size_t j) { return words_[1 + j]; }
  uint64_t& unique_word(uint32_t bit) { return words_[1 + a_.contains.size() + (bit >> 6)]; }
  uint64_t& repeated() { return words_[1 + a_.contains.size() + (a_.num_unique_bits + 63) / 64]; }
  size_t start_slot() const {
    return 1 + a_.contains.size() + (a_.num_unique_bits + 63) / 64 + (a_.repeats ? 1 : 0);
  }
  /// Takes in an item that has ended; false when the array cannot hold it.
  bool compare(uint64_t hash) {
    if (!a_.repeats) return insert_hash(words_, start_slot() + 1, hash);
    if (repeated() == 0 && !insert_hash(words_, start_slot() + 1, hash)) repeated() = 1;
    return repeated() != 0 || index() < a_.max_items;
  }

  const std::vector<ArrayChoice>& choices() const {
    return index() < a_.prefix.size() ? a_.prefix[index()] : a_.rest;
  }
  bool used(const ArrayChoice& c) {
    return c.unique_bit != kNone && ((unique_word(c.unique_bit) >> (c.unique_bit & 63)) & 1);
  }

  /// Moves past an item of choice `c`; false when the array could not be completed afterwards.
  bool take(const ArrayChoice& c) {
    if (index() >= a_.max_items || used(c)) return false;
    for (size_t j = 0; j < a_.contains.size(); ++j)
      if ((c.contains >> j) & 1) {
        const bool unlimited = a_.contains[j].max == kUnlimited;
        if (!unlimited && contains(j) >= a_.contains[j].max) return false;
        if (!unlimited || contains(j) < a_.contains[j].min) ++contains(j);
      }
    if (c.unique_bit != kNone) unique_word(c.unique_bit) |= uint64_t{1} << (c.unique_bit & 63);
    const uint64_t next = index() + 1;
    const uint64_t settled = std::max<uint64_t>(a_.prefix.size(), a_.min_items);
    words_[0] = a_.max_items == kUnlimited && next > settled ? settled : next;
    return completable(next);
  }
  bool may_close() {
    if (index() < a_.min_items) return false;
    for (size_t j = 0; j < a_.contains.size(); ++j)
      if (contains(j) < a_.contains[j].min) return false;
    return true;
  }
  /// Whether another item can start here and the array be completed after it.
  bool another() {
    for (const ArrayChoice& c : choices()) {
      ArrayFrame after = *this;
      if (after.take(c)) return true;
    }
    return false;
  }

 private:
  bool completable(uint64_t next) {
    const uint64_t room = a_.max_items == kUnlimited ? ~uint64_t{0} : a_.max_items - next;
    uint64_t owed = 0;
    for (size_t j = 0; j < a_.contains.size(); ++j) {
      const uint64_t missing = a_.contains[j].min > contains(j) ? a_.contains[j].min - contains(j) : 0;
      if (missing == 0) continue;
      uint64_t chances = 0;
      const auto offers = [&](const std::vector<ArrayChoice>& list) {
        return std::any_of(list.begin(), list.end(),
                           [&](const ArrayChoice& c) { return (c.contains >> j) & 1; });
      };
      for (uint64_t i = next; i < a_.prefix.size(); ++i) chances += offers(a_.prefix[i]);
      if (offers(a_.rest)) {
        const uint64_t past = std::max<uint64_t>(next, a_.prefix.size());
        chances = a_.max_items == kUnlimited
                      ? ~uint64_t{0}
                      : chances + (a_.max_items - std::min<uint64_t>(past, a_.max_items));
      }
      if (chances < missing) return false;
      owed +=
          missing;  // one item may pay several of them: this asks for too much room rather than too little
    }
    if (owed > room) return false;
    if (a_.unique && next < a_.min_items && a_.num_unique_bits > 0 && !a_.unique_by_text) {
      uint64_t free = 0;
      for (const ArrayChoice& c : a_.rest) free += !used(c);
      const uint64_t fixed = next < a_.prefix.size() ? a_.prefix.size() - next : 0;
      if (next + fixed + free < a_.min_items) return false;
    }
    return true;
  }
  const ArrayRule& a_;
  std::vector<uint64_t> words_;
};

void Machine::step_array(const Item& item, const ProgramRule& rule, uint8_t byte) {
  using namespace array_at;
  const ArrayRule& a = program_->arrays[rule.index];
  const Position at = item.position - rule.start;
  if (at == kOpen) {
    if (byte == '[') emit(rule.start + (a.unique_by_text ? kCheckOpen : kFirst), item.node, item.reg);
    return;
  }
  if (white(byte)) {
    emit(at == kReturned ? rule.start + kCheckSpace : item.position, item.node, item.reg);
    return;
  }
  ArrayFrame f(a, record(item.reg));
  switch (at) {
    case kFirst:
      if (byte == ']') {
        if (f.may_close()) finish(item.node, results_);
        return;
      }
      [[fallthrough]];
    case kNext:
      for (const ArrayChoice& c : f.choices()) {
        if (!program_->rules[c.value].first.test(byte)) continue;
        ArrayFrame after = f;
        if (!after.take(c)) continue;
        add_call(c.value, {rule.start + (a.unique_by_text ? kReturned : kAfterItem), item.node,
                           intern_record(after.words())});
      }
      return;
    case kAfterItem:
    case kReturned:
      if (byte == ',' && f.another())
        emit(rule.start + (at == kReturned    ? kCheckComma
                           : a.unique_by_text ? kCheckNext
                                              : kNext),
             item.node, item.reg);
      if (byte == ']' && f.may_close() && (at == kReturned || !a.repeats || f.repeated() != 0)) {
        if (at == kReturned) {
          emit(rule.start + kCheckClose, item.node, item.reg);
        } else {
          finish(item.node, results_);
        }
      }
      return;
    default:
      return;
  }
}

void Machine::add_object_candidates(const Item& item, const ProgramRule& rule, ByteSet& set) {
  using namespace object_at;
  const CompiledObject& o = program_->objects[rule.index];
  const Position at = item.position - rule.start;
  if (at >= kKey) {
    const uint64_t* facts = key_facts(rule.index, item.reg);
    const uint32_t state = at - kKey;
    return add_string_candidates(
        *o.rule.keys, state, key_register(item.reg), o.rule.accept_class[state] != kNone,
        [&](uint32_t t) { return key_alive(o, facts, t); }, set);
  }
  if (at != kOpen && program_->whitespace == Whitespace::kFlexible) add_white(set);
  switch (at) {
    case kOpen:
      return set.set('{');
    case kFirst:
      set.set('}');
      return set.set('"');
    case kNext:
      return set.set('"');
    case kColon:
      return set.set(':');
    case kValue: {
      const KeyClass& k = o.rule.classes[record(item.reg)[ObjectFrame::kClass]];
      if (k.value != kNone) set |= program_->rules[k.value].first;
      for (const auto& claim : k.claims) set |= program_->rules[claim.first].first;
      return;
    }
    case kAfterValue:
      set.set(',');
      return set.set('}');
    default:
      return set.set_range(0, 255);
  }
}

void Machine::add_array_candidates(const Item& item, const ProgramRule& rule, ByteSet& set) {
  using namespace array_at;
  const ArrayRule& a = program_->arrays[rule.index];
  const Position at = item.position - rule.start;
  if (at == kOpen) return set.set('[');
  if (program_->whitespace == Whitespace::kFlexible) add_white(set);
  if (at == kFirst || at == kNext) {
    for (const ArrayChoice& c : ArrayFrame(a, record(item.reg)).choices())
      set |= program_->rules[c.value].first;
    if (at == kFirst) set.set(']');
  } else {
    set.set(',');
    set.set(']');
  }
}

uint64_t Machine::initial_register(uint32_t rule) {
  const ProgramRule& r = program_->rules[rule];
  if (r.kind == ProgramRuleKind::kObject)
    return intern_record(ObjectFrame::initial(program_->objects[r.index]));
  if (r.kind == ProgramRuleKind::kArray) return intern_record(ArrayFrame::initial(program_->arrays[r.index]));
  return 0;
}

namespace {

// The key whose closing quote is the last byte: back to the nearest quote that no backslash escapes.
std::string_view last_string(std::string_view text) {
  for (size_t i = text.size() - 1; i-- > 0;) {
    if (text[i] != '"') continue;
    size_t slashes = 0;
    while (slashes < i && text[i - 1 - slashes] == '\\') ++slashes;
    if (slashes % 2 == 0) return text.substr(i);
  }
  return text;
}

}  // namespace

StateId Machine::resolve(StateId s, std::string_view text) {
  // An array that ends may itself be an item that is compared.
  while (s != kDeadState && states_[s].guarded) s = resolve_once(s, text);
  return s;
}

StateId Machine::resolve_once(StateId s, std::string_view text) {
  std::vector<Item> out;
  const std::vector<Item> in(items(s).begin(), items(s).end());
  for (const Item& item : in) {
    if (item.position == kEscaped) {
      out.push_back(item);
      continue;
    }
    const ProgramRule& rule = program_->rules[program_->rule_of[item.position]];
    const Position at = item.position - rule.start;
    if (rule.kind == ProgramRuleKind::kObject && at == object_at::kUntrackedKey) {
      const CompiledObject& o = program_->objects[rule.index];
      ObjectFrame f(o, record(item.reg));
      if (insert_hash(f.words(), ObjectFrame::kSeen + o.words, json_value_hash(last_string(text))))
        out.push_back({rule.start + object_at::kColon, item.node, intern_record(f.words())});
      continue;
    }
    if (rule.kind != ProgramRuleKind::kArray || at < array_at::kCheckSpace || at == array_at::kReturned) {
      out.push_back(item);
      continue;
    }
    const ArrayRule& a = program_->arrays[rule.index];
    ArrayFrame f(a, record(item.reg));
    const size_t slot = f.start_slot();
    if (at == array_at::kCheckOpen || at == array_at::kCheckNext) {
      f.words()[slot] = text.size();
      out.push_back({rule.start + (at == array_at::kCheckOpen ? array_at::kFirst : array_at::kNext),
                     item.node, intern_record(f.words())});
      continue;
    }
    const auto start = static_cast<size_t>(f.words()[slot]);
    const size_t end = text.size() - (at == array_at::kCheckEnd ? 0 : 1);
    if (!f.compare(json_value_hash(text.substr(start, end - start)))) continue;
    if (at == array_at::kCheckClose) {
      if (!a.repeats || f.repeated() != 0) finish(item.node, out);
      continue;
    }
    if (at == array_at::kCheckEnd) {
      out.push_back({rule.start + array_at::kAfterItem, item.node, intern_record(f.words())});
      continue;
    }
    f.words()[slot] = text.size();
    out.push_back({rule.start + (at == array_at::kCheckSpace ? array_at::kAfterItem : array_at::kNext),
                   item.node, intern_record(f.words())});
  }
  return intern_state(out);
}

}  // namespace millrace::grammar
