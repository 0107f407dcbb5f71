#include "engine/loop.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "core/error.h"
#include "core/log.h"

namespace millrace::engine {
namespace {

constexpr double kSecondsBounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                     1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kTokenSecondsBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.025, 0.04, 0.05,
                                          0.075, 0.1,    0.15,  0.2,  0.3,  0.4,   0.5,  0.75,
                                          1,     2.5,    5,     7.5,  10,   20,    40,   80};
constexpr double kTokensBounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                    500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
constexpr double kAnswersBounds[] = {1, 2, 5, 10, 20};

Stats fresh_stats() {
  Stats s;
  for (Histogram* h : {&s.ttft, &s.queue, &s.end_to_end, &s.step, &s.prefill, &s.decode, &s.inference})
    *h = Histogram(kSecondsBounds);
  for (Histogram* h : {&s.time_between_tokens, &s.time_per_output_token}) *h = Histogram(kTokenSecondsBounds);
  for (Histogram* h : {&s.prompt_length, &s.generation_length, &s.wanted_tokens, &s.step_tokens})
    *h = Histogram(kTokensBounds);
  s.wanted_answers = Histogram(kAnswersBounds);
  return s;
}

SipKey random_key() {
  std::random_device device;
  const auto word = [&] { return (static_cast<uint64_t>(device()) << 32) | device(); };
  return {word(), word()};
}

}  // namespace

Loop::Loop(std::unique_ptr<models::Model> model, EngineOptions options, const layers::CacheLayout& layout,
           const std::vector<int64_t>& blocks_per_group, int32_t max_context)
    : options_(std::move(options)),
      info_(model->info()),
      max_context_(max_context),
      runner_(std::move(model), options_.pool, options_.isa, layout, blocks_per_group),
      saved_cache_(open_saved_cache()),
      key_(saved_cache_ ? saved_cache_->key() : random_key()),
      blocks_(group_shapes(layout), blocks_per_group, options_.block_size, key_, options_.prefix_cache),
      stats_(fresh_stats()),
      scratch_(static_cast<size_t>(options_.pool->num_threads())) {
  for (int g = 0; g < blocks_.num_groups(); ++g)
    has_states_ |= blocks_.shape(g).kind == GroupShape::Kind::kState;
  stats_.weight_bytes = info_.weight_bytes;
  stats_.kv_bytes = runner_.cache().total_bytes();
  for (int g = 0; g < blocks_.num_groups(); ++g)
    if (blocks_.shape(g).kind != GroupShape::Kind::kState) stats_.blocks_total += blocks_.pool(g).size();
  for (SampleScratch& scratch : scratch_) scratch.candidates = Candidates(kernels::table(options_.isa));
  thread_ = std::thread([this] { main(); });
}

Loop::~Loop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = draining_ = true;
  }
  alarm_->ring();
  thread_.join();
}

double Loop::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<Generation> Loop::submit(Request request) {
  validate(request, info_.vocab_size, options_.limits);
  const auto length = static_cast<int64_t>(request.prompt.size());
  const bool embed = request.task == Task::kEmbed;
  require(length + (embed ? 0 : 1) <= max_context_, ErrorCode::kLimitExceeded,
          "the prompt has {} tokens, but the context holds {}{}", length, max_context_,
          embed ? "" : " with at least one to come");
  auto state = std::make_unique<RequestState>();
  const GenerationParams& g = request.generation;
  const auto room = static_cast<int32_t>(max_context_ - length);
  require(g.max_tokens <= room || embed, ErrorCode::kLimitExceeded,
          "the prompt has {} tokens and max_tokens is {}, but the context holds {} together", length,
          g.max_tokens, max_context_);
  state->max_tokens = g.max_tokens < 0 ? room : g.max_tokens;
  state->arrival = now();
  state->deadline = request.deadline_seconds > 0 ? state->arrival + request.deadline_seconds : 0;
  const auto work = static_cast<int32_t>(length + (embed ? 0 : state->max_tokens));
  state->rank = rank_of(options_.policy, state->arrival, work, request.priority, state->deadline);
  state->root_hash = blocks_.root_hash(request.tenant, request.cache_salt);
  if (request.sampling.seed)
    state->seed = *request.sampling.seed;
  else
    state->seed = (static_cast<uint64_t>(std::random_device()()) << 32) | std::random_device()();
  state->usage.prompt_tokens = static_cast<int32_t>(length);
  const int32_t queue =
      request.max_queued_events > 0 ? request.max_queued_events : options_.max_queued_events;
  state->request = std::move(request);

  std::unique_lock lock(mutex_);
  require(!draining_, ErrorCode::kUnavailable, "the server is shutting down and takes no new requests");
  require(stats_.waiting + static_cast<int64_t>(inbox_.size()) < options_.max_waiting,
          ErrorCode::kUnavailable, "{} requests are waiting, which is the limit: try again later",
          options_.max_waiting);
  state->id = next_id_++;
  auto generation = std::make_shared<Generation>(state->id, static_cast<size_t>(queue));
  generation->set_waker([alarm = alarm_] { alarm->ring(); });
  state->generation = generation;
  by_id_[state->id] = generation;
  inbox_.push_back(std::move(state));
  ++open_requests_;
  lock.unlock();
  alarm_->ring();
  return generation;
}

bool Loop::cancel(uint64_t id) {
  std::shared_ptr<Generation> generation;
  {
    const std::lock_guard lock(mutex_);
    const auto it = by_id_.find(id);
    if (it != by_id_.end()) generation = it->second.lock();
  }
  if (generation) generation->cancel();
  return generation != nullptr;
}

bool Loop::drain(double seconds) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  if (idle_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return open_requests_ == 0; }))
    return true;
  std::vector<std::shared_ptr<Generation>> left;
  for (const auto& [id, weak] : by_id_)
    if (auto g = weak.lock()) left.push_back(std::move(g));
  lock.unlock();
  for (const auto& g : left) g->cancel();
  lock.lock();
  idle_.wait_for(lock, std::chrono::seconds(10), [&] { return open_requests_ == 0; });
  return false;
}

void Loop::reset_stats() {
  const std::lock_guard lock(mutex_);
  Stats clean = fresh_stats();
  clean.weight_bytes = stats_.weight_bytes;
  clean.kv_bytes = stats_.kv_bytes;
  clean.activation_bytes = stats_.activation_bytes;
  clean.blocks_total = stats_.blocks_total;
  stats_ = std::move(clean);
}

Stats Loop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Loop::wait_for_rest() {
  std::unique_lock lock(alarm_->mutex);
  const uint64_t before = alarm_->rests;
  alarm_->ringing = true;
  alarm_->rung.notify_one();
  alarm_->rested.wait(lock, [&] { return alarm_->rests > before; });
}

/// What the next requests will use of the cache comes into memory; false when somebody rang meanwhile.
bool Loop::populate_cache() {
  if (options_.kv_ahead_bytes == 0) return true;
  for (int g = 0; g < blocks_.num_groups(); ++g) {
    const BlockPool& pool = blocks_.pool(g);
    const uint64_t bytes = options_.kv_ahead_bytes / static_cast<uint64_t>(blocks_.num_groups());
    const auto ahead = static_cast<int64_t>(bytes) / runner_.block_bytes(g);
    const int64_t end = std::min(pool.never_used() + ahead, pool.size());
    do {
      const std::lock_guard lock(alarm_->mutex);
      if (alarm_->ringing) return false;
    } while (runner_.cache().populate_some(g, end));
  }
  return true;
}

void Loop::main() {
  for (;;) {
    const bool resting = requests_.empty() && (saved_cache_ || populate_cache());
    {
      // Something may become possible without anyone calling (a batch's patience, a stalled reader): look now
      // and then.
      std::unique_lock lock(alarm_->mutex);
      const auto ringing = [&] { return alarm_->ringing; };
      if (resting) {
        ++alarm_->rests;
        alarm_->rested.notify_all();
      }
      if (saved_cache_)
        ;  // there is work in any case
      else if (requests_.empty())
        alarm_->rung.wait(lock, ringing);
      else
        alarm_->rung.wait_for(lock, std::chrono::milliseconds(2), ringing);
      alarm_->ringing = false;
    }
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    take_inbox();
    restore_some();
    // As long as steps compute something there is no reason to sleep.
    for (;;) {
      reap(now());
      bool computed = false;
      try {
        computed = step();
      } catch (const std::exception& e) {
        // A step that fails leaves no telling what its sequences hold: they end with the reason, the engine
        // goes on.
        log::error("engine step failed", {{"reason", e.what()}});
        std::vector<RequestState*> hit;
        for (const StepEntry& entry : entries_)
          if (std::find(hit.begin(), hit.end(), entry.sequence->request) == hit.end())
            hit.push_back(entry.sequence->request);
        entries_.clear();
        for (RequestState* r : hit)
          fail_request(*r, ErrorCode::kInternal, fmt::format("the step failed: {}", e.what()));
        computed = !hit.empty();
      }
      update_gauges();
      take_inbox();
      restore_some();
      if (!computed) break;
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
  }
  take_inbox();
  while (!requests_.empty())
    fail_request(*requests_.back(), ErrorCode::kCancelled,
                 "the server shut down before the request was done");
  save_cache();
}

void Loop::take_inbox() {
  std::vector<std::unique_ptr<RequestState>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(inbox_);
    stats_.waiting += static_cast<int64_t>(arrived.size());
  }
  for (auto& r : arrived) {
    start_sequence(*r);
    requests_.push_back(std::move(r));
  }
}

void Loop::start_sequence(RequestState& r) {
  auto s = std::make_unique<Sequence>();
  s->request = &r;
  s->tokens = r.request.prompt;
  s->constraint = std::move(r.request.constraint);
  s->watcher = std::move(r.request.watcher);
  if (r.request.task == Task::kGenerate) {
    SamplingParams params = r.request.sampling;
    // Ranking answers needs the tokens' probabilities.
    if (r.request.generation.best_of > r.request.generation.n) params.logprobs = std::max(params.logprobs, 0);
    s->sampler.emplace(params, r.seed, 1, info_.vocab_size, s->tokens);
  }
  if (has_states_) {
    const auto length = static_cast<int32_t>(s->tokens.size());
    s->stop_at = (length - 1) / options_.block_size * options_.block_size;
  }
  s->rotation = rotation_of(s->tokens.size());
  extend_hashes(*s);
  const auto at = std::upper_bound(waiting_.begin(), waiting_.end(), r.rank,
                                   [](double rank, const Sequence* w) { return rank < w->request->rank; });
  waiting_.insert(at, s.get());
  r.sequences.push_back(std::move(s));
}

/// Ends what was cancelled, is too late, or whose reader has gone or stopped.
bool Loop::reap(double time) {
  bool any = false;
  for (size_t i = requests_.size(); i-- > 0;) {
    RequestState& r = *requests_[i];
    if (r.generation->cancel_requested() || r.generation.use_count() == 1) {
      fail_request(r, ErrorCode::kCancelled, "the request was cancelled");
      any = true;
      continue;
    }
    if (r.deadline != 0 && time > r.deadline) {
      any = true;
      if (!r.forked || r.holds_events()) {
        fail_request(r, ErrorCode::kDeadlineExceeded, "the request's deadline passed before its first token");
        continue;
      }
      // What there is has been sent: the answers end here, with the reason.
      std::vector<Sequence*> open;
      for (const auto& s : r.sequences)
        if (s->finished == FinishReason::kNone) open.push_back(s.get());
      Event finish;
      finish.finish_reason = FinishReason::kDeadline;
      for (Sequence* s : open) finish_sequence(*s, finish);
      continue;
    }
    if (!r.generation->full()) {
      r.full_since = 0;
    } else if (r.full_since == 0) {
      r.full_since = time;
    } else if (time - r.full_since > options_.stall_seconds) {
      {
        const std::lock_guard lock(mutex_);
        ++stats_.stalled_dropped;
      }
      fail_request(
          r, ErrorCode::kUnavailable,
          fmt::format("the reader took nothing for {} seconds and was dropped", options_.stall_seconds));
      any = true;
    }
  }
  return any;
}

void Loop::emit(RequestState& r, Event event) { r.generation->push(std::move(event)); }

void Loop::remove_sequence(Sequence& s) {
  blocks_.release(s.table);
  swapped_bytes_ -= s.swapped.size;
  s.swapped = {};
  s.waits_for_beams = false;
  std::erase(running_, &s);
  std::erase(waiting_, &s);
}

void Loop::end_request(RequestState& r, Event last) {
  for (const auto& s : r.sequences) remove_sequence(*s);
  std::erase_if(entries_, [&](const StepEntry& e) { return e.sequence->request == &r; });
  r.timing.total = now() - r.arrival;
  last.usage = r.usage;
  last.timing = r.timing;
  const std::shared_ptr<Generation> generation = std::move(r.generation);
  {
    const std::lock_guard lock(mutex_);
    by_id_.erase(r.id);
    // Before the reader can see the end: whoever has read it finds the engine's numbers complete.
    if (--open_requests_ == 0) idle_.notify_all();
    if (last.kind == Event::Kind::kDone) {
      stats_.end_to_end.add(r.timing.total);
      stats_.generation_length.add(r.usage.completion_tokens);
      stats_.prompt_length.add(r.usage.prompt_tokens);
      stats_.inference.add(r.timing.total - r.timing.queued);
      if (r.timing.first_token > 0) {
        stats_.prefill.add(r.timing.first_token - r.timing.queued);
        stats_.decode.add(r.timing.total - r.timing.first_token);
        stats_.wanted_tokens.add(r.max_tokens);
        stats_.wanted_answers.add(r.request.generation.n);
      }
      if (r.usage.completion_tokens > 1 && r.request.generation.n == 1)
        stats_.time_per_output_token.add((r.timing.total - r.timing.first_token) /
                                         (r.usage.completion_tokens - 1));
    }
  }
  std::erase_if(requests_, [&](const std::unique_ptr<RequestState>& p) { return p.get() == &r; });
  update_gauges();
  generation->set_waker({});
  generation->push(std::move(last));
}

void Loop::fail_request(RequestState& r, ErrorCode code, const std::string& sentence) {
  Event e;
  e.kind = Event::Kind::kError;
  e.error_code = static_cast<int>(code);
  e.error = sentence;
  {
    const std::lock_guard lock(mutex_);
    ++(code == ErrorCode::kCancelled          ? stats_.finished_cancelled
       : code == ErrorCode::kDeadlineExceeded ? stats_.finished_deadline
                                              : stats_.finished_error);
  }
  end_request(r, std::move(e));
}

/// All answers are complete: the best are sent when they were kept back, then the end.
void Loop::complete_request(RequestState& r) {
  const GenerationParams& g = r.request.generation;
  if (g.beam_width == 0 && r.holds_events()) {
    std::vector<Sequence*> order;
    for (const auto& s : r.sequences) order.push_back(s.get());
    const auto score = [](const Sequence* s) { return s->cumulative_logprob / std::max(1, s->generated()); };
    std::stable_sort(order.begin(), order.end(), [&](auto* a, auto* b) { return score(a) > score(b); });
    for (int32_t i = 0; i < g.n; ++i)
      for (Event& e : order[static_cast<size_t>(i)]->held) {
        e.choice = i;
        emit(r, std::move(e));
      }
  }
  Event done;
  done.kind = Event::Kind::kDone;
  end_request(r, std::move(done));
}

void Loop::update_gauges() {
  const std::lock_guard lock(mutex_);
  stats_.running = static_cast<int64_t>(running_.size());
  stats_.swapped = std::count_if(waiting_.begin(), waiting_.end(),
                                 [](const Sequence* s) { return s->state == State::kSwapped; });
  stats_.waiting = static_cast<int64_t>(waiting_.size()) - stats_.swapped;
  stats_.paused =
      std::count_if(requests_.begin(), requests_.end(), [](const auto& r) { return r->full_since != 0; });
  stats_.blocks_used = stats_.blocks_cached = 0;
  for (int g = 0; g < blocks_.num_groups(); ++g) {
    if (blocks_.shape(g).kind == GroupShape::Kind::kState) continue;
    const BlockPool& pool = blocks_.pool(g);
    stats_.blocks_cached += pool.idle_blocks();
    stats_.blocks_used += pool.size() - pool.available();
  }
  int64_t places = 0, filled = 0;
  for (const Sequence* s : running_) {
    if (s->table.blocks.empty()) continue;
    for (size_t g = 0; g < s->table.blocks.size(); ++g) {
      if (blocks_.shape(static_cast<int>(g)).kind != GroupShape::Kind::kGrowing) continue;
      places += static_cast<int64_t>(s->table.blocks[g].size()) * options_.block_size;
      filled += s->computed;
    }
  }
  stats_.kv_waste = places > 0 ? 1.0 - static_cast<double>(filled) / static_cast<double>(places) : 0.0;
  stats_.swap_bytes_used = static_cast<uint64_t>(swapped_bytes_);
  stats_.activation_bytes = runner_.activation_bytes();
}

}  // namespace millrace::engine
