// How far a configuration is from a complete text: an estimate in bytes that sampling uses to come to an end.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "grammar/machine.h"

namespace millrace::grammar {

class CompletionCost {
 public:
  explicit CompletionCost(const Program& program);

  /// Estimated number of bytes to the nearest complete text; kNever when none is in sight.
  uint64_t of_state(const Machine& machine, StateId state);
  static constexpr uint64_t kNever = uint64_t{1} << 60;

 private:
  uint64_t of_rule(uint32_t rule) const { return rule_[rule]; }
  uint64_t of_item(const Machine& machine, const Item& item);
  uint64_t of_node(const Machine& machine, NodeId node);
  uint64_t of_string(const CompiledString& s, uint32_t state, uint64_t reg) const;
  uint64_t of_object(const CompiledObject& o, Position at, std::span<const uint64_t> record,
                     uint64_t key) const;
  uint64_t of_array(const ArrayRule& a, Position at, std::span<const uint64_t> record) const;
  uint64_t class_cost(const KeyClass& k) const;
  bool relax();
  static std::vector<uint64_t> distances(const Dfa& dfa);

  const Program& p_;
  std::vector<uint64_t> rule_;                     ///< shortest match of each rule
  std::vector<uint64_t> position_;                 ///< shortest way from each position to its frame's end
  std::vector<std::vector<uint64_t>> string_;      ///< by string and state: characters to an accepting state
  std::vector<std::vector<uint64_t>> key_length_;  ///< by object and class: characters of its shortest key
  std::unordered_map<NodeId, uint64_t> nodes_;
  uint64_t generation_ = 0;
};

}  // namespace millrace::grammar
