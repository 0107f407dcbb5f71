// Beam search: the answers of a request are the beams. They advance together; each new beam is a fork of the
// one it continues, so that all share what they have in common.

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "engine/loop.h"
#include "engine/sampling/logprobs.h"

namespace millrace::engine {

/// The 2 * width likeliest continuations: even if width of them end their beams, width go on.
void Loop::beam_candidates(Sequence& s, std::span<float> logits, SampleScratch& scratch) {
  const GenerationParams& g = s.request->request.generation;
  scratch.mask.clear();
  if (s.constraint && !s.mask.empty()) {
    scratch.mask.swap(s.mask);
    s.mask.clear();
  } else if (s.constraint) {
    scratch.mask.assign((logits.size() + 63) / 64, 0);
    s.constraint->fill_mask(scratch.mask);
  }
  std::vector<TokenId> banned;
  if (s.generated() < g.min_tokens || g.ignore_eos) banned = g.end_tokens;
  if (s.generated() < g.min_tokens)
    banned.insert(banned.end(), g.stop_token_ids.begin(), g.stop_token_ids.end());
  s.sampler->process(logits, s.tokens, scratch.mask, banned, scratch.candidates.kernels());
  const kernels::Table& kernels = scratch.candidates.kernels();
  s.beams = top_logprobs(logits, 2 * g.beam_width, log_sum_exp(logits, kernels), kernels);
  std::erase_if(s.beams, [](const TokenLogprob& t) { return !std::isfinite(t.logprob); });
}

void Loop::advance_beams(RequestState& r) {
  const GenerationParams& g = r.request.generation;
  std::vector<Sequence*> live;
  for (const auto& s : r.sequences) {
    if (s->finished != FinishReason::kNone) continue;
    if (!s->waits_for_beams) return;
    live.push_back(s.get());
  }
  struct Continuation {
    Sequence* parent;
    TokenLogprob next;
    double total;
  };
  std::vector<Continuation> all;
  for (Sequence* s : live)
    for (const TokenLogprob& t : s->beams) all.push_back({s, t, s->cumulative_logprob + t.logprob});
  const auto width = static_cast<size_t>(g.beam_width);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.total > b.total; });
  if (all.size() > 2 * width) all.resize(2 * width);

  const auto score = [&](double total, int32_t length) {
    return total / std::pow(static_cast<double>(std::max(1, length)), static_cast<double>(g.length_penalty));
  };
  const auto token_event = [](const TokenLogprob& t) {
    Event e;
    e.kind = Event::Kind::kToken;
    e.token = t.token;
    e.logprob = t.logprob;
    return e;
  };
  const auto complete = [&](const Sequence& parent, const Event& token, double total, Event finish) {
    Hypothesis h;
    h.events = parent.held;
    h.events.push_back(token);
    h.cumulative_logprob = finish.cumulative_logprob = total;
    h.score = score(total, parent.generated() + 1);
    finish.kind = Event::Kind::kFinish;
    h.events.push_back(std::move(finish));
    r.hypotheses.push_back(std::move(h));
  };

  // Which continuations go on, and which are complete. The beams' new states are made first and replace the
  // old ones at once.
  std::vector<std::unique_ptr<Sequence>> next;
  for (size_t rank = 0; rank < all.size() && next.size() < width; ++rank) {
    const Continuation& c = all[rank];
    auto s = std::make_unique<Sequence>();
    s->request = &r;
    s->state = State::kRunning;
    s->tokens = c.parent->tokens;
    s->tokens.push_back(c.next.token);
    if (c.parent->constraint) s->constraint = c.parent->constraint->fork();
    if (c.parent->watcher) s->watcher = c.parent->watcher->fork();
    Event finish;
    const Event token = token_event(c.next);
    if (ends(*s, c.next.token, finish)) {
      // One that ends counts only while it is among the best: worse ones may still be overtaken.
      if (rank < width || finish.finish_reason == FinishReason::kLength)
        complete(*c.parent, token, c.total, std::move(finish));
      continue;
    }
    s->choice = static_cast<int32_t>(next.size());
    s->computed = c.parent->computed;
    s->hashes = c.parent->hashes;
    s->rotation = c.parent->rotation;
    s->held = c.parent->held;
    s->held.push_back(token);
    s->cumulative_logprob = c.total;
    s->sampler.emplace(c.parent->sampler->fork(1));
    s->sampler->accept(s->tokens);
    if (c.parent->state == State::kRunning) {
      blocks_.fork(c.parent->table, s->table);
    } else {
      // The parent was preempted while it waited for the others: what it had is computed again.
      s->state = State::kWaiting;
      s->computed = 0;
    }
    next.push_back(std::move(s));
  }
  for (const auto& old : r.sequences) remove_sequence(*old);
  std::erase_if(entries_, [&](const StepEntry& e) { return e.sequence->request == &r; });
  r.usage.completion_tokens += static_cast<int32_t>(live.size());
  {
    const std::lock_guard lock(mutex_);
    stats_.generation_tokens += live.size();
    if (r.timing.first_token == 0) {
      r.timing.first_token = now() - r.arrival;
      stats_.ttft.add(r.timing.first_token);
    }
  }
  r.sequences = std::move(next);
  for (const auto& s : r.sequences) {
    if (s->state == State::kRunning) {
      running_.push_back(s.get());
      continue;
    }
    const auto at = std::lower_bound(waiting_.begin(), waiting_.end(), r.rank,
                                     [](const Sequence* w, double rank) { return w->request->rank < rank; });
    waiting_.insert(at, s.get());
  }

  std::stable_sort(r.hypotheses.begin(), r.hypotheses.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  if (r.hypotheses.size() > width) r.hypotheses.resize(width);
  bool done = r.sequences.empty();
  if (!done && r.hypotheses.size() >= width) {
    const Sequence& best = *r.sequences.front();
    done = g.early_stopping || score(best.cumulative_logprob, best.generated()) <= r.hypotheses.back().score;
  }
  if (done) finish_beams(r);
}

void Loop::finish_beams(RequestState& r) {
  const GenerationParams& g = r.request.generation;
  if (r.hypotheses.empty()) {
    fail_request(r, ErrorCode::kInternal, "no token may come next in any beam");
    return;
  }
  const auto count = std::min(r.hypotheses.size(), static_cast<size_t>(g.n));
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count; ++i)
      ++(r.hypotheses[i].events.back().finish_reason == FinishReason::kStop ? stats_.finished_stop
                                                                            : stats_.finished_length);
  }
  for (size_t i = 0; i < count; ++i)
    for (Event& e : r.hypotheses[i].events) {
      e.choice = static_cast<int32_t>(i);
      emit(r, std::move(e));
    }
  complete_request(r);
}

}  // namespace millrace::engine
