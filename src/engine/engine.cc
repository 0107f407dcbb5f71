#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "core/checked.h"
#include "core/error.h"
#include "engine/loop.h"

namespace millrace::engine {
namespace {

using Kind = layers::CacheSpec::Kind;

constexpr const char* kKvTypeNames[] = {"f32", "bf16", "int8", "int4"};

/// How many blocks each cache group gets from `bytes`. A window never needs more than it reaches; states come
/// first, because without one a sequence cannot run at all; the rest of the memory grows with the tokens.
class CacheSizes {
 public:
  CacheSizes(const layers::CacheLayout& layout, const EngineOptions& options)
      : layout_(layout), options_(options) {}

  int64_t state_slots(uint64_t bytes) const {
    uint64_t per_slot = 0;
    for (size_t g = 0; g < layout_.groups.size(); ++g)
      if (layout_.groups[g].spec.kind == Kind::kRecurrent) per_slot += block_bytes(g);
    if (per_slot == 0) return 0;
    // One for every sequence and half as many for checkpoints of the prefix cache, within half of the memory.
    // More checkpoints, up to eight a sequence, where they fit into a quarter of it, or into all of it where
    // nothing grows with the tokens.
    const bool alone = std::all_of(layout_.groups.begin(), layout_.groups.end(),
                                   [](const auto& g) { return g.spec.kind == Kind::kRecurrent; });
    const auto room = [&](uint64_t of) { return static_cast<int64_t>(of / per_slot); };
    const int64_t sequences = options_.max_sequences;
    if (!options_.prefix_cache) return std::clamp<int64_t>(room(bytes / 2), 2, sequences);
    const int64_t least = std::clamp<int64_t>(room(bytes / 2), 2, sequences + sequences / 2);
    return std::max(least, std::min(room(alone ? bytes : bytes / 4), 9 * sequences));
  }

  int64_t window_blocks(const layers::CacheGroup& group, int64_t blocks) const {
    const int64_t one = ceil_div(group.spec.window + options_.token_budget, options_.block_size) + 2;
    return std::min(std::max(blocks, one), one * options_.max_sequences);
  }

  std::vector<int64_t> counts(int64_t blocks, int64_t slots) const {
    std::vector<int64_t> counts;
    for (const layers::CacheGroup& group : layout_.groups)
      counts.push_back(group.spec.kind == Kind::kRecurrent ? slots
                       : group.spec.kind == Kind::kWindow  ? window_blocks(group, blocks)
                                                           : blocks);
    return counts;
  }

  uint64_t total(const std::vector<int64_t>& counts) const {
    uint64_t bytes = 0;
    for (size_t g = 0; g < counts.size(); ++g) bytes += static_cast<uint64_t>(counts[g]) * block_bytes(g);
    return bytes;
  }

  /// The most that fits; the bytes of one more token's block are at least one, so the search ends.
  std::vector<int64_t> fit(uint64_t bytes, int64_t most_blocks) const {
    const int64_t slots = state_slots(bytes);
    int64_t low = 0, high = most_blocks;
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (total(counts(middle, slots)) <= bytes)
        low = middle;
      else
        high = middle - 1;
    }
    return counts(low, slots);
  }

 private:
  uint64_t block_bytes(size_t group) const {
    uint64_t bytes = 0;
    const layers::CacheGroup& g = layout_.groups[group];
    for (size_t i = 0; i < g.layers.size(); ++i)
      bytes += static_cast<uint64_t>(
          round_up(layers::layer_block_bytes(g.spec, layout_.block_size, layout_.kv_type), 64));
    return bytes;
  }

  const layers::CacheLayout& layout_;
  const EngineOptions& options_;
};

void check_options(const EngineOptions& o) {
  const auto in_range = [](const char* name, int64_t value, int64_t low, int64_t high) {
    require(value >= low && value <= high, ErrorCode::kInvalidArgument,
            "{} is {}, but must be between {} and {}", name, value, low, high);
  };
  // Attention kernels read the cache in tiles of sixteen tokens.
  require(o.block_size >= 16 && o.block_size <= 1024 && o.block_size % 16 == 0, ErrorCode::kInvalidArgument,
          "block_size is {}, but must be a multiple of 16 between 16 and 1024", o.block_size);
  in_range("max_sequences", o.max_sequences, 1, 65536);
  in_range("token_budget", o.token_budget, 1, 1 << 20);
  in_range("static_batch", o.static_batch, 1, 65536);
  in_range("max_context", o.max_context, 0, std::numeric_limits<int32_t>::max());
  in_range("max_waiting", o.max_waiting, 1, std::numeric_limits<int32_t>::max());
  in_range("max_queued_events", o.max_queued_events, 4, std::numeric_limits<int32_t>::max());
  require(o.mixed_step_factor >= 0 && o.mixed_step_factor <= 1e6, ErrorCode::kInvalidArgument,
          "mixed_step_factor is {}, but must be between 0 and 1e6", o.mixed_step_factor);
  require(o.stall_seconds > 0 && o.stall_seconds <= 1e9, ErrorCode::kInvalidArgument,
          "stall_seconds is {}, but must be above 0 and at most 1e9", o.stall_seconds);
}

}  // namespace

std::optional<layers::KvType> parse_kv_type(const std::string& name) {
  if (name == "auto") return std::nullopt;
  for (size_t i = 0; i < std::size(kKvTypeNames); ++i)
    if (name == kKvTypeNames[i]) return static_cast<layers::KvType>(i);
  fail(ErrorCode::kInvalidArgument, "the cache type '{}' is unknown: it must be one of auto, {}", name,
       fmt::join(kKvTypeNames, ", "));
}

const char* kv_type_name(layers::KvType type) { return kKvTypeNames[static_cast<size_t>(type)]; }

Engine::Engine(std::unique_ptr<models::Model> model, EngineOptions options) {
  check_options(options);
  if (!options.pool) options.pool = std::make_shared<ThreadPool>(options.threads);
  options.threads = options.pool->num_threads();
  if (!options.masks_beside_step) options.masks_beside_step = usable_cpus() > options.threads;
  if (!options.kv_type)
    options.kv_type = model->info().wants_float_cache() ? layers::KvType::kF32 : layers::KvType::kBF16;
  // Everyone inside may decode in every step, and a prompt still advances.
  options.token_budget = std::max(options.token_budget, options.max_sequences + options.block_size);

  const layers::CacheLayout layout =
      layers::make_cache_layout(model->cache_specs(), options.block_size, *options.kv_type);
  int64_t context = model->info().context_length > 0 ? model->info().context_length : 1 << 20;
  // Who asks for more than a model was trained for gets it, unless a table of positions ends there.
  if (options.max_context > 0)
    context =
        model->info().fixed_context ? std::min<int64_t>(context, options.max_context) : options.max_context;
  if (options.kv_memory_bytes == 0) options.kv_memory_bytes = available_memory_bytes() / 2;

  const CacheSizes sizes(layout, options);
  const int64_t most_blocks =
      std::min<int64_t>(ceil_div(context, options.block_size) * options.max_sequences, 1 << 30);
  const std::vector<int64_t> counts = sizes.fit(options.kv_memory_bytes, most_blocks);
  int64_t room = context;
  for (size_t g = 0; g < counts.size(); ++g) {
    const Kind kind = layout.groups[g].spec.kind;
    if (kind == Kind::kFull || kind == Kind::kLatent) room = std::min(room, counts[g] * options.block_size);
    if (kind == Kind::kRecurrent)
      options.max_sequences = static_cast<int32_t>(std::min<int64_t>(options.max_sequences, counts[g]));
  }
  require(room >= 2 && sizes.total(counts) <= std::max<uint64_t>(options.kv_memory_bytes, 1),
          ErrorCode::kOutOfMemory,
          "{} bytes of cache memory hold no sequence of this model: it needs at least {}",
          options.kv_memory_bytes, sizes.total(sizes.counts(1, sizes.state_slots(0))));
  options.kv_memory_bytes = sizes.total(counts);
  model_ = model.get();
  loop_ = std::make_unique<Loop>(std::move(model), std::move(options), layout, counts,
                                 static_cast<int32_t>(room));
}

Engine::~Engine() = default;

std::shared_ptr<Generation> Engine::submit(Request request) { return loop_->submit(std::move(request)); }
bool Engine::cancel(uint64_t id) { return loop_->cancel(id); }
bool Engine::drain(double seconds) { return loop_->drain(seconds); }
const models::ModelInfo& Engine::model_info() const { return loop_->model_info(); }
int32_t Engine::max_context() const { return loop_->max_context(); }
const EngineOptions& Engine::options() const { return loop_->options(); }
Stats Engine::stats() const {
  Stats stats = loop_->stats();
  stats.expert_tokens = model_->expert_load();
  return stats;
}

void Engine::warm_up() {
  // Prompts and decodes: memory is touched, and it is known what decoding takes alone and together, what a
  // prompt's row does, and what any rows of prompts do.
  const int32_t most = std::min(std::min(256, loop_->options().token_budget), loop_->max_context() - 8);
  if (most < 1) return;
  const auto compute = [&](int32_t prompt, int32_t n) {
    Request request;
    request.prompt.assign(static_cast<size_t>(prompt), 0);
    request.use_prefix_cache = false;
    request.generation.n = std::min(n, loop_->options().limits.max_n);
    request.generation.max_tokens = 4;
    request.generation.ignore_eos = true;
    request.sampling.temperature = 0;
    generate(*this, std::move(request), [](const Event&) { return true; });
  };
  const int32_t few = std::min(most, 32);
  compute(few, 1);
  compute(most, 1);
  compute(few, 4);
  loop_->wait_for_rest();
  loop_->reset_stats();
}

Event generate(Engine& engine, Request request, const std::function<bool(const Event&)>& on_event) {
  const std::shared_ptr<Generation> generation = engine.submit(std::move(request));
  bool cancelled = false;
  for (;;) {
    Event event;
    if (!generation->next(event, std::chrono::milliseconds(1000))) continue;
    if (event.kind == Event::Kind::kError) {
      if (cancelled) return event;
      throw Error(static_cast<ErrorCode>(event.error_code), event.error);
    }
    const bool go_on = on_event(event);
    if (event.kind == Event::Kind::kDone) return event;
    if (!go_on && !cancelled) {
      cancelled = true;
      generation->cancel();
    }
  }
}

}  // namespace millrace::engine
