// The engine: one thread that owns scheduler, cache and model. Requests come in through submit(); tokens
// leave through each request's queue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/cpu.h"
#include "core/thread_pool.h"
#include "engine/generation.h"
#include "engine/policy.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "layers/cache_spec.h"
#include "models/model.h"

namespace millrace::engine {

/// "auto", "f32", "bf16", "int8", "int4".
std::optional<layers::KvType> parse_kv_type(const std::string& name);
const char* kv_type_name(layers::KvType type);

struct EngineOptions {
  std::shared_ptr<ThreadPool>
      pool;         ///< the workers (those that packed the weights, say); null: `threads` new ones
  int threads = 0;  ///< 0: what the machine gives this process
  IsaLevel isa = best_isa();

  uint64_t kv_memory_bytes = 0;  ///< 0: half of what the machine and the cgroup leave, at most 64 contexts
  std::optional<layers::KvType>
      kv_type;              ///< none: F32 for a small model or one of F32 weights, BF16 for all others
  int32_t block_size = 16;  ///< tokens; a multiple of 16 up to 1024
  int32_t max_context = 0;  ///< 0: the model's own; more than that only without a position table

  int32_t max_sequences = 256;  ///< computed together
  int32_t token_budget = 512;   ///< tokens of one step
  /// A step that decodes takes at most this many times as long as it would without prefill chunks beside
  /// (measured as it runs); 0: the token budget is the only bound.
  double mixed_step_factor = 1.7;
  Policy policy = Policy::kFcfs;
  int32_t static_batch = 16;         ///< policies static and dynamic: requests of one batch
  double batch_wait_seconds = 0.05;  ///< ... and how long a batch waits to fill up
  /// Masks of constraints are computed by a thread beside the step, while the model computes the logits that
  /// they mask; else by the workers, after it. None: when the machine has a processor that no worker uses.
  std::optional<bool> masks_beside_step;
  bool prefix_cache = true;
  uint64_t swap_bytes = 256ull << 20;  ///< host area for preempted sequences; 0: always recompute
  /// While nobody is served, so many bytes of the cache that have never been used are brought into memory,
  /// which would else be cleared by the system in the midst of a step. 0: none.
  uint64_t kv_ahead_bytes = 0;
  /// Folder (made if missing) in which the prefix cache is kept when the engine ends, and from which the next
  /// one reads it while it already serves; empty: none. Engines that run at the same time need folders of
  /// their own.
  std::string cache_dir;
  uint64_t cache_dir_bytes = 1ull << 30;  ///< at most so much of it, the lately used first

  int32_t max_waiting = 4096;        ///< submit() refuses more with kUnavailable
  int32_t max_queued_events = 1024;  ///< per request, before it is paused
  double stall_seconds = 30;         ///< a request paused this long is dropped
  RequestLimits limits;
};

class Loop;

class Engine {
 public:
  /// Makes the cache and starts the engine's thread. Error(kOutOfMemory) when the cache does not fit.
  Engine(std::unique_ptr<models::Model> model, EngineOptions options);
  /// Cancels what runs and ends the thread.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. Errors: kInvalidArgument for a field out of range, kLimitExceeded for a prompt longer
  /// than the context or the cache, kUnavailable when the queue is full or the engine drains.
  std::shared_ptr<Generation> submit(Request request);

  /// Cancels by id; false when there is no such request.
  bool cancel(uint64_t id);

  /// Refuses new requests from now on; waits until the running ones are done, at most `seconds`, then cancels
  /// the rest. True when all ended by themselves.
  bool drain(double seconds);

  /// Runs every shape of step once, so that the first request does not pay for it, and waits until the
  /// cache's first kv_ahead_bytes are in memory.
  void warm_up();

  const models::ModelInfo& model_info() const;
  int32_t max_context()
      const;  ///< tokens a sequence may have: bounded by the model, the options and the cache
  const EngineOptions& options() const;  ///< as resolved (threads, kv_type, kv_memory_bytes)
  Stats stats() const;

 private:
  const models::Model* model_ = nullptr;  ///< the loop's
  std::unique_ptr<Loop> loop_;
};

/// The simple way for a program with one request: submits, calls `on_event` for every event on this thread
/// until kDone. Returns kDone. `on_event` returning false cancels. A kError becomes an Error thrown here (not
/// after such a cancel).
Event generate(Engine& engine, Request request, const std::function<bool(const Event&)>& on_event);

}  // namespace millrace::engine
