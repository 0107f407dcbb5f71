// Token masks. A mask is the union over the automaton's places; for each place the tokens split into those
// that are decided by the place alone (kept in a cache that all grammars share) and the few that reach into
// the frames below (completed with the real stack each time).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/machine.h"
#include "grammar/place_cache.h"
#include "grammar/vocabulary.h"

namespace millrace::grammar {

class MaskBuilder {
 public:
  MaskBuilder(Machine& machine, const TokenTrie& trie) : machine_(machine), trie_(trie) {}

  /// Text tokens that may come next: bits of `out` (trie.mask_words() words). `text` is the output so far
  /// (only used by programs that compare with it). End-of-generation bits are the caller's.
  void fill(StateId state, std::string_view text, std::span<uint64_t> out);
  /// Makes sure that the cache holds what fill() would look up first.
  void prepare(StateId state);
  /// Whether the last fill() compared with the text: then the mask is not the state's alone.
  bool used_text() const { return used_text_; }

 private:
  static constexpr uint32_t kWhole = ~uint32_t{0};
  /// A place that stands for `item` and many like it, and the length of tokens up to which it does.
  struct Stand {
    Item item;
    size_t exact_bytes;
    bool allows_more;  ///< tokens beyond that length: it allows all that `item` does (otherwise: no telling)
  };
  struct Level {
    StateId state;
    bool marked;  ///< inside a string of any text: the plain tokens from here on are settled
  };
  struct KeyLevel {
    Machine::KeyPlace place;
    bool marked;
  };

  /// The tokens below trie node `top` (kWhole: all), `state` being where its bytes lead.
  void fill_below(StateId state, std::string& text, uint32_t top, std::span<uint64_t> out);
  void walk_real(StateId state, std::string& text, uint32_t top, std::span<uint64_t> out);
  StateId step_real(StateId state, std::string& text, uint8_t byte);
  Stand stand_in(const Item& item) const;
  std::shared_ptr<const PlaceMask> place(const Item& item, uint32_t top);
  std::shared_ptr<const PlaceMask> walk(StateId state, uint32_t top);
  /// `whole_token`: the place itself is `from`, not one that a part of the token has led to.
  void walk_below(Level from, uint32_t top, bool whole_token, std::vector<uint32_t>& doubts);
  void walk_key(const Machine::KeyPlace& place, uint32_t top, bool marked, std::vector<uint32_t>& doubts);
  bool enter(StateId s, uint32_t node, bool settled, std::vector<uint32_t>& doubts);
  bool mark_plain(uint64_t room, uint32_t top);
  bool loops_below(StateId state, uint32_t node);
  void set_run(uint32_t first, uint32_t last);
  std::shared_ptr<const PlaceMask> packed(std::vector<uint32_t> doubts, uint64_t room) const;
  void apply(const PlaceMask& mask, std::span<uint64_t> out) const;
  void apply_stand(const Stand& stand, const Item& item, const PlaceMask& mask, std::span<uint64_t> out,
                   std::vector<uint32_t>& doubtful);
  void check_tokens(StateId state, std::string_view text, std::vector<uint32_t>& places,
                    std::span<uint64_t> out);
  uint32_t first_node(uint32_t top) const { return top == kWhole ? 0 : top + 1; }
  uint32_t end_node(uint32_t top) const {
    return top == kWhole ? static_cast<uint32_t>(trie_.nodes().size()) : trie_.nodes()[top].skip;
  }
  uint32_t depth_of(uint32_t top) const { return top == kWhole ? 0 : trie_.nodes()[top].depth; }

  Machine& machine_;
  const TokenTrie& trie_;
  std::string key_;
  bool used_text_ = false;
  std::vector<uint64_t> bits_, own_;
};

}  // namespace millrace::grammar
