// The engine's thread: takes requests in, asks the scheduler what to compute, has the runner compute it,
// picks tokens and sends them out. Split over loop.cc (in and out), plan.cc (what the scheduler sees),
// step.cc (one step), beams.cc and persist.cc (the prefix cache over restarts).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/error.h"
#include "engine/chunk_control.h"
#include "engine/companion.h"
#include "engine/cost_model.h"
#include "engine/engine.h"
#include "engine/kv/cache_file.h"
#include "engine/runner.h"
#include "engine/scheduler/scheduler.h"
#include "engine/sequence.h"

namespace millrace::engine {

class Loop {
 public:
  /// `options` are resolved: nothing is "auto" any more.
  Loop(std::unique_ptr<models::Model> model, EngineOptions options, const layers::CacheLayout& layout,
       const std::vector<int64_t>& blocks_per_group, int32_t max_context);
  ~Loop();

  std::shared_ptr<Generation> submit(Request request);
  bool cancel(uint64_t id);
  bool drain(double seconds);
  void reset_stats();
  /// Until the thread has had nothing to do but, perhaps, to restore a saved prefix cache.
  void wait_for_rest();
  Stats stats() const;

  const EngineOptions& options() const { return options_; }
  const models::ModelInfo& model_info() const { return info_; }
  int32_t max_context() const { return max_context_; }

 private:
  using State = SequenceView::State;

  // persist.cc
  std::optional<CacheFileReader> open_saved_cache();
  bool restore_some();
  void save_cache();

  // loop.cc
  void main();
  bool populate_cache();
  void take_inbox();
  bool reap(double now);
  double now() const;
  void emit(RequestState& request, Event event);
  void start_sequence(RequestState& request);
  void remove_sequence(Sequence& sequence);
  void end_request(RequestState& request, Event last);
  void fail_request(RequestState& request, ErrorCode code, const std::string& sentence);
  void complete_request(RequestState& request);
  void update_gauges();

  // plan.cc
  void build_input(double now);
  int32_t chunk_border(const Sequence& s, int32_t computed) const;
  void view_running(const Sequence& s, SequenceView& view) const;
  void view_waiting(Sequence& s, SequenceView& view);
  bool prefix_is_coming(const Sequence& s, int32_t found);
  double least_seconds(const Sequence& s) const;

  // step.cc
  bool step();
  void apply_plan();
  void preempt(Sequence& s, bool swap);
  void admit(Sequence& s, const SequenceView& view);
  void compute(bool embeddings);
  void begin_masks();
  void commit(const StepEntry& entry);
  void take_rows(const StepEntry& entry);
  void fork_answers(Sequence& first);
  void sample();
  int32_t rotation_of(size_t tokens) const;
  void extend_hashes(Sequence& s);
  void restart_rotation();
  void pick(size_t job, SampleScratch& scratch);
  bool accept(Sequence& s, Picked picked);
  void jump_forward(Sequence& s);
  bool ends(Sequence& s, TokenId token, Event& finish);
  void finish_sequence(Sequence& s, Event finish);
  void pool_embedding(const StepEntry& entry);
  void report_prompt(Sequence& s);

  // beams.cc
  void beam_candidates(Sequence& s, std::span<float> logits, SampleScratch& scratch);
  void advance_beams(RequestState& request);
  void finish_beams(RequestState& request);

  const EngineOptions options_;
  const models::ModelInfo info_;
  const int32_t max_context_;
  Runner runner_;
  CacheIdentity identity_;                      // only with a cache folder
  std::optional<CacheFileReader> saved_cache_;  // until all of it is read
  const SipKey key_;
  BlockManager blocks_;
  CostModel cost_;
  bool costs_count_ = false;
  ChunkControl chunks_;
  double copy_bandwidth_ = 4e9;  // bytes per second to or from the host area, measured as it is used
  bool has_states_ = false;

  /// What wakes the thread; readers hold it too, and may outlive the engine.
  struct Alarm {
    std::mutex mutex;
    std::condition_variable rung, rested;
    bool ringing = false;
    uint64_t rests = 0;  ///< times that the thread had nothing left to do
    void ring() {
      const std::lock_guard lock(mutex);
      ringing = true;
      rung.notify_one();
    }
  };
  const std::shared_ptr<Alarm> alarm_ = std::make_shared<Alarm>();

  // Shared with other threads.
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  bool stopping_ = false, draining_ = false;
  std::vector<std::unique_ptr<RequestState>> inbox_;
  std::unordered_map<uint64_t, std::weak_ptr<Generation>> by_id_;
  uint64_t next_id_ = 1;
  int64_t open_requests_ = 0;
  Stats stats_;

  // The engine's thread alone.
  std::vector<std::unique_ptr<RequestState>> requests_;
  std::vector<Sequence*> waiting_;  // by rank; preempted and swapped ones too
  std::vector<Sequence*> running_;
  SchedulerInput input_;
  std::vector<Sequence*> viewed_;  // input_.sequences[i] is viewed_[i]
  StepPlan plan_;
  std::unordered_set<uint64_t> coming_;  // hashes of blocks that are being computed
  std::vector<StepEntry> entries_, part_;
  std::vector<BlockCopy> copies_;
  std::vector<std::pair<int32_t, int32_t>> fresh_states_;
  struct Job {
    Sequence* sequence;
    int32_t row;
    bool shared;  // other answers need the row, too
    Picked picked;
    std::string error;
  };
  std::vector<Job> jobs_;
  std::vector<SampleScratch> scratch_;
  int64_t swapped_bytes_ = 0;
  double forward_seconds_ = 0;     // of this step in the model
  std::vector<Sequence*> masked_;  // whose masks the companion computes
  Companion companion_;

  std::thread thread_;
};

}  // namespace millrace::engine
