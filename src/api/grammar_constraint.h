// A grammar as a constraint on the engine's tokens: when it begins to hold (after reasoning, or at the marker
// of a tool call), how long reasoning may last, and the masks from then on.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "grammar/matcher.h"

namespace millrace::api {

/// Finds a marker in the bytes of tokens, and knows which tokens complete it, and with what behind it.
class MarkerTable {
 public:
  struct Hit {
    engine::TokenId token;
    uint32_t taken;  ///< bytes of the token up to the marker's end
  };

  MarkerTable(std::string marker, const std::vector<std::string>& token_text);

  const std::string& marker() const { return marker_; }
  /// How much of the marker the text ends with after `bytes`; `done`: bytes taken when the marker was
  /// completed.
  size_t step(size_t state, std::string_view bytes, size_t& done) const;
  /// Calls f(hit) for every token that completes the marker from `state`; a token may come more than once.
  template <typename F>
  void for_each_hit(size_t state, F f) const {
    for (const Hit& hit : inside_) f(hit);
    for (size_t s = state; s > 0; s = border_[s])
      for (const Hit& hit : begun_[s]) f(hit);
  }

 private:
  std::string marker_;
  std::vector<size_t> border_;           ///< of prefixes: the longest shorter one that they end with
  std::vector<std::vector<Hit>> begun_;  ///< by how much of the marker stands already
  std::vector<Hit> inside_;              ///< tokens with the whole marker in them
};

/// Tokens that begin with white space, by the line ends in it: a model that has lost its way must not write
/// white space for ever where JSON allows any amount.
struct SpaceTokens {
  static constexpr size_t kLongest = 64;       ///< bytes of a run with a line end in it
  static constexpr size_t kLongestOnLine = 4;  ///< ... without one
  explicit SpaceTokens(const std::vector<std::string>& token_text);
  std::vector<engine::TokenId> any, one_line, more_lines;
};

/// Counters over all answers of a server, for its metrics.
struct GrammarCounters {
  std::atomic<uint64_t> compiled{0}, refused{0}, compile_micros{0};
  std::atomic<uint64_t> masks{0}, mask_nanos{0}, slow_masks{0};  ///< slow: above one millisecond
};

/// What all answers of a request have in common. Immutable.
struct ConstraintRules {
  std::shared_ptr<const grammar::CompiledGrammar> grammar;  ///< null: only reasoning is bounded
  std::string prefix;                                       ///< text that comes before the grammar's, forced
  std::shared_ptr<const MarkerTable> trigger;  ///< the grammar holds from here on; null: from the start
  std::string lead;                            ///< what the grammar has before the trigger
  bool trigger_in_grammar = true;              ///< the grammar has the trigger's text, too
  bool trigger_at_start = false;               ///< it counts only as the answer's first text
  bool must_trigger = false;                   ///< the answer may not end before

  std::shared_ptr<const MarkerTable> reasoning_end;  ///< null: no reasoning
  engine::TokenId reasoning_begin = -1;              ///< token that may open it as the first one; -1: none
  bool starts_in_reasoning = false;
  int32_t reasoning_budget = -1;                  ///< tokens; -1: no bound
  std::vector<engine::TokenId> end_of_reasoning;  ///< tokens that spell its end

  std::shared_ptr<const SpaceTokens> spaces;  ///< null: white space has no bound

  std::shared_ptr<const std::vector<std::string>> token_text;  ///< by id, special tokens spelled out
  std::vector<engine::TokenId> end_tokens;
  std::function<std::vector<engine::TokenId>(std::string_view)> encode;
  /// Tokens of a text that stands in the middle of another; empty where that cannot be told.
  std::function<std::vector<engine::TokenId>(std::string_view)> encode_inside;
  std::shared_ptr<GrammarCounters> counters;
};

class GrammarConstraint : public engine::TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<const ConstraintRules> rules);

  void fill_mask(std::span<uint64_t> bits) override;
  bool accept(engine::TokenId token) override;
  bool finished() const override;
  /// What the grammar leaves no choice about, as the tokenizer would have written it behind the last token;
  /// strings of JSON in their plain spelling. What text to come could still merge with is left to the model.
  std::vector<engine::TokenId> forced(size_t most) override;
  std::unique_ptr<engine::TokenConstraint> fork() const override;

 private:
  enum class Phase {
    kStart,      ///< reasoning may be opened by the next token
    kReasoning,  ///< free until its end
    kForced,     ///< the tokens of `forced_`, one after the other
    kFree,       ///< free until the trigger
    kGrammar,
    kDone,  ///< free
  };
  void after_reasoning(std::string_view rest);
  void begin_grammar();
  void force(std::vector<engine::TokenId> tokens, Phase then);
  void mask_free(std::span<uint64_t> bits, bool may_end) const;
  void mask_spaces(std::span<uint64_t> bits) const;
  void count_spaces(std::string_view text);
  void mask_hits(std::span<uint64_t> bits, const MarkerTable& table);
  void fill_from_matcher(std::span<uint64_t> bits);
  bool accept_reasoning(engine::TokenId token, std::string_view text);
  void accept_free(std::string_view text);
  bool fits_after_reasoning(std::string_view rest) const;
  grammar::Matcher triggered() const;
  std::vector<engine::TokenId> forced_by_grammar(size_t most);
  size_t settled_tokens(std::span<const engine::TokenId> tokens) const;

  std::shared_ptr<const ConstraintRules> rules_;
  Phase phase_ = Phase::kDone;
  std::optional<grammar::Matcher> matcher_;
  size_t marker_state_ = 0;
  int32_t reasoning_tokens_ = 0;
  std::string seen_;  ///< kFree with trigger_at_start: text so far
  std::vector<engine::TokenId> forced_;
  size_t forced_at_ = 0;
  Phase after_forced_ = Phase::kDone;
  bool finished_ = false;
  engine::TokenId last_ = -1;                ///< the token before
  size_t space_run_ = 0, lines_in_run_ = 0;  ///< white space between JSON's parts that the text ends with
  bool in_string_ = false, escaped_ = false;
};

}  // namespace millrace::api
