// One step of the engine: the plan carried out.

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "engine/loop.h"
#include "engine/sampling/logprobs.h"

namespace millrace::engine {

bool Loop::step() {
  if (running_.empty() && waiting_.empty()) return false;
  const double begin = now();
  build_input(begin);
  plan_step(input_, plan_);
  apply_plan();
  if (entries_.empty()) return !plan_.preempt.empty() || !plan_.too_late.empty();
  int64_t rows = 0, prompt_rows = 0, decoded = 0;
  for (const StepEntry& e : entries_) {
    const Sequence& s = *e.sequence;
    const bool last = s.computed + 1 == static_cast<int32_t>(s.tokens.size());
    rows += e.tokens;
    if (last || s.computed >= s.prompt_length()) decoded += e.tokens;
    if (e.sequence->generated() == 0) prompt_rows += e.tokens;
  }
  const auto sequences = static_cast<int64_t>(entries_.size());
  jobs_.clear();
  forward_seconds_ = 0;
  compute(/*embeddings=*/false);
  sample();
  compute(/*embeddings=*/true);
  entries_.clear();
  const double seconds = now() - begin;
  // The very first step finds nothing in any cache and touches pages for the first time: it tells nothing.
  if (costs_count_) {
    cost_.record(rows, seconds);
    chunks_.record(decoded, rows - decoded, seconds);
  }
  costs_count_ = true;
  const std::lock_guard lock(mutex_);
  ++stats_.steps;
  stats_.busy_seconds += seconds;
  stats_.forward_seconds += forward_seconds_;
  stats_.step.add(seconds);
  stats_.step_tokens.add(static_cast<double>(rows));
  stats_.batch_tokens = rows;
  stats_.batch_sequences = sequences;
  stats_.prompt_tokens += static_cast<uint64_t>(prompt_rows);
  return true;
}

void Loop::apply_plan() {
  entries_.clear();
  copies_.clear();
  std::vector<RequestState*> late;
  for (const int32_t i : plan_.too_late) {
    RequestState* r = viewed_[static_cast<size_t>(i)]->request;
    if (std::find(late.begin(), late.end(), r) == late.end()) late.push_back(r);
  }
  for (const StepPlan::Preempt& p : plan_.preempt) preempt(*viewed_[static_cast<size_t>(p.sequence)], p.swap);
  // Prefixes are taken hold of before anything is allocated, which may give up idle blocks.
  for (const StepPlan::Compute& c : plan_.compute) {
    Sequence& s = *viewed_[static_cast<size_t>(c.sequence)];
    if (s.state != State::kRunning) admit(s, input_.sequences[static_cast<size_t>(c.sequence)]);
    const RequestState& r = *s.request;
    const bool prompt_logprobs = r.request.sampling.prompt_logprobs >= 0 && !r.prompt_reported;
    StepEntry e;
    e.sequence = &s;
    e.tokens = c.tokens;
    e.all_rows = prompt_logprobs || (r.request.task == Task::kEmbed && r.needs_all_rows());
    e.outputs = e.all_rows || s.computed + c.tokens == static_cast<int32_t>(s.tokens.size());
    entries_.push_back(e);
  }
  for (const StepEntry& e : entries_) {
    Sequence& s = *e.sequence;
    copies_.clear();
    fresh_states_.clear();
    if (s.swapped.size > 0) {
      // Old blocks come back first, into fresh ones where there were any.
      const double begin = now();
      blocks_.reallocate(s.swapped.table, s.table);
      runner_.swap_in(s.swapped, s.table);
      copy_bandwidth_ =
          0.8 * copy_bandwidth_ + 0.2 * static_cast<double>(s.swapped.size) / (now() - begin + 1e-9);
      swapped_bytes_ -= s.swapped.size;
      s.swapped = {};
    }
    blocks_.grow(s.table, s.computed, s.computed + e.tokens, copies_, fresh_states_);
    runner_.copy(copies_);
    runner_.zero(fresh_states_);
  }
  for (RequestState* r : late)
    fail_request(*r, ErrorCode::kDeadlineExceeded,
                 "the request's deadline cannot be met: its prompt and first token alone would take longer");
}

void Loop::preempt(Sequence& s, bool swap) {
  if (swap) {
    const double begin = now();
    runner_.swap_out(s.table, s.swapped);
    copy_bandwidth_ =
        0.8 * copy_bandwidth_ + 0.2 * static_cast<double>(s.swapped.size) / (now() - begin + 1e-9);
    swapped_bytes_ += s.swapped.size;
    s.state = State::kSwapped;
  } else {
    s.state = State::kWaiting;
    s.computed = 0;
    s.prompt_logprobs.clear();
    s.pooled.clear();
  }
  blocks_.release(s.table);
  std::erase(running_, &s);
  const auto at = std::lower_bound(waiting_.begin(), waiting_.end(), s.request->rank,
                                   [](const Sequence* w, double rank) { return w->request->rank < rank; });
  waiting_.insert(at, &s);
  ++s.request->timing.preemptions;
  const std::lock_guard lock(mutex_);
  ++(swap ? stats_.preemptions_swap : stats_.preemptions_recompute);
}

void Loop::admit(Sequence& s, const SequenceView& view) {
  RequestState& r = *s.request;
  if (s.state == State::kWaiting) {
    blocks_.attach(s.table, s.hashes, view.computed);
    s.computed = view.computed;
    if (r.request.use_prefix_cache && !r.needs_all_rows()) {
      const std::lock_guard lock(mutex_);
      stats_.prefix_queried_tokens += s.tokens.size();
      stats_.prefix_hit_tokens += static_cast<uint64_t>(view.computed);
      if (!r.scheduled) stats_.prompt_tokens += static_cast<uint64_t>(view.computed);
    }
  }
  s.state = State::kRunning;
  std::erase(waiting_, &s);
  running_.push_back(&s);
  if (r.scheduled) return;
  r.scheduled = true;
  r.usage.cached_tokens = view.computed;
  r.timing.queued = now() - r.arrival;
  const std::lock_guard lock(mutex_);
  stats_.queue.add(r.timing.queued);
}

/// Computes the generating entries, or the embedding ones, and takes note of what is in the cache now.
void Loop::compute(bool embeddings) {
  part_.clear();
  for (const StepEntry& e : entries_)
    if ((e.sequence->request->request.task == Task::kEmbed) == embeddings) part_.push_back(e);
  if (part_.empty()) return;
  if (!embeddings && *options_.masks_beside_step) begin_masks();
  const double begin = now();
  try {
    runner_.forward(part_, embeddings);
  } catch (...) {
    companion_.wait();
    throw;
  }
  forward_seconds_ += now() - begin;
  companion_.wait();
  for (const StepEntry& e : part_) {
    commit(e);
    if (embeddings)
      pool_embedding(e);
    else if (e.outputs)
      take_rows(e);
  }
}

/// Those that get a token in this step: which may come depends only on the tokens so far.
void Loop::begin_masks() {
  masked_.clear();
  for (const StepEntry& e : part_)
    if (e.outputs && e.sequence->constraint &&
        e.sequence->computed + e.tokens == static_cast<int32_t>(e.sequence->tokens.size()))
      masked_.push_back(e.sequence);
  if (masked_.empty()) return;
  companion_.start([this] {
    for (Sequence* s : masked_) {
      s->mask.assign((static_cast<size_t>(info_.vocab_size) + 63) / 64, 0);
      try {
        s->constraint->fill_mask(s->mask);
      } catch (...) {
        // Asked again when the token is picked, where failing ends the one request.
        s->mask.clear();
      }
    }
  });
}

void Loop::commit(const StepEntry& e) {
  Sequence& s = *e.sequence;
  s.computed += e.tokens;
  const RequestState& r = *s.request;
  if (r.request.use_prefix_cache) {
    extend_hashes(s);
    blocks_.commit(s.table, s.tokens, s.hashes, s.computed);
    // States can be found again where the prompt's last whole block ends, and at every sixteenth block.
    const bool border = s.computed == s.stop_at || s.computed % (16 * options_.block_size) == 0;
    if (has_states_ && border) {
      copies_.clear();
      blocks_.checkpoint_states(s.table, s.tokens, s.hashes, s.computed, options_.max_sequences / 4, copies_);
      runner_.copy(copies_);
    }
  } else {
    blocks_.commit(s.table, s.tokens, {}, s.computed);
  }
}

/// What to do with an entry's rows of logits: the prompt's log-probabilities, and the next token.
void Loop::take_rows(const StepEntry& e) {
  Sequence& s = *e.sequence;
  RequestState& r = *s.request;
  if (e.all_rows) {
    if (s.prompt_logprobs.empty()) s.prompt_logprobs.emplace_back();
    for (int32_t i = 0; i < e.tokens; ++i) {
      const size_t next = static_cast<size_t>(s.computed - e.tokens + i + 1);
      if (next >= r.request.prompt.size()) break;
      const std::span<float> logits = runner_.output(e.first_output + i);
      const kernels::Table& kernels = scratch_[0].candidates.kernels();
      const double log_sum = log_sum_exp(logits, kernels);
      std::vector<TokenLogprob> entry;
      const TokenId token = r.request.prompt[next];
      entry.push_back({token, static_cast<float>(logits[static_cast<size_t>(token)] - log_sum)});
      for (const TokenLogprob& t : top_logprobs(logits, r.request.sampling.prompt_logprobs, log_sum, kernels))
        entry.push_back(t);
      s.prompt_logprobs.push_back(std::move(entry));
    }
  }
  if (s.computed < static_cast<int32_t>(s.tokens.size())) return;
  report_prompt(s);
  const int32_t row = e.first_output + (e.all_rows ? e.tokens - 1 : 0);
  if (r.max_tokens == 0) {
    jobs_.push_back({&s, -1, false, {}, {}});
    return;
  }
  if (!r.forked && r.request.generation.beam_width == 0) {
    fork_answers(s);
    for (const auto& answer : r.sequences)
      jobs_.push_back({answer.get(), row, r.sequences.size() > 1, {}, {}});
    return;
  }
  r.forked = true;
  jobs_.push_back({&s, row, false, {}, {}});
}

void Loop::report_prompt(Sequence& s) {
  RequestState& r = *s.request;
  if (r.prompt_reported) return;
  r.prompt_reported = true;
  if (r.request.pin_prefix) {
    size_t all = 0;
    for (int g = 0; g < blocks_.num_groups(); ++g) all += static_cast<size_t>(blocks_.pool(g).size());
    blocks_.pin(s.table, static_cast<int32_t>(r.request.prompt.size()), all / 4);
  }
  Event e;
  e.kind = Event::Kind::kPrompt;
  e.usage = r.usage;
  e.prompt_logprobs = std::move(s.prompt_logprobs);
  s.prompt_logprobs.clear();
  emit(r, std::move(e));
}

/// The prompt is computed: the other answers begin with its blocks.
void Loop::fork_answers(Sequence& first) {
  RequestState& r = *first.request;
  r.forked = true;
  for (int32_t i = 1; i < r.answers(); ++i) {
    auto s = std::make_unique<Sequence>();
    s->request = &r;
    s->choice = i;
    s->state = State::kRunning;
    s->tokens = first.tokens;
    s->computed = first.computed;
    s->hashes = first.hashes;
    s->rotation = first.rotation;
    blocks_.fork(first.table, s->table);
    s->sampler.emplace(first.sampler->fork(static_cast<uint64_t>(i) + 1));
    if (first.constraint) s->constraint = first.constraint->fork();
    if (first.watcher) s->watcher = first.watcher->fork();
    running_.push_back(s.get());
    r.sequences.push_back(std::move(s));
  }
}

/// Picks the next tokens, all answers at once over the workers, then takes them in one after the other.
void Loop::sample() {
  const auto count = static_cast<int64_t>(jobs_.size());
  if (count == 0) return;
  runner_.pool().parallel_for(count, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      Job& job = jobs_[static_cast<size_t>(i)];
      try {
        if (job.row >= 0) pick(static_cast<size_t>(i), scratch_[static_cast<size_t>(thread)]);
      } catch (const std::exception& e) {
        job.error = e.what();
      }
    }
  });
  std::vector<RequestState*> beams;
  // Taking a token may end its request, and with it the sequences of later jobs: those are skipped.
  for (size_t i = 0; i < jobs_.size(); ++i) {
    Sequence* s = jobs_[i].sequence;
    if (s == nullptr) continue;
    RequestState& r = *s->request;
    const auto forget = [&] {
      for (size_t j = i + 1; j < jobs_.size(); ++j)
        if (jobs_[j].sequence != nullptr && jobs_[j].sequence->request == &r) jobs_[j].sequence = nullptr;
    };
    if (!jobs_[i].error.empty()) {
      forget();
      fail_request(r, ErrorCode::kInternal, jobs_[i].error);
    } else if (jobs_[i].row < 0) {
      Event finish;
      finish.finish_reason = FinishReason::kLength;
      finish_sequence(*s, finish);
    } else if (r.request.generation.beam_width > 0) {
      s->waits_for_beams = true;
      if (std::find(beams.begin(), beams.end(), &r) == beams.end()) beams.push_back(&r);
    } else if (jobs_[i].picked.token < 0) {
      forget();
      fail_request(r, ErrorCode::kInternal,
                   s->constraint ? "no token of the vocabulary may come next under the grammar"
                                 : "the model's output has no finite number to pick a token by");
    } else {
      try {
        if (accept(*s, std::move(jobs_[i].picked))) jump_forward(*s);
      } catch (const std::exception& e) {
        // A constraint or a watcher that fails ends its own request and nobody else's.
        forget();
        fail_request(r, ErrorCode::kInternal, e.what());
      }
    }
  }
  for (RequestState* r : beams) advance_beams(*r);
  if (info_.rope_switch > 0 && !info_.rope_by_length) restart_rotation();
}

/// 0 for a text as short as the model's first rotation reaches; keys of different rotations are never shared.
int32_t Loop::rotation_of(size_t tokens) const {
  if (info_.rope_switch == 0 || tokens <= static_cast<size_t>(info_.rope_switch)) return 0;
  return info_.rope_by_length ? static_cast<int32_t>(tokens) : 1;
}

void Loop::extend_hashes(Sequence& s) {
  constexpr uint64_t kApart = 0x9e3779b97f4a7c15ULL;
  blocks_.extend_hashes(s.request->root_hash + static_cast<uint64_t>(s.rotation) * kApart, s.tokens,
                        s.hashes);
}

/// An answer that has grown beyond the first rotation is computed again from its first token with the other
/// one, as the modelling code does: its keys would be of two kinds otherwise.
void Loop::restart_rotation() {
  std::vector<Sequence*> grown;
  for (Sequence* s : running_)
    if (s->rotation != rotation_of(s->tokens.size())) grown.push_back(s);
  for (Sequence* s : grown) {
    preempt(*s, false);
    s->rotation = rotation_of(s->tokens.size());
    s->hashes.clear();
    extend_hashes(*s);
  }
}

void Loop::pick(size_t index, SampleScratch& scratch) {
  Job& job = jobs_[index];
  Sequence& s = *job.sequence;
  const GenerationParams& g = s.request->request.generation;
  std::span<float> logits = runner_.output(job.row);
  std::vector<float> copy;
  if (job.shared) {
    copy.assign(logits.begin(), logits.end());
    logits = copy;
  }
  if (g.beam_width > 0) {
    beam_candidates(s, logits, scratch);
    return;
  }
  scratch.mask.clear();
  if (s.constraint && !s.mask.empty()) {
    scratch.mask.swap(s.mask);
    s.mask.clear();
  } else if (s.constraint) {
    scratch.mask.assign((logits.size() + 63) / 64, 0);
    s.constraint->fill_mask(scratch.mask);
  }
  std::vector<TokenId> banned;
  if (s.generated() < g.min_tokens) {
    banned = g.end_tokens;
    banned.insert(banned.end(), g.stop_token_ids.begin(), g.stop_token_ids.end());
  }
  job.picked = s.sampler->sample(logits, s.tokens, scratch.mask, banned, scratch);
}

/// Takes a token in; false when the answer ended with it (and the sequence may be gone).
bool Loop::accept(Sequence& s, Picked picked) {
  RequestState& r = *s.request;
  s.tokens.push_back(picked.token);
  s.sampler->accept(s.tokens);
  s.cumulative_logprob += picked.logprob;
  ++r.usage.completion_tokens;
  const double time = now();
  {
    const std::lock_guard lock(mutex_);
    ++stats_.generation_tokens;
    if (r.timing.first_token == 0) {
      r.timing.first_token = time - r.arrival;
      stats_.ttft.add(r.timing.first_token);
    } else if (s.last_token_time != 0) {
      stats_.time_between_tokens.add(time - s.last_token_time);
    }
  }
  s.last_token_time = time;
  Event e;
  e.kind = Event::Kind::kToken;
  e.choice = s.choice;
  e.token = picked.token;
  e.logprob = picked.logprob;
  e.top = std::move(picked.top);
  if (r.holds_events())
    s.held.push_back(std::move(e));
  else
    emit(r, std::move(e));
  Event finish;
  if (!ends(s, picked.token, finish)) return true;
  finish_sequence(s, std::move(finish));
  return false;
}

/// Takes in what the constraint forces: the next step computes it all as one chunk.
void Loop::jump_forward(Sequence& s) {
  const RequestState& r = *s.request;
  if (!s.constraint || r.request.sampling.logprobs >= 0 || r.holds_events()) return;
  const int32_t room =
      std::min(r.max_tokens - s.generated(), max_context_ - static_cast<int32_t>(s.tokens.size()));
  uint64_t jumped = 0;
  for (const TokenId token : s.constraint->forced(static_cast<size_t>(room))) {
    check(token >= 0 && token < info_.vocab_size, "the grammar forces token {}, which the vocabulary lacks",
          token);
    Picked picked;
    picked.token = token;
    ++jumped;
    if (!accept(s, std::move(picked))) break;
  }
  const std::lock_guard lock(mutex_);
  stats_.jumped_tokens += jumped;
}

/// Whether the answer is complete with this token, its last.
bool Loop::ends(Sequence& s, TokenId token, Event& finish) {
  const RequestState& r = *s.request;
  const GenerationParams& g = r.request.generation;
  const auto among = [&](const std::vector<TokenId>& list) {
    return std::find(list.begin(), list.end(), token) != list.end();
  };
  const bool end_token = among(g.end_tokens);
  if ((end_token && !g.ignore_eos) || among(g.stop_token_ids)) {
    finish.finish_reason = FinishReason::kStop;
    finish.stop_token = token;
    return true;
  }
  if (s.watcher && s.watcher->push(token)) {
    finish.finish_reason = FinishReason::kStop;
    finish.stopped_by_watcher = true;
    return true;
  }
  if (s.constraint && !end_token) {
    check(s.constraint->accept(token), "the grammar's mask allowed token {}, but the grammar does not",
          token);
    if (s.constraint->finished()) {
      finish.finish_reason = FinishReason::kStop;
      return true;
    }
  }
  if (s.generated() >= r.max_tokens || static_cast<int32_t>(s.tokens.size()) >= max_context_) {
    finish.finish_reason = FinishReason::kLength;
    return true;
  }
  return false;
}

void Loop::finish_sequence(Sequence& s, Event finish) {
  RequestState& r = *s.request;
  finish.kind = Event::Kind::kFinish;
  finish.choice = s.choice;
  finish.cumulative_logprob = s.cumulative_logprob;
  s.finished = finish.finish_reason;
  {
    const std::lock_guard lock(mutex_);
    ++(s.finished == FinishReason::kStop       ? stats_.finished_stop
       : s.finished == FinishReason::kDeadline ? stats_.finished_deadline
                                               : stats_.finished_length);
  }
  if (r.holds_events())
    s.held.push_back(std::move(finish));
  else
    emit(r, std::move(finish));
  remove_sequence(s);
  for (const auto& other : r.sequences)
    if (other->finished == FinishReason::kNone) return;
  complete_request(r);
}

void Loop::pool_embedding(const StepEntry& e) {
  Sequence& s = *e.sequence;
  RequestState& r = *s.request;
  const auto width = static_cast<size_t>(info_.hidden_size);
  if (s.pooled.empty()) s.pooled.assign(width, 0.0);
  if (e.outputs) {
    const int32_t rows = e.all_rows ? e.tokens : 1;
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t position = s.computed - rows + i;
      if (r.request.pooling == Pooling::kFirst && position != 0) continue;
      const std::span<float> row = runner_.output(e.first_output + i);
      for (size_t c = 0; c < width; ++c) s.pooled[c] += static_cast<double>(row[c]);
    }
  }
  if (s.computed < static_cast<int32_t>(s.tokens.size())) return;
  double square = 0;
  for (const double x : s.pooled) square += x * x;
  const double scale = square > 0 ? 1.0 / std::sqrt(square) : 0.0;
  Event out;
  out.kind = Event::Kind::kEmbedding;
  out.usage = r.usage;
  for (const double x : s.pooled) out.embedding.push_back(static_cast<float>(x * scale));
  emit(r, std::move(out));
  complete_request(r);
}

}  // namespace millrace::engine
