// Runs a program over bytes. Configurations (sets of automaton positions with their stacks) are interned: a
// stack is a number, equal stacks are the same number, and a step that was once taken is remembered. So forks
// and rollbacks copy one number, and walking a vocabulary costs a table look-up per byte.
//
// Not thread-safe; the matchers that share a machine serialise its use.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/hash_index.h"
#include "grammar/program.h"

namespace millrace::grammar {

using StateId = uint32_t;
using NodeId = uint32_t;
inline constexpr StateId kDeadState = 0;

/// Bottom of the real stack, and of one whose lower part is unknown.
inline constexpr NodeId kBottom = 0, kUnknown = 1;
/// Position of the item that stands for "returned into the unknown part of the stack".
inline constexpr Position kEscaped = ~Position{0};

/// One place where the automaton may be: a position, what its frame holds, and whom it returns to.
struct Item {
  Position position = 0;
  NodeId node = 0;
  uint64_t reg = 0;
  bool operator==(const Item&) const = default;
  bool operator<(const Item& o) const {
    return position != o.position ? position < o.position : node != o.node ? node < o.node : reg < o.reg;
  }
};

class Machine {
 public:
  explicit Machine(std::shared_ptr<const Program> program);

  const Program& program() const { return *program_; }
  StateId start();
  /// Configuration after one byte; kDeadState when none is left. A guarded result must go through resolve().
  StateId step(StateId state, uint8_t byte);
  /// Whether some frame of the configuration waits for a comparison with earlier text.
  bool guarded(StateId s) const { return states_[s].guarded; }
  /// Settles the guards. `text` is the output from its start up to and including the last byte read.
  StateId resolve(StateId s, std::string_view text);
  bool can_end(StateId s);
  /// Whether nothing can follow.
  bool finished(StateId s);
  /// Superset of the bytes that may come next; remembered.
  const ByteSet& candidates(StateId s);

  std::span<const Item> items(StateId s) const {
    return {state_items_.data() + states_[s].first, states_[s].count};
  }
  std::span<const Item> callers(NodeId n) const {
    return {node_items_.data() + nodes_[n].first, nodes_[n].count};
  }
  /// What an object's or array's frame holds. The register's low half numbers the record; inside a key the
  /// high half is the string's register, so that the bytes of a key need no records of their own.
  std::span<const uint64_t> record(uint64_t reg) const {
    const Record& r = records_[static_cast<uint32_t>(reg)];
    return {record_words_.data() + r.first, r.count};
  }
  static uint64_t key_register(uint64_t reg) { return reg >> 32; }
  /// Another number for every machine, and whenever numbers of nodes and states lose their meaning.
  uint64_t generation() const { return generation_; }
  bool escaped(StateId s) const { return states_[s].escaped; }
  /// Whether the configuration is nothing but an escape.
  bool only_escaped(StateId s) const { return states_[s].escaped && states_[s].count == 1; }
  /// Content hash, the same in every machine of the program.
  uint64_t hash(StateId s) const { return states_[s].hash; }

  /// The configuration of `item` alone, its stack cut below its frame, with a key that names it in any
  /// machine of any program.
  StateId cut(const Item& item, std::string& key);
  /// The items of `s` and of every frame that they can return to without a byte.
  void closure(StateId s, std::vector<Item>& out);
  /// `s` without its escape.
  StateId without_escape(StateId s);
  /// Inside strings, between two characters: n when exactly the plain texts (see plain_room.h) of at most n
  /// characters can come next, ~0 when all can; 0 when that cannot be told.
  uint64_t plain_room(StateId s) const;
  uint64_t plain_room(const Item& item) const;

  /// A place inside a key of an object, stepped without making configurations: a walk over a vocabulary
  /// visits most of them once.
  struct KeyPlace {
    Item item;
    uint32_t state = 0;  ///< of the automaton of keys
    uint64_t reg = 0;    ///< the string's register
  };
  /// Whether `s` is one such place and nothing else, of those that a text does not stay at.
  bool key_place(StateId s, KeyPlace& place) const;
  enum class KeyStep : uint8_t {
    kDead,
    kInside,  ///< `place` was moved
    kLeaves,  ///< where the key ends, is free, or repeats a character: to be stepped as a configuration
  };
  KeyStep step_key(KeyPlace& place, uint8_t byte);
  Item item_of(const KeyPlace& place) const;
  StateId state_of(const KeyPlace& place) {
    std::vector<Item> items{item_of(place)};
    return intern_state(items);
  }

  /// Bytes below 128 that lead from `s` to itself; with `utf8`, whether every character beyond does.
  struct Loops {
    uint64_t ascii[2] = {0, 0};
    bool utf8 = false;
  };
  const Loops* loops(StateId s);

  size_t bytes() const;
  size_t num_states() const { return states_.size(); }
  /// Forgets everything but `keep`, whose numbers are replaced.
  void compact(const std::vector<StateId*>& keep);

 private:
  struct State {
    uint32_t first = 0, count = 0;
    uint64_t hash = 0;
    uint32_t dense = ~uint32_t{0};
    uint32_t loops = ~uint32_t{0};
    uint32_t candidates = ~uint32_t{0};
    uint16_t visits = 0, loop_asks = 0;
    bool guarded = false, escaped = false;
  };
  struct Node {
    uint32_t first = 0, count = 0;
    uint64_t hash = 0;
  };
  struct Record {
    uint32_t first = 0, count = 0;
    uint64_t hash = 0;
  };
  struct Pending {
    uint32_t rule;
    std::vector<Item> callers;
  };

  friend class ObjectFrame;
  friend class ArrayFrame;

  void reset();
  NodeId intern_node(std::vector<Item>& callers);
  StateId intern_state(std::vector<Item>& items);
  uint64_t intern_record(const std::vector<uint64_t>& words);
  uint64_t item_hash(const Item& i) const;
  StateId compute_step(StateId state, uint8_t byte);
  void step_item(const Item& item, uint8_t byte);
  void step_automaton(const Item& item, uint8_t byte);
  void step_string_item(const Item& item, uint8_t byte);
  void step_object(const Item& item, const ProgramRule& rule, uint8_t byte);
  void step_array(const Item& item, const ProgramRule& rule, uint8_t byte);
  /// A frame that returns to `node` ended with the byte just read.
  void finish(NodeId node, std::vector<Item>& out);
  bool compares_end(const Item& caller) const;
  StateId resolve_once(StateId s, std::string_view text);
  void enter_key_rest(const Item& item, const ProgramRule& rule, const CompiledObject& o, uint32_t state,
                      const std::vector<uint64_t>& words, uint64_t string);
  void add_call(uint32_t rule, const Item& caller);
  void run_calls(uint8_t byte);
  void emit(Position position, NodeId node, uint64_t reg) { results_.push_back({position, node, reg}); }
  void normalise(std::vector<Item>& items);
  uint64_t initial_register(uint32_t rule);
  bool white(uint8_t b) const {
    return (b == ' ' || b == '\n' || b == '\t' || b == '\r') && program_->whitespace == Whitespace::kFlexible;
  }
  bool may_accept(const Item& i) const;
  uint64_t key_room(const Item& item, const ProgramRule& rule) const;
  const uint64_t* key_facts(uint32_t object, uint64_t reg);
  bool key_alive(const CompiledObject& o, const uint64_t* facts, uint32_t key_state) const;
  void step_key(const Item& item, const ProgramRule& rule, const CompiledObject& o, uint8_t byte);
  ByteSet compute_candidates(StateId s);
  void add_candidates(const Item& item, ByteSet& set);
  void add_object_candidates(const Item& item, const ProgramRule& rule, ByteSet& set);
  void add_array_candidates(const Item& item, const ProgramRule& rule, ByteSet& set);
  Item named(Item item, std::string& key);
  size_t record_words_without_text(const ProgramRule& rule) const;
  void add_returns(std::vector<Item>& items, const uint8_t* byte, bool& escaped);
  bool has_record(Position p) const;

  std::shared_ptr<const Program> program_;
  std::vector<State> states_;
  std::vector<Item> state_items_;
  std::vector<Node> nodes_;
  std::vector<Item> node_items_;
  std::vector<Record> records_;
  std::vector<uint64_t> record_words_;
  HashIndex node_index_, state_index_, record_index_;
  NumberMap memo_;  ///< state * 256 + byte -> state
  std::deque<std::array<StateId, 256>> dense_;
  std::deque<ByteSet> candidates_;
  /// What a key asks of an object's frame: words of tracked keys allowed, then whether others are.
  NumberMap facts_of_;  ///< object and record -> place in object_facts_
  std::vector<uint64_t> object_facts_;
  std::vector<Loops> loops_;
  StateId start_ = 0;
  uint64_t generation_ = 0;

  // Scratch of one step.
  std::vector<Item> active_, results_;
  std::vector<Pending> pending_;
  size_t num_pending_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> queue_;  ///< heap of (rank, pending)
  std::unordered_map<uint32_t, uint32_t> pending_of_;
};

}  // namespace millrace::grammar
