// The masks of places of automata, shared by all grammars over one vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace millrace::grammar {

/// The tokens of one place, in the form that is shortest.
struct PlaceMask {
  enum class Form : uint8_t { kAccepted, kRejected, kBits, kPlain };
  Form form = Form::kAccepted;
  uint32_t room = 0;           ///< kPlain: the plain tokens of at most so many characters, but for ...
  std::vector<uint32_t> list;  ///< ids accepted, or text ids rejected, or ids that differ from the plain ones
  std::vector<uint64_t> bits;
  /// Nodes of the trie, ascending: what starts so leaves the frame, or waits for a comparison with earlier
  /// text, so that the real stack decides. Neither accepted nor rejected above.
  std::vector<uint32_t> doubts;

  size_t bytes() const { return list.size() * 4 + bits.size() * 8 + doubts.size() * 4 + sizeof(*this); }
};

/// Bounded; keys name a place by what its rule contains, so that equal rules of different grammars share.
/// Thread-safe.
class PlaceCache {
 public:
  explicit PlaceCache(size_t max_bytes) : max_bytes_(max_bytes) {}
  std::shared_ptr<const PlaceMask> find(const std::string& key);
  void insert(const std::string& key, std::shared_ptr<const PlaceMask> mask);
  size_t bytes() const;
  size_t max_bytes() const { return max_bytes_; }
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

}  // namespace millrace::grammar
