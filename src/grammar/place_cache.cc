#include "grammar/place_cache.h"

#include <algorithm>

namespace millrace::grammar {

std::shared_ptr<const PlaceMask> PlaceCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  it->second.used = ++clock_;
  return it->second.mask;
}

void PlaceCache::insert(const std::string& key, std::shared_ptr<const PlaceMask> mask) {
  const std::lock_guard lock(mutex_);
  const size_t size = mask->bytes() + key.size() + 96;
  if (bytes_ + size > max_bytes_ && !entries_.empty()) {
    // Drop the half that was used longest ago.
    std::vector<uint64_t> ages;
    ages.reserve(entries_.size());
    for (const auto& [k, e] : entries_) ages.push_back(e.used);
    std::nth_element(ages.begin(), ages.begin() + static_cast<ptrdiff_t>(ages.size() / 2), ages.end());
    const uint64_t median = ages[ages.size() / 2];
    for (auto it = entries_.begin(); it != entries_.end();) {
      if (it->second.used <= median) {
        bytes_ -= it->second.mask->bytes() + it->first.size() + 96;
        it = entries_.erase(it);
      } else {
        ++it;
      }
    }
  }
  if (entries_.try_emplace(key, Entry{std::move(mask), ++clock_}).second) bytes_ += size;
}

size_t PlaceCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

size_t PlaceCache::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace millrace::grammar
