// A compiled grammar: the byte-level pushdown automaton as flat tables. Immutable, shared by every matcher of
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grammar/ir.h"
#include "grammar/nfa.h"

namespace millrace::grammar {

using Position = uint32_t;
/// The position of every frame that has nothing left to do but return.
inline constexpr Position kDone = 0;

struct ByteEdge {
  uint8_t lo, hi;
  bool counts;  ///< completes one round of a counted rule
  Position target;
};

struct CallEdge {
  uint32_t rule;
  bool counts;
  Position target;  ///< where the caller goes on
};

enum class ProgramRuleKind : uint8_t { kAutomaton, kString, kObject, kArray };

struct ProgramRule {
  ProgramRuleKind kind = ProgramRuleKind::kAutomaton;
  std::string name;
  Position start = 0;  ///< first position; the others follow
  uint32_t positions = 0;
  uint32_t index = 0;    ///< into strings, objects, arrays
  uint32_t rank = 0;     ///< a rule calls, before its first byte, only rules of higher rank
  ByteSet first;         ///< bytes that a match can start with
  ByteSet follow;        ///< bytes that can come after a match, in any context
  bool counted = false;  ///< the frame holds a number of rounds, within [min, max]
  uint32_t min = 0, max = kUnlimited;
};

struct CompiledString {
  std::shared_ptr<const Dfa> dfa;
  std::shared_ptr<const LengthOracle> lengths;
  uint64_t farthest = 0;             ///< most characters that any state needs to reach an accepting one
  bool any_text = false;             ///< the automaton takes everything
  std::vector<uint16_t> plain_room;  ///< by state, see plain_room.h
};

/// Positions of an object's frame, relative to its rule's start.
namespace object_at {
inline constexpr Position kOpen = 0;   ///< before '{'
inline constexpr Position kFirst = 1;  ///< after '{'
inline constexpr Position kNext = 2;   ///< after ','
inline constexpr Position kColon = 3;  ///< after a key
inline constexpr Position kValue = 4;  ///< after ':'
inline constexpr Position kAfterValue = 5;
inline constexpr Position kUntrackedKey =
    6;                               ///< a remembered key ended: to be compared with the earlier ones
inline constexpr Position kKey = 7;  ///< inside a key; plus the state of the key automaton
}  // namespace object_at

struct CompiledObject {
  ObjectRule rule;
  uint32_t words = 0;  ///< 64-bit words of a set of tracked keys
  std::vector<uint64_t>
      reach_tracked;  ///< [state][words]: tracked keys that can still come of this key state
  std::vector<uint8_t> reach_untracked;  ///< [state]: some usable untracked class can
  std::vector<uint32_t> free_string;     ///< [state]: string rule of an untracked key's rest, or kNone
  std::vector<uint32_t> free_class;      ///< [state]: its class
  std::vector<uint8_t> looping;          ///< [state]: not free, and some character leads back to it
  std::vector<std::vector<uint32_t>> implied_by;  ///< tracked bit -> bits it demands
  std::vector<uint64_t> required;                 ///< [words]
  std::vector<uint32_t> bit_class;                ///< tracked bit -> class
  std::vector<uint8_t> bit_usable;
  uint32_t untracked_usable = 0;     ///< number of usable untracked classes
  std::vector<uint16_t> plain_room;  ///< by key state, as far as untracked keys go
};

namespace array_at {
inline constexpr Position kOpen = 0;   ///< before '['
inline constexpr Position kFirst = 1;  ///< after '['
inline constexpr Position kNext = 2;   ///< after ','
inline constexpr Position kAfterItem = 3;
inline constexpr Position kCheckSpace =
    4;  ///< an item ended by white space, by ',' or by ']': compare it first
inline constexpr Position kCheckComma = 5;
inline constexpr Position kCheckClose = 6;
inline constexpr Position kCheckOpen = 7;  ///< '[' was read: note where the first item starts
inline constexpr Position kReturned = 8;   ///< an item ended that is still to be compared
inline constexpr Position kCheckNext =
    9;  ///< ',' was read after a compared item: note where the next one starts
inline constexpr Position kCheckEnd = 10;  ///< an item ended with its own last byte: compare it
inline constexpr Position kPositions = 11;
}  // namespace array_at

/// Content of a rule, hashed: see identity.h.
struct RuleIdentity {
  uint64_t a = 0, b = 0;
};

struct Program {
  std::vector<ProgramRule> rules;
  std::vector<uint32_t> rule_of;     ///< by position
  std::vector<uint32_t> edge_first;  ///< by position, size + 1
  std::vector<uint32_t> call_first;
  std::vector<ByteEdge> edges;
  std::vector<CallEdge> calls;
  std::vector<uint8_t> accept;        ///< by position
  std::vector<uint8_t> only_returns;  ///< accept, and nothing else to do: the same as kDone
  std::vector<uint8_t> loop_head;     ///< a round may start here
  std::vector<CompiledString> strings;
  std::vector<CompiledObject> objects;
  std::vector<ArrayRule> arrays;
  std::vector<RuleIdentity> identity;  ///< by rule
  uint32_t root = 0;
  bool root_nullable = false;
  bool needs_text = false;  ///< some rule compares values with earlier ones
  Whitespace whitespace = Whitespace::kFlexible;
  size_t bytes = 0;  ///< estimate of the memory held
  double compile_seconds = 0;

  uint32_t num_positions() const { return static_cast<uint32_t>(rule_of.size()); }
};

/// Lowers a grammar: drops what cannot be used, inlines small rules, removes left recursion, makes automata.
/// Errors: kLimitExceeded (says which limit), kInvalidArgument when the grammar matches nothing.
std::shared_ptr<const Program> lower(Grammar grammar, Budget& budget);

}  // namespace millrace::grammar
