// The prefix cache over restarts: read while the engine already serves, written when its thread ends.

#include <chrono>
#include <filesystem>

#include "core/error.h"
#include "core/log.h"
#include "engine/loop.h"

namespace millrace::engine {
namespace {

constexpr const char* kFileName = "prefix.cache";
/// Between two steps reading takes at most so long.
constexpr double kSliceSeconds = 0.005;

}  // namespace

/// The file of the last run, if it is of use here; its key then becomes this engine's.
std::optional<CacheFileReader> Loop::open_saved_cache() {
  if (options_.cache_dir.empty() || !options_.prefix_cache) return std::nullopt;
  identity_.model = runner_.fingerprint();
  identity_.kv_type = static_cast<uint32_t>(*options_.kv_type);
  identity_.block_size = static_cast<uint32_t>(options_.block_size);
  identity_.shapes = group_shapes(runner_.cache().layout());
  for (size_t g = 0; g < identity_.shapes.size(); ++g)
    identity_.block_bytes.push_back(runner_.block_bytes(static_cast<int>(g)));
  try {
    return CacheFileReader::open(std::filesystem::path(options_.cache_dir) / kFileName, identity_);
  } catch (const std::exception& e) {
    log::warn("saved prefix cache ignored", {{"reason", e.what()}});
    return std::nullopt;
  }
}

/// Reads on for a moment; true while there is more.
bool Loop::restore_some() {
  if (!saved_cache_) return false;
  const double end = now() + kSliceSeconds;
  const WriteBlock write = [this](int group, int32_t block, const std::byte* in) {
    runner_.cache().write_block(group, block, in);
  };
  while (saved_cache_->next(blocks_, write))
    if (now() > end) return true;
  if (!saved_cache_->broken().empty())
    log::warn("saved prefix cache damaged", {{"reason", saved_cache_->broken()}});
  log::info("prefix cache restored",
            {{"blocks", saved_cache_->restored().nodes}, {"bytes", saved_cache_->restored().bytes}});
  saved_cache_.reset();
  return false;
}

void Loop::save_cache() {
  if (options_.cache_dir.empty() || !options_.prefix_cache) return;
  // Stopped before all was read: the rest is put back first, as far as there is room.
  while (restore_some()) {
  }
  try {
    std::filesystem::create_directories(options_.cache_dir);
    const ReadBlock read = [this](int group, int32_t block, std::byte* out) {
      runner_.cache().read_block(group, block, out);
    };
    const CacheFileSize size = save_prefix_cache(std::filesystem::path(options_.cache_dir) / kFileName,
                                                 identity_, key_, blocks_, read, options_.cache_dir_bytes);
    log::info("prefix cache saved", {{"blocks", size.nodes}, {"bytes", size.bytes}});
  } catch (const std::exception& e) {
    log::error("prefix cache not saved", {{"reason", e.what()}});
  }
}

}  // namespace millrace::engine
