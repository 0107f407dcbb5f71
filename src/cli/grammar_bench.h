// Timing of token masks for `millrace grammar`.
#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/matcher.h"

namespace millrace::cli {

struct MaskTimes {
  std::vector<double> micros;
  void add(double us) { micros.push_back(us); }
  /// count, mean_us, p50_us, p99_us, p999_us, max_us
  nlohmann::json summary();
};

/// Times a mask at every token of `text`, which is cut by longest match as a stand-in for a tokenizer.
/// Returns the number of tokens.
size_t time_masks(const std::shared_ptr<const grammar::CompiledGrammar>& g, const std::string& text,
                  MaskTimes& times, bool cpu_time = false);

struct GrammarBenchOptions {
  std::string schemas;  ///< JSON objects, one a line: {"schema": ..., "valid": [instances]}
  bool compact = false;
  bool cold = false;      ///< no masks in the background: the first use makes what it needs
  int64_t first = -1;     ///< only so many schemas
  int64_t slowest = 5;    ///< schemas with the slowest masks to name
  bool refusals = false;  ///< also list each refusal and each time of compilation
};

/// Compiles every schema, lets the background make masks as the server does, and times the masks along its
/// valid instances: as the first request sees it and as the second does. Times are the thread's, so that a
/// busy machine does not spoil them. Prints one JSON object.
void bench_grammars(const GrammarBenchOptions& options,
                    const std::shared_ptr<const grammar::TokenTrie>& trie);

}  // namespace millrace::cli
