// The engine's own records of requests and their answers. Only the engine's thread touches them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/generation.h"
#include "engine/kv/block_manager.h"
#include "engine/request.h"
#include "engine/sampling/chain.h"
#include "engine/scheduler/scheduler.h"

namespace millrace::engine {

struct RequestState;

/// Blocks of a preempted sequence in the host area.
struct SwappedBlocks {
  std::unique_ptr<std::byte[]> bytes;
  int64_t size = 0;
  BlockTable table;  ///< which entries there were; ids no longer hold
};

/// One answer: tokens so far, how many are computed, where they lie.
struct Sequence {
  RequestState* request = nullptr;
  int32_t choice = 0;
  SequenceView::State state = SequenceView::State::kWaiting;
  std::vector<TokenId> tokens;  ///< prompt and answer
  int32_t computed = 0;
  BlockTable table;
  std::vector<uint64_t> hashes;  ///< of whole blocks
  SwappedBlocks swapped;
  int32_t rotation = 0;  ///< which of the model's rotations the cached keys have (Loop::rotation_of)
  int32_t stop_at = 0;   ///< models with states: border at which a chunk ends and a checkpoint is made

  std::optional<SamplerChain> sampler;
  std::unique_ptr<TokenConstraint> constraint;
  std::vector<uint64_t> mask;  ///< of the next token; empty: not computed
  std::unique_ptr<TokenWatcher> watcher;
  double cumulative_logprob = 0;
  double last_token_time = 0;
  FinishReason finished = FinishReason::kNone;

  std::vector<Event> held;          ///< best_of and beams: events until it is known who wins
  std::vector<TokenLogprob> beams;  ///< beam search: the likeliest next tokens, waiting for the other beams
  bool waits_for_beams = false;

  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  std::vector<double> pooled;  ///< embeddings: sum of the rows so far

  /// Tokens that were given; those from there on are the answer.
  int32_t prompt_length() const;
  int32_t generated() const { return static_cast<int32_t>(tokens.size()) - prompt_length(); }
};

/// One finished beam.
struct Hypothesis {
  std::vector<Event> events;
  double cumulative_logprob = 0;
  double score = 0;
};

struct RequestState {
  uint64_t id = 0;
  std::shared_ptr<Generation> generation;
  Request request;
  double arrival = 0;
  double deadline = 0;  ///< on the engine's clock; 0: none
  double rank = 0;
  uint64_t root_hash = 0;
  uint64_t seed = 0;
  int32_t max_tokens = 0;  ///< resolved
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Hypothesis> hypotheses;
  Usage usage;
  Timing timing;
  double full_since = 0;  ///< the reader is behind since then; 0: it is not
  bool scheduled = false;
  bool forked = false;  ///< n answers exist (or beams)
  bool prompt_reported = false;

  int32_t answers() const {
    const GenerationParams& g = request.generation;
    return g.beam_width > 0 ? g.beam_width : std::max(g.n, g.best_of);
  }
  bool needs_all_rows() const {
    return request.sampling.prompt_logprobs >= 0 ||
           (request.task == Task::kEmbed && request.pooling != Pooling::kLast);
  }
  /// Events are kept until all answers are complete.
  bool holds_events() const {
    const GenerationParams& g = request.generation;
    return g.beam_width > 0 || g.best_of > g.n;
  }
};

inline int32_t Sequence::prompt_length() const {
  // Without a request it is all prompt (Runner::fingerprint).
  return static_cast<int32_t>(request ? request->request.prompt.size() : tokens.size());
}

}  // namespace millrace::engine
