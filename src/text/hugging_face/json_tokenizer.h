// A tokenizer made from a tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace millrace::text {

/// What tokenizer_config.json and its neighbours add.
struct TokenizerSettings {
  std::string bos, eos, unknown, padding;  ///< tokens as text; empty: not said
  std::optional<bool> add_bos, add_eos;
  std::vector<TokenId> end_ids;  ///< from generation_config.json and config.json
};

/// Error(kInvalidFile), naming `origin` and the key; kUnsupported for a component that is not known.
std::unique_ptr<Tokenizer> make_json_tokenizer(const nlohmann::json& json, const std::string& origin,
                                               const TokenizerSettings& settings);

/// The same tokenizer as GGUF keeps one. Error(kUnsupported) saying what GGUF has no form for.
VocabularyData describe_json_tokenizer(const nlohmann::json& json, const std::string& origin,
                                       const TokenizerSettings& settings);

}  // namespace millrace::text
