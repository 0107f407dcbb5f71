// Token masks. A mask is the union over the automaton's places; for each place the tokens split into those
// that are decided by the place alone (kept in a cache that all requests share) and the few that reach into
// the frames below (checked against the real stack each time).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/machine.h"
#include "grammar/vocabulary.h"

namespace millrace::grammar {

/// The tokens of one place, in the form that is shortest.
struct PlaceMask {
  enum class Form : uint8_t { kAccepted, kRejected, kBits };
  Form form = Form::kAccepted;
  bool needs_more_stack = false;  ///< too much depends on the frame below: look one frame deeper instead
  std::vector<uint32_t> list;     ///< ids accepted, or text ids rejected (uncertain ones count as rejected)
  std::vector<uint64_t> bits;
  std::vector<uint32_t> uncertain;  ///< places in TokenTrie::order(), ascending

  size_t bytes() const { return list.size() * 4 + bits.size() * 8 + uncertain.size() * 4 + sizeof(*this); }
};

/// Bounded, shared by all matchers of one compiled grammar. Thread-safe.
class PlaceCache {
 public:
  explicit PlaceCache(size_t max_bytes) : max_bytes_(max_bytes) {}
  std::shared_ptr<const PlaceMask> find(const std::string& key);
  void insert(const std::string& key, std::shared_ptr<const PlaceMask> mask);
  void replace(const std::string& key, std::shared_ptr<const PlaceMask> mask);
  size_t bytes() const;
  size_t count() const;

 private:
  mutable std::mutex mutex_;
  struct Entry {
    std::shared_ptr<const PlaceMask> mask;
    uint64_t used = 0;
  };
  std::unordered_map<std::string, Entry> entries_;
  size_t bytes_ = 0, max_bytes_;
  uint64_t clock_ = 0;
};

class MaskBuilder {
 public:
  MaskBuilder(Machine& machine, const TokenTrie& trie, PlaceCache& cache)
      : machine_(machine), trie_(trie), cache_(cache) {}

  /// Text tokens that may come next: bits of `out` (trie.mask_words() words). `text` is the output so far
  /// (only used by programs that compare with it). End-of-generation bits are the caller's.
  void fill(StateId state, std::string_view text, std::span<uint64_t> out);

 private:
  /// A place that stands for `item` and many like it, and the length of tokens up to which it does.
  struct Stand {
    Item item;
    size_t exact_bytes;
    bool allows_more;  ///< tokens beyond that length: it allows all that `item` does (otherwise: no telling)
  };
  Stand stand_in(const Item& item) const;
  std::shared_ptr<const PlaceMask> place(const Item& item);
  std::shared_ptr<const PlaceMask> walk(StateId state, bool may_ask_for_more);
  void check_uncertain(StateId state, std::string_view text, const std::vector<uint32_t>& places,
                       std::span<uint64_t> out);

  Machine& machine_;
  const TokenTrie& trie_;
  PlaceCache& cache_;
  std::string key_;
};

}  // namespace millrace::grammar
