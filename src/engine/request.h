// What a client asks of the engine, in tokens. Nothing here knows text, JSON or HTTP: src/api turns those
// into this.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace millrace::engine {

using TokenId = int32_t;

/// How the next token is picked. The order of the chain is documented in sampling/chain.h. Every default
/// means "off".
struct SamplingParams {
  float temperature = 1.0f;  ///< 0: greedy; at most 100
  int32_t top_k = 0;         ///< keep the k likeliest; 0 (or -1): all
  float top_p = 1.0f;        ///< keep the smallest set whose probability reaches p; (0, 1]
  float min_p = 0.0f;        ///< drop what is less likely than min_p times the likeliest; [0, 1]
  float typical_p = 1.0f;    ///< locally typical sampling (Meister et al. 2022); (0, 1]

  int32_t mirostat = 0;       ///< 0 off, 1 or 2 (Basu et al. 2021); replaces top-k to XTC
  float mirostat_tau = 5.0f;  ///< wanted surprise in bits, > 0
  float mirostat_eta = 0.1f;  ///< learning rate, (0, 1]

  float xtc_probability = 0.0f;  ///< chance that the likeliest candidates are left out; [0, 1]
  float xtc_threshold = 0.1f;    ///< only candidates at least this likely may be left out; above 0.5 never

  float dry_multiplier = 0.0f;                              ///< 0: off
  float dry_base = 1.75f;                                   ///< >= 1
  int32_t dry_allowed_length = 2;                           ///< repeats up to this length cost nothing
  int32_t dry_penalty_last_n = -1;                          ///< tokens looked back at; -1: all
  std::vector<std::vector<TokenId>> dry_sequence_breakers;  ///< token sequences over which no repeat reaches

  float repetition_penalty =
      1.0f;  ///< > 0; logits of seen tokens (prompt included) divided or multiplied by it
  float presence_penalty = 0.0f;   ///< [-2, 2]; subtracted once from every generated token's logit
  float frequency_penalty = 0.0f;  ///< [-2, 2]; subtracted as often as the token was generated
  int32_t penalty_last_n = -1;     ///< window of the three, in tokens; -1: all, 0: none

  std::vector<std::pair<TokenId, float>>
      logit_bias;                ///< added to logits; [-100, 100] each, -100 bans the token
  std::optional<uint64_t> seed;  ///< none: drawn by the engine

  int32_t logprobs = -1;         ///< alternatives reported with each token; -1: no log-probabilities at all
  int32_t prompt_logprobs = -1;  ///< the same for the prompt's tokens
};

/// What ends a request, how many answers it has, and how it ranks among others.
struct GenerationParams {
  int32_t max_tokens = -1;          ///< -1: what the context leaves
  int32_t min_tokens = 0;           ///< end-of-generation and stop tokens are banned until then
  bool ignore_eos = false;          ///< end-of-generation tokens do not end it
  std::vector<TokenId> end_tokens;  ///< the vocabulary's end-of-generation tokens (delivered, not as text)
  std::vector<TokenId> stop_token_ids;  ///< end it even with ignore_eos

  int32_t n = 1;        ///< answers wanted
  int32_t best_of = 0;  ///< answers made, of which the n likeliest per token are given; 0: n

  int32_t beam_width =
      0;  ///< > 0: beam search of this width; temperature and the chain after it do not apply
  float length_penalty = 1.0f;  ///< beams are ranked by logprob / length^length_penalty
  bool early_stopping = false;  ///< beam search ends as soon as beam_width answers are complete
};

/// A constraint on the tokens of one answer (a grammar). Lives on the engine's threads: never called by two
/// at once, but not always by the same. The mask for a token is asked for while the model computes its logits
/// (EngineOptions:: masks_beside_step), which is right after accept() of the token before.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Writes one bit per token id, low bit first: 1 where the token may come next. Tokens beyond the grammar's
  /// vocabulary are 0. End-of-generation tokens are allowed where the text may end.
  virtual void fill_mask(std::span<uint64_t> bits) = 0;
  /// The token was picked; false when it was not allowed (then the answer fails).
  virtual bool accept(TokenId token) = 0;
  /// Nothing but an end token may follow.
  virtual bool finished() const = 0;
  /// Jump-forward: the tokens that come next whatever the model says, in order, at most `most`; empty where
  /// there is a choice (or an end is possible). Asked after each accept(); the engine accept()s each, sends
  /// it, and computes all of them as one chunk instead of in a step each. Not asked where their probabilities
  /// are wanted (log-probabilities, best_of, beams).
  virtual std::vector<TokenId> forced(size_t most) {
    static_cast<void>(most);
    return {};
  }
  virtual std::unique_ptr<TokenConstraint> fork() const = 0;
};

/// Watches the tokens of one answer, on the engine's thread, and ends it: stop strings are matched here, so
/// that no token beyond the match is computed or counted. src/api gives one that detokenises; it must be
/// cheap.
class TokenWatcher {
 public:
  virtual ~TokenWatcher() = default;
  /// True: the answer ends with this token, as by a stop token.
  virtual bool push(TokenId token) = 0;
  virtual std::unique_ptr<TokenWatcher> fork() const = 0;
};

enum class Task : uint8_t { kGenerate, kEmbed };
enum class Pooling : uint8_t { kMean, kLast, kFirst };

struct Request {
  Task task = Task::kGenerate;
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  GenerationParams generation;
  Pooling pooling = Pooling::kMean;  ///< kEmbed: how rows become one vector (unit length)

  std::unique_ptr<TokenConstraint> constraint;  ///< copied by fork() for each answer
  std::unique_ptr<TokenWatcher> watcher;        ///< the same

  int32_t priority = 0;         ///< smaller goes first (policy "priority")
  double deadline_seconds = 0;  ///< from submission; 0: none
  std::string cache_salt;       ///< prefixes are shared only among requests of equal tenant and salt
  std::string tenant;
  bool use_prefix_cache = true;  ///< look prompts up in the prefix cache and leave them there
  bool pin_prefix = false;       ///< keep the prompt's blocks when others are evicted (bounded by the engine)
  int32_t max_queued_events = 0;  ///< bound of the event queue; 0: the engine's default
};

/// Bounds that a server sets on what a client may ask for.
struct RequestLimits {
  int32_t max_n = 128;
  int32_t max_logprobs = 100;
  int32_t max_stop_tokens = 1024;
  int32_t max_logit_bias = 4096;
  int32_t max_beam_width = 64;
};

/// Checks every field; Error(kInvalidArgument) with one sentence that names the field, its value and its
/// range.
void validate(const SamplingParams& params, int32_t vocab_size, const RequestLimits& limits = {});
void validate(const Request& request, int32_t vocab_size, const RequestLimits& limits = {});

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kDeadline };
const char* finish_reason_name(FinishReason reason);

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;      ///< of the prompt, found in the prefix cache
  int32_t completion_tokens = 0;  ///< over all answers made, best_of and beams included
};

/// Seconds, from submission.
struct Timing {
  double queued = 0;       ///< until first scheduled
  double first_token = 0;  ///< until the first token
  double total = 0;
  int32_t preemptions = 0;
};

/// One thing that happened to a request. Order: kPrompt, then kToken and kFinish of the answers interleaved,
/// then kDone; kError instead of the rest at any point. kEmbedding and kDone for an embedding.
struct Event {
  enum class Kind : uint8_t { kPrompt, kToken, kFinish, kEmbedding, kDone, kError } kind = Kind::kToken;
  int32_t choice = 0;  ///< which answer, 0..n-1

  TokenId token = 0;              ///< kToken
  float logprob = 0;              ///< kToken, when asked for: of the model's own distribution
  std::vector<TokenLogprob> top;  ///< kToken, when asked for: likeliest first

  /// kPrompt, when asked for: entry i belongs to prompt token i; entry 0 is empty, later ones begin with the
  /// token itself.
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  std::vector<float> embedding;  ///< kEmbedding

  FinishReason finish_reason = FinishReason::kNone;  ///< kFinish
  std::optional<TokenId> stop_token;                 ///< kFinish by an end or stop token
  bool stopped_by_watcher = false;                   ///< kFinish by the watcher
  double cumulative_logprob = 0;                     ///< kFinish (beams: score before the length penalty)

  Usage usage;    ///< kPrompt (prompt part), kDone
  Timing timing;  ///< kDone

  int error_code = 0;  ///< kError: static_cast<int>(ErrorCode)
  std::string error;   ///< kError: the sentence
};

}  // namespace millrace::engine
