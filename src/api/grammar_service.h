// Grammars of requests, compiled off the engine's thread for one model's vocabulary.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/grammar_constraint.h"
#include "api/request.h"
#include "grammar/compiler.h"
#include "text/tokenizer.h"

namespace millrace::api {

/// The vocabulary as grammars see it: bytes of tokens, end tokens, and no special token as text. `spelled`
/// are special tokens that count as their text, because a format writes tool calls with them.
grammar::Vocabulary grammar_vocabulary(const text::Tokenizer& tokenizer,
                                       const std::vector<bool>& spelled = {});

/// What a request asks for, as one grammar. Kind of the source and errors are told by `param`.
struct RequestGrammar {
  grammar::Source source;
  std::string param;
  bool calls = false;  ///< it has tool calls, so their markers are text
  std::string prefix, trigger, lead;
  bool trigger_in_grammar = true, trigger_at_start = false, must_trigger = false;
  bool bound_spaces = false;  ///< white space means nothing in it
};

class GrammarService {
 public:
  struct Options {
    grammar::GrammarCompiler::Options compiler;
    double wait_seconds = 10;  ///< a grammar that has not been compiled by then is given up with 503
  };

  /// Builds the vocabulary's tries. The tokenizer must outlive the service and its constraints.
  GrammarService(const text::Tokenizer& tokenizer, const OutputFormat& format, Options options);

  /// The request's constraint, null when it has none. Waits for the compilation. ApiError: 400 naming the
  /// parameter when the grammar is refused, 503 when there is no time.
  std::unique_ptr<engine::TokenConstraint> constraint(const GenerationRequest& request,
                                                      const OutputFormat& format, std::string_view prompt,
                                                      bool starts_in_reasoning);

  const GrammarCounters& counters() const { return *counters_; }
  size_t cached_grammars() const;
  size_t cached_bytes() const;

 private:
  std::shared_ptr<const grammar::CompiledGrammar> compile(const RequestGrammar& wanted);
  std::shared_ptr<const MarkerTable> marker(const std::string& text);

  const text::Tokenizer& tokenizer_;
  const Options options_;
  std::shared_ptr<const std::vector<std::string>> token_text_;
  std::shared_ptr<const SpaceTokens> spaces_;
  std::shared_ptr<GrammarCounters> counters_ = std::make_shared<GrammarCounters>();
  grammar::GrammarCompiler text_;
  std::unique_ptr<grammar::GrammarCompiler> calls_;  ///< null: markers are no special tokens
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const MarkerTable>> markers_;
};

/// `exact`: with the schemas of the tools; otherwise arguments are any object. False when there is no
/// grammar.
bool request_grammar(const GenerationRequest& request, const OutputFormat& format, std::string_view prompt,
                     bool exact, const std::vector<std::string>& end_texts, RequestGrammar& out);

}  // namespace millrace::api
