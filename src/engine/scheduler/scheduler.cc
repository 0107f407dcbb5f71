#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <numeric>

#include "core/checked.h"
#include "core/error.h"

namespace millrace::engine {
namespace {

using State = SequenceView::State;

constexpr double kSecondsPerPriority = 30;     // waiting so long is worth one class of priority
constexpr double kTokensPerSecondWaited = 50;  // ... so much shorter a job
constexpr double kNoDeadline = 600;            // rank of what has no deadline: as if it were so far away
constexpr double kReadingRows = 16;            // reading the weights costs about as much as so many rows
constexpr double kAheadFactor = 2.5;           // answers' known tokens make a step so many times as long
constexpr double kAheadGain = 1.1;             // ... and only where a row becomes so much cheaper
constexpr double kPassedOverTooLong = 30;      // max-batch: from then on nobody goes ahead

constexpr const char* kPolicyNames[] = {"fcfs",      "sjf",    "priority", "deadline",
                                        "max-batch", "static", "dynamic",  "one-by-one"};

class Planner {
 public:
  Planner(const SchedulerInput& input, StepPlan& plan)
      : in_(input), plan_(plan), available_(input.available) {
    order_.resize(in_.sequences.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int32_t a, int32_t b) { return at(a).rank < at(b).rank; });
    taken_.assign(order_.size(), false);
    for (const SequenceView& s : in_.sequences) {
      running_ += s.state == State::kRunning ? s.sequences : 0;
      if (!decodes(s)) continue;
      ++decodes_;
      const int32_t ahead = s.tokens - s.computed - 1;
      known_ahead_ += ahead;
      one_by_one_ += ahead == 0;
    }
    decode_budget_ = std::min(decodes_, in_.token_budget);
    chunk_budget_ = in_.token_budget - decode_budget_;
    if (decodes_ == 0) return;
    ahead_budget_ = worth_computing_ahead(std::min(known_ahead_, chunk_budget_));
    chunk_budget_ = std::min(chunk_budget_ - ahead_budget_, in_.mixed_budget);
  }

  void run() {
    bool admitting = may_admit();
    int32_t admitted = 0;
    const int32_t most = in_.policy == Policy::kOneByOne ? 1
                         : batched()                     ? std::min(in_.static_batch, in_.max_sequences)
                                                         : in_.max_sequences;
    for (const int32_t i : order_) {
      const SequenceView& s = at(i);
      if (taken_[z(i)] || !s.runnable) continue;
      const bool inside = s.state == State::kRunning;
      if (s.state == State::kWaiting && s.deadline != 0 && s.least_seconds > s.deadline) {
        plan_.too_late.push_back(i);
        continue;
      }
      if (!inside && (!admitting || s.held)) continue;
      int32_t tokens = tokens_for(s);
      // Without budget or a place for this one, nobody behind it gets in either.
      if (tokens == 0 || (!inside && !make_place(s, most))) {
        if (!inside) admitting = false;
        continue;
      }
      // Nobody goes out for what may as well be computed one by one.
      if (decodes(s) && tokens > 1 && !fits(needed(s, s.computed + tokens))) tokens = 1;
      if (!make_room(i, tokens)) {
        if (!inside && (in_.policy != Policy::kMaxBatch || s.waited > kPassedOverTooLong)) admitting = false;
        continue;
      }
      const BlockCounts used = needed(s, s.computed + tokens);
      for (size_t g = 0; g < in_.groups.size(); ++g) available_[g] -= used[g];
      if (decodes(s)) {
        --decode_budget_;
        ahead_budget_ -= tokens - 1;
      } else {
        chunk_budget_ -= tokens;
      }
      if (!inside) {
        running_ += s.sequences;
        ++admitted;
      }
      taken_[z(i)] = true;
      plan_.compute.push_back({i, tokens});
    }
  }

 private:
  static size_t z(int64_t i) { return static_cast<size_t>(i); }
  const SequenceView& at(int32_t i) const { return in_.sequences[z(i)]; }
  static bool decodes(const SequenceView& s) {
    return s.state == State::kRunning && s.runnable && (s.answering || s.tokens - s.computed == 1);
  }
  bool batched() const { return in_.policy == Policy::kStatic || in_.policy == Policy::kDynamic; }

  /// The baselines let nobody in while a batch runs.
  bool may_admit() const {
    if (in_.policy == Policy::kOneByOne) return running_ == 0;
    if (!batched()) return true;
    if (running_ > 0) return false;
    int32_t waiting = 0;
    double longest = 0;
    for (const SequenceView& s : in_.sequences) {
      if (s.state == State::kSwapped) return true;
      waiting += s.state == State::kWaiting ? s.sequences : 0;
      longest = std::max(longest, s.waited);
    }
    const double patience = in_.policy == Policy::kStatic ? 20 * in_.batch_wait : in_.batch_wait;
    return waiting >= in_.static_batch || longest >= patience;
  }

  int32_t tokens_for(const SequenceView& s) const {
    const int32_t left = s.tokens - s.computed;
    if (decodes(s) && decode_budget_ == 0) return 0;
    int32_t tokens = std::min(left, decodes(s) ? 1 + ahead_budget_ : chunk_budget_);
    if (s.max_chunk > 0) tokens = std::min(tokens, s.max_chunk);
    if (s.stop_at > s.computed) tokens = std::min(tokens, s.stop_at - s.computed);
    return tokens;
  }

  /// What a step costs by its rows of answers, in rows: its reading, and every tile that it begins.
  double cost(int32_t rows) const {
    return kReadingRows + static_cast<double>(ceil_div(rows, in_.row_tile) * in_.row_tile);
  }
  /// The same with what it costs to leave known tokens for later: each answer that has some left needs a step
  /// more, of which it bears its share.
  double cost_with_delays(int32_t rows) const {
    const int32_t left = known_ahead_ - (rows - decode_budget_), answers = decodes_ - one_by_one_;
    const int64_t delayed = left > 0 ? ceil_div(int64_t{left} * answers, known_ahead_) : 0;
    return cost(rows) + static_cast<double>(delayed) * cost(decodes_) / decodes_;
  }
  /// Of `most` tokens of answers that are known already, how many to compute beside the decodes: those that
  /// make the step's rows cheapest. Whoever has no such tokens waits for the others' at most so many times as
  /// long.
  int32_t worth_computing_ahead(int32_t most) const {
    if (most <= 0) return 0;
    int32_t all = decode_budget_ + most;
    if (one_by_one_ > 0)
      all = std::min(all, static_cast<int32_t>(kAheadFactor * cost(decode_budget_) - kReadingRows) /
                              in_.row_tile * in_.row_tile);
    const int32_t full = all / in_.row_tile * in_.row_tile;
    const auto worth = [&](int32_t rows) { return rows / cost_with_delays(rows); };
    int32_t best = decode_budget_;
    for (const int32_t rows : {full, all})
      if (rows > best && worth(rows) >= (best == decode_budget_ ? kAheadGain : 1) * worth(best)) best = rows;
    return best - decode_budget_;
  }

  BlockCounts needed(const SequenceView& s, int32_t target) const {
    BlockCounts need{};
    for (size_t g = 0; g < in_.groups.size(); ++g) {
      const bool state = in_.groups[g].kind == GroupShape::Kind::kState;
      need[g] = s.state == State::kRunning ? s.copy[g] : s.take[g];
      if (!plan_.preempt.empty()) need[g] += maybe_victims(s, g);
      if (!state) need[g] += std::max(0, static_cast<int32_t>(ceil_div(target, in_.block_size)) - s.table[g]);
    }
    return need;
  }

  /// Blocks that a waiting sequence found in the cache and that somebody uses now. Should that be a victim,
  /// they are counted as made available with it; so once anyone is preempted, they count for their finder,
  /// too.
  int32_t maybe_victims(const SequenceView& s, size_t g) const {
    if (s.state != State::kWaiting) return 0;
    const bool state = in_.groups[g].kind == GroupShape::Kind::kState;
    return std::max(0, (state ? 2 : s.table[g]) - s.take[g]);
  }

  /// What waits must fit with all its tokens and those it forks into, and leave a block for everyone inside,
  /// so that it does not get in only to be thrown out. When nobody is inside, it must only be able to begin.
  BlockCounts needed_to_enter(const SequenceView& s, int32_t target) const {
    if (running_ == 0) return needed(s, target);
    BlockCounts need = needed(s, s.tokens);
    for (size_t g = 0; g < in_.groups.size(); ++g)
      need[g] += s.sequences - 1 + (in_.groups[g].kind == GroupShape::Kind::kState ? 0 : running_);
    return need;
  }

  bool fits(const BlockCounts& need) const {
    for (size_t g = 0; g < in_.groups.size(); ++g)
      if (need[g] > available_[g]) return false;
    return true;
  }

  /// Preempts idle sequences until `s` may come in beside the others. A request may be wider than the whole
  /// limit; it then runs alone.
  bool make_place(const SequenceView& s, int32_t most) {
    const auto full = [&](int32_t inside) { return inside > 0 && inside + s.sequences > most; };
    if (!full(running_)) return true;
    std::vector<int32_t> idle;
    int32_t left = running_;
    for (auto it = order_.rbegin(); it != order_.rend() && full(left); ++it) {
      if (taken_[z(*it)] || !at(*it).idle || at(*it).state != State::kRunning) continue;
      idle.push_back(*it);
      left -= at(*it).sequences;
    }
    if (full(left)) return false;
    for (const int32_t v : idle) put_out(v);
    return true;
  }

  void put_out(int32_t victim) {
    const SequenceView& v = at(victim);
    const bool swap = v.swap_bytes > 0 && v.swap_bytes <= in_.swap_bytes_left - swapped_bytes_ &&
                      v.swap_seconds < v.recompute_seconds;
    if (swap) swapped_bytes_ += v.swap_bytes;
    if (plan_.preempt.empty())
      for (const StepPlan::Compute& c : plan_.compute)
        for (size_t g = 0; g < in_.groups.size(); ++g) available_[g] -= maybe_victims(at(c.sequence), g);
    for (size_t g = 0; g < in_.groups.size(); ++g) available_[g] += v.exclusive[g];
    running_ -= v.sequences;
    if (decodes(v)) --decode_budget_;
    taken_[z(victim)] = true;
    plan_.preempt.push_back({victim, swap});
  }

  /// Preempts until sequence `i` has room for `tokens`, if it may and that helps.
  bool make_room(int32_t i, int32_t tokens) {
    const SequenceView& s = at(i);
    const bool inside = s.state == State::kRunning;
    const auto need = [&] {
      return inside ? needed(s, s.computed + tokens) : needed_to_enter(s, s.computed + tokens);
    };
    // For the first in line everything is tried: blocks that victims share show only when all of them are
    // out.
    if (!plan_.compute.empty() && !fits(need()) && !could_fit(i, need())) return false;
    while (!fits(need())) {
      const int32_t victim = worst_behind(i);
      if (victim < 0) return false;
      put_out(victim);
    }
    return true;
  }

  /// Whether `v`, which is inside, is put out for `i`.
  bool gives_way(int32_t v, int32_t i) const {
    if (at(v).idle) return true;
    const bool may =
        at(i).state == State::kRunning || in_.policy == Policy::kPriority || in_.policy == Policy::kDeadline;
    return may && (!at(v).runnable || behind(v, i));
  }

  /// Whether `v`, which is inside, ranks behind `i`. Answers of one request rank alike: then the later one
  /// gives way to the earlier, lest each wait for the other; but nobody goes out for someone who waits and
  /// ranks alike.
  bool behind(int32_t v, int32_t i) const {
    if (at(v).rank != at(i).rank) return at(v).rank > at(i).rank;
    return at(i).state == State::kRunning && v > i;
  }

  /// Whether preempting everyone that gives way to `i` would do.
  bool could_fit(int32_t i, const BlockCounts& need) const {
    BlockCounts most = available_;
    if (plan_.preempt.empty())
      for (size_t g = 0; g < in_.groups.size(); ++g) {
        most[g] -= maybe_victims(at(i), g);
        for (const StepPlan::Compute& c : plan_.compute) most[g] -= maybe_victims(at(c.sequence), g);
      }
    for (const int32_t v : order_) {
      if (v == i || taken_[z(v)] || at(v).state != State::kRunning) continue;
      if (!gives_way(v, i)) continue;
      for (size_t g = 0; g < in_.groups.size(); ++g) most[g] += at(v).exclusive[g];
    }
    for (size_t g = 0; g < in_.groups.size(); ++g)
      if (need[g] > most[g]) return false;
    return true;
  }

  /// The running sequence to preempt for `i`: one that cannot run now, else the worst-ranked; -1: none.
  int32_t worst_behind(int32_t i) const {
    int32_t worst = -1;
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const SequenceView& v = at(*it);
      if (*it == i || taken_[z(*it)] || v.state != State::kRunning) continue;
      if (!gives_way(*it, i)) continue;
      if (!v.runnable) return *it;
      if (worst < 0) worst = *it;
    }
    return worst;
  }

  const SchedulerInput& in_;
  StepPlan& plan_;
  BlockCounts available_;
  std::vector<int32_t> order_;
  std::vector<bool> taken_;  // planned or preempted
  int32_t running_ = 0;
  int32_t decodes_ = 0;
  int32_t known_ahead_ = 0;  // tokens of answers behind those that decode
  int32_t one_by_one_ = 0;   // decodes behind which there are none
  int32_t chunk_budget_ = 0, decode_budget_ = 0, ahead_budget_ = 0;
  int64_t swapped_bytes_ = 0;
};

}  // namespace

void plan_step(const SchedulerInput& input, StepPlan& plan) {
  plan.compute.clear();
  plan.preempt.clear();
  plan.too_late.clear();
  Planner(input, plan).run();
}

double rank_of(Policy policy, double arrival, int32_t work_tokens, int32_t priority, double deadline) {
  switch (policy) {
    case Policy::kSjf:
    case Policy::kMaxBatch:
      return arrival + work_tokens / kTokensPerSecondWaited;
    case Policy::kPriority:
      return arrival + kSecondsPerPriority * priority;
    case Policy::kDeadline:
      return deadline != 0 ? deadline : arrival + kNoDeadline;
    case Policy::kFcfs:
    case Policy::kStatic:
    case Policy::kDynamic:
    case Policy::kOneByOne:
      return arrival;
  }
  return arrival;
}

Policy parse_policy(const std::string& name) {
  for (size_t i = 0; i < std::size(kPolicyNames); ++i)
    if (name == kPolicyNames[i]) return static_cast<Policy>(i);
  fail(ErrorCode::kInvalidArgument, "the policy '{}' is unknown: it must be one of {}", name,
       fmt::join(kPolicyNames, ", "));
}

const char* policy_name(Policy policy) { return kPolicyNames[static_cast<size_t>(policy)]; }

}  // namespace millrace::engine
