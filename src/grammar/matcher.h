// The grammar engine's public face: a compiled grammar, and matchers that follow one output each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "grammar/program.h"
#include "grammar/vocabulary.h"

namespace millrace::grammar {

/// A program with the vocabulary it masks. Immutable but for the vocabulary's cache of masks, which is
/// thread-safe.
class CompiledGrammar {
 public:
  CompiledGrammar(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie);

  const Program& program() const { return *program_; }
  const std::shared_ptr<const Program>& shared_program() const { return program_; }
  const TokenTrie& trie() const { return *trie_; }
  /// Estimate of the program; masks are the vocabulary's.
  size_t bytes() const;

 private:
  std::shared_ptr<const Program> program_;
  std::shared_ptr<const TokenTrie> trie_;
};

/// Follows one output, token by token. Copies (forks) and rollbacks are O(1): what they share is immutable. A
/// matcher and its forks may be used from different threads, one call at a time each; they take turns on a
/// lock they share. Errors: kLimitExceeded from any call when an ambiguous grammar is in too many places at
/// once.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const CompiledGrammar> grammar);
  Matcher(const Matcher& other);
  Matcher& operator=(const Matcher& other);
  Matcher(Matcher&& other) noexcept = default;
  Matcher& operator=(Matcher&& other) noexcept;
  ~Matcher();

  Matcher fork() const { return *this; }

  const CompiledGrammar& grammar() const;
  /// Words of a mask: (vocabulary + 63) / 64.
  size_t mask_words() const;
  /// Bit t of out: whether token t may come next. End-of-generation tokens exactly when the text may end
  /// here.
  void fill_mask(std::span<uint64_t> out);
  /// Takes the token; false (and no change) when the grammar does not allow it. An end-of-generation token
  /// ends.
  bool accept(TokenId token);
  /// Takes bytes as one step, as if they were a token. False and no change when they do not fit.
  bool accept_bytes(std::string_view bytes);
  /// Number of accepted steps that can be undone.
  size_t depth() const;
  /// Undoes the last n steps. Error(kInvalidArgument) when there are fewer.
  void rollback(size_t n);
  /// Whether the text so far matches the whole grammar.
  bool can_end() const;
  /// Whether the end was accepted.
  bool is_terminated() const;
  /// Whether nothing but the end can follow.
  bool must_end();
  /// The bytes that must come next, as long as there is no choice (at most max_bytes); not accepted yet.
  /// With `plain_spelling`, that a character of a JSON string may be written as an escape, too, is no choice:
  /// where only one ASCII character may come, it is forced as it is.
  std::string forced_bytes(size_t max_bytes = 4096, bool plain_spelling = false);
  /// Length of the longest prefix of `text` that can be accepted from here (nothing is accepted).
  size_t viable_prefix(std::string_view text);
  /// Estimate of the bytes from here to the nearest complete text; `after`: first taking these bytes. Huge
  /// when they do not fit.
  uint64_t distance_to_end(class CompletionCost& cost, std::string_view after = {});
  /// Equal for equal configurations: whatever follows is judged alike. Not for storing.
  uint64_t state_hash() const;
  /// Estimate of the bytes that this matcher and its forks hold.
  size_t bytes() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  uint32_t step_ = 0;
  std::string text_;  ///< the output so far, kept only where the grammar compares with it
};

/// Convenience: whether `text` as a whole matches; the first byte that does not fit (or the length)
/// otherwise.
struct MatchResult {
  bool accepted = false;
  size_t at = 0;
};
MatchResult match_text(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text);

}  // namespace millrace::grammar
