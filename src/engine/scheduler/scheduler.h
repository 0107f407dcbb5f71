// The scheduler's whole decision for one step, as a pure function of what there is: no tensor, no clock, no
// lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/block_manager.h"
#include "engine/policy.h"

namespace millrace::engine {

/// What the scheduler knows of a sequence.
struct SequenceView {
  enum class State : uint8_t {
    kWaiting,  ///< holds no blocks; `computed` tokens would be found in the prefix cache
    kRunning,
    kSwapped,  ///< its blocks lie in the host area
  } state = State::kWaiting;
  bool runnable = true;  ///< false: its reader is behind, or it waits for its fellow beams
  bool idle = false;     ///< not runnable, as its reader has been behind for a while: gives way to who waits
  bool held = false;   ///< waiting: another sequence is computing the prefix it shares; better wait for that
  double rank = 0;     ///< rank_of(); smaller goes first
  double waited = 0;   ///< seconds since it arrived
  int32_t tokens = 0;  ///< known
  int32_t computed = 0;  ///< of them
  bool answering =
      false;  ///< running, and the prompt is computed: its rows are an answer's, a row a step is its own
  int32_t stop_at = 0;    ///< a chunk must end here (a state is kept there); 0: anywhere
  int32_t max_chunk = 0;  ///< 0: no bound of its own
  int32_t sequences = 1;  ///< it will fork into so many
  BlockCounts table{};    ///< blocks its table has or will take over from cache or host: where growth begins
  BlockCounts
      take{};  ///< not running: blocks that getting in costs at once (idle hits, swapped blocks, state slots)
  BlockCounts copy{};       ///< running: 1 where the next write needs a copy or a state slot
  BlockCounts exclusive{};  ///< running: what preempting it makes available
  double recompute_seconds = 0, swap_seconds = 0;  ///< the two costs of preempting it
  int64_t swap_bytes = 0;
  double deadline = 0;       ///< seconds from now; 0: none
  double least_seconds = 0;  ///< at least so long until it is done
};

struct SchedulerInput {
  Policy policy = Policy::kFcfs;
  std::vector<SequenceView> sequences;
  int32_t token_budget = 512;
  int32_t mixed_budget = 512;  ///< prefill tokens beside decodes
  int32_t row_tile = 1;  ///< rows of answers that cost as much as one of them (kernels::matmul_token_tile)
  int32_t max_sequences = 256;
  int32_t static_batch = 16;
  double batch_wait = 0.05;
  int32_t block_size = 16;
  std::span<const GroupShape> groups;
  BlockCounts available{};
  int64_t swap_bytes_left = 0;
};

struct StepPlan {
  struct Compute {
    int32_t sequence;  ///< index into the input
    int32_t tokens;
  };
  struct Preempt {
    int32_t sequence;
    bool swap;
  };
  std::vector<Compute> compute;   ///< waiting and swapped ones among them are admitted
  std::vector<Preempt> preempt;   ///< before anything is admitted or grows
  std::vector<int32_t> too_late;  ///< their deadline cannot be met
};

/// Decides one step:
///   - sequences are looked at in the order of their rank; decodes (one token left, or the first of an
///   answer's tokens that are known already) are always within the budget, chunks share what they leave
///   - more of an answer's known tokens are taken where they are worth their time: as many as fill the tiles
///   of rows that the step has anyway, or tiles of their own
///   - a running sequence that lacks blocks takes those of the worst-ranked one behind it, idle readers
///   first; by swap where
///     that is cheaper than computing again and the host area has room
///   - one that waits is admitted when blocks for all its known tokens are there; unless it is, nobody behind
///   it is (but
///     under max-batch, which takes whoever fits until someone has waited half a minute)
///   - only priority and deadline preempt for someone that waits; but idle ones give their blocks and places
///   up to anyone
void plan_step(const SchedulerInput& input, StepPlan& plan);

/// Smaller goes first. Ageing is part of it: the rank of a sequence never changes, and grows with its
/// arrival, so that everyone is first at last. Seconds, on the clock of `arrival` and `deadline` (absolute;
/// 0: none).
double rank_of(Policy policy, double arrival, int32_t work_tokens, int32_t priority, double deadline);

}  // namespace millrace::engine
