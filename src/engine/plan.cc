// What the scheduler sees of the engine.

#include <algorithm>
#include <limits>

#include "engine/loop.h"

namespace millrace::engine {
namespace {

/// The scheduler looks at so many of those that wait, in the order of their rank.
constexpr size_t kWaitingLookedAt = 64;
/// However slow a prompt's rows are, it gets on by so many in a step.
constexpr int32_t kLeastMixedRows = 4;
/// A prompt that can be computed at once disturbs those who decode once: the step may take longer by so many
/// times what a chunk of a longer prompt may add, and by more where others wait behind it, since all of them
/// would get on by a few rows a step and few decode meanwhile.
constexpr double kWholePromptFactor = 10;
/// A reader that is behind for less is worth its blocks: it may go on before they could be of use to another.
constexpr double kIdleSeconds = 1;

}  // namespace

void Loop::build_input(double time) {
  input_.policy = options_.policy;
  input_.sequences.clear();
  viewed_.clear();
  input_.token_budget = options_.token_budget;
  input_.max_sequences = options_.max_sequences;
  input_.static_batch = options_.static_batch;
  input_.batch_wait = options_.batch_wait_seconds;
  input_.block_size = options_.block_size;
  input_.row_tile = runner_.row_tile();
  input_.groups = blocks_.shapes();
  input_.available = blocks_.available();
  input_.swap_bytes_left = static_cast<int64_t>(options_.swap_bytes) - swapped_bytes_;

  const auto view = [&](Sequence& s) -> SequenceView& {
    SequenceView& v = input_.sequences.emplace_back();
    viewed_.push_back(&s);
    v.state = s.state;
    v.rank = s.request->rank;
    v.waited = time - s.request->arrival;
    v.tokens = static_cast<int32_t>(s.tokens.size());
    v.computed = s.computed;
    v.runnable = s.request->full_since == 0 && !s.waits_for_beams;
    v.idle = s.request->full_since != 0 && time - s.request->full_since >= kIdleSeconds;
    v.sequences = s.request->forked ? 1 : s.request->answers();
    v.stop_at = chunk_border(s, s.computed);
    // Every row's logits are kept until the step is over: not for too many at once.
    if (s.request->needs_all_rows() && s.request->request.task == Task::kGenerate) v.max_chunk = 64;
    if (s.request->deadline != 0) {
      v.deadline = s.request->deadline - time;
      v.least_seconds = least_seconds(s);
    }
    return v;
  };
  int64_t decodes = 0, prompts = 0;
  // Of the prompt that comes first: its tokens, but for those that were found in the cache.
  double first_rank = std::numeric_limits<double>::infinity();
  int32_t first_rows = 0;
  const auto consider = [&](const SequenceView& v, int32_t cached) {
    if (!v.runnable || v.held || v.rank >= first_rank) return;
    first_rank = v.rank;
    first_rows = v.tokens - cached;
  };
  coming_.clear();
  for (Sequence* s : running_) {
    SequenceView& v = view(*s);
    view_running(*s, v);
    const auto left = static_cast<int64_t>(s->tokens.size()) - s->computed;
    v.answering = s->computed >= s->prompt_length();
    const bool prompt = left > 1 && !v.answering;
    (prompt ? prompts : decodes) += 1;
    if (prompt) consider(v, s->request->usage.cached_tokens);
    if (left > 1 && v.runnable && !waiting_.empty())
      for (size_t b = static_cast<size_t>(s->computed / options_.block_size); b < s->hashes.size(); ++b)
        coming_.insert(s->hashes[b]);
  }
  size_t looked_at = 0;
  for (Sequence* s : waiting_) {
    // Those that cannot run now are not in the way of others, however many there are.
    if (s->request->full_since != 0 || s->waits_for_beams) continue;
    SequenceView& v = view(*s);
    view_waiting(*s, v);
    consider(v, v.computed);
    if (++looked_at == kWaitingLookedAt) break;
  }
  prompts += static_cast<int64_t>(looked_at);

  input_.mixed_budget = options_.token_budget;
  if (options_.mixed_step_factor > 1 && decodes > 0) {
    // One prompt must not hold up those who read; but when many wait for their first token, they count twice
    // each against those who have theirs.
    const double waiting = 2.0 * static_cast<double>(prompts - 1) / static_cast<double>(decodes);
    const double factor = 1 + (options_.mixed_step_factor - 1) * std::max(1.0, waiting);
    int32_t rows = chunks_.rows(decodes, factor, kLeastMixedRows);
    const double whole =
        1 + kWholePromptFactor * (options_.mixed_step_factor - 1) * std::max(1.0, 2 * waiting);
    if (rows >= 0 && first_rows <= chunks_.rows(decodes, whole, 0)) rows = std::max(rows, first_rows);
    // Not known before something has decoded by itself: a block then.
    input_.mixed_budget = rows < 0 ? options_.block_size : rows;
  }
}

/// Where a chunk that begins at token `computed` must end, 0: anywhere. At a border where a state is kept,
/// and between prompt and answer, which both wait after a preemption: their products may be different ones.
int32_t Loop::chunk_border(const Sequence& s, int32_t computed) const {
  int32_t border = s.stop_at > computed ? s.stop_at : 0;
  const int32_t prompt = s.prompt_length();
  if (computed < prompt && s.generated() > 0 && (border == 0 || prompt < border)) border = prompt;
  return border;
}

void Loop::view_running(const Sequence& s, SequenceView& v) const {
  const auto known = static_cast<int32_t>(s.tokens.size());
  for (size_t g = 0; g < s.table.blocks.size(); ++g)
    v.table[g] = static_cast<int32_t>(s.table.blocks[g].size());
  // What writing the very next token needs beyond growth is a copy (or a state's slot).
  v.copy = blocks_.needed(s.table, s.computed, std::min(s.computed + 1, known));
  for (size_t g = 0; g < s.table.blocks.size(); ++g) {
    if (blocks_.shape(static_cast<int>(g)).kind == GroupShape::Kind::kState) continue;
    const bool grows = s.computed >= v.table[g] * options_.block_size;
    if (grows) v.copy[g] = 0;
  }
  v.exclusive = blocks_.exclusive(s.table);
  v.swap_bytes = runner_.swap_bytes(s.table);
  // The written rule: computing again costs a row for every token; swapping moves the bytes out and in.
  v.recompute_seconds = s.computed * (cost_.known() ? cost_.per_row() : 1e-3);
  v.swap_seconds = 2.0 * static_cast<double>(v.swap_bytes) / copy_bandwidth_;
}

void Loop::view_waiting(Sequence& s, SequenceView& v) {
  if (s.state == State::kSwapped) {
    for (size_t g = 0; g < s.swapped.table.blocks.size(); ++g) {
      const auto& blocks = s.swapped.table.blocks[g];
      v.table[g] = static_cast<int32_t>(blocks.size());
      v.take[g] =
          static_cast<int32_t>(std::count_if(blocks.begin(), blocks.end(), [](int32_t b) { return b >= 0; }));
    }
    return;
  }
  Match match;
  if (s.request->request.use_prefix_cache && !s.request->needs_all_rows())
    match = blocks_.match(s.tokens, s.hashes, v.tokens - 1);
  v.computed = match.tokens;
  v.stop_at = chunk_border(s, match.tokens);
  for (int g = 0; g < blocks_.num_groups(); ++g) {
    const auto at = static_cast<size_t>(g);
    const bool state = blocks_.shape(g).kind == GroupShape::Kind::kState;
    v.take[at] = match.tokens > 0 ? match.idle[at] : (state ? 1 : 0);
    v.table[at] = state ? 0 : match.tokens / options_.block_size;
  }
  v.held = prefix_is_coming(s, match.tokens);
}

/// Whether somebody computes the block that this sequence would begin with. If not, this one will.
bool Loop::prefix_is_coming(const Sequence& s, int32_t found) {
  if (!options_.prefix_cache || !s.request->request.use_prefix_cache || s.request->needs_all_rows())
    return false;
  const auto next = static_cast<size_t>(found / options_.block_size);
  // The last token is always computed, so the block that holds it is no use.
  // Tokens that were taken in after the last step have no hashes yet.
  const auto usable =
      std::min(s.hashes.size(),
               static_cast<size_t>((static_cast<int32_t>(s.tokens.size()) - 1) / options_.block_size));
  if (next >= usable) return false;
  if (coming_.contains(s.hashes[next])) return true;
  for (size_t b = next; b < s.hashes.size(); ++b) coming_.insert(s.hashes[b]);
  return false;
}

/// At least so long until the request is done: its prompt, and the tokens it cannot do without.
double Loop::least_seconds(const Sequence& s) const {
  if (!cost_.known()) return 0;
  const GenerationParams& g = s.request->request.generation;
  const int32_t sure = g.ignore_eos ? s.request->max_tokens : std::max(1, g.min_tokens);
  const auto left = static_cast<int32_t>(s.tokens.size()) - s.computed;
  const double steps = std::max(0, sure - s.generated() - 1);
  return cost_.step(left) + steps * cost_.step(1);
}

}  // namespace millrace::engine
