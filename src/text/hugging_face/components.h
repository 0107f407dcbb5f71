// The stages of a tokenizer.json, as interfaces: normaliser, pre-tokeniser, model, post-processor, decoder.
// Each is made from its JSON object by the factory below it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace millrace::text {

class JsonNode;

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string_view text) const = 0;
};
std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node, int depth = 0);
/// Bytes of the map of a Precompiled normaliser.
std::vector<uint8_t> precompiled_charsmap(const JsonNode& node);

/// A part of a text on its way to the model.
struct Piece {
  std::string_view text;
  bool at_start = false;  ///< begins where the whole text begins
};

/// Owns the texts that pre-tokenisers write anew.
using TextArena = std::deque<std::string>;

class PieceSplitter {
 public:
  virtual ~PieceSplitter() = default;
  virtual void apply(std::vector<Piece>& pieces, TextArena& arena) const = 0;
  /// Whether the last thing it does is to spell bytes in GPT-2's alphabet. The caller may then take that over
  /// (`leave_bytes`), to spell only words that are new to it.
  virtual bool ends_in_byte_alphabet() const { return false; }
  virtual void leave_bytes() {}
  /// Whether it asks which piece begins the text.
  virtual bool uses_start() const { return false; }
};
std::unique_ptr<PieceSplitter> make_piece_splitter(const JsonNode& node, int depth = 0);

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual void tokenize(std::string_view word, std::vector<TokenId>& out) const = 0;
  /// Tokens by id; holes are empty.
  const std::vector<std::string>& tokens() const { return tokens_; }
  std::optional<TokenId> unknown() const { return unknown_; }
  bool byte_fallback() const { return byte_fallback_; }
  /// Fills what a GGUF vocabulary needs beside the tokens (scores or merges); false where it has no form for
  /// it.
  virtual bool describe(VocabularyData& data) const { return false; }

 protected:
  std::vector<std::string> tokens_;
  std::optional<TokenId> unknown_;
  bool byte_fallback_ = false;
};
std::unique_ptr<TokenModel> make_token_model(const JsonNode& node);

/// What a post-processor takes and gives: the ids of one text, later those of what was put around it too.
using IdParts = std::vector<std::vector<TokenId>>;

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual void apply(IdParts& parts) const = 0;
  /// How many parts it makes of `count`.
  virtual size_t parts_from(size_t count) const { return count; }
};
std::unique_ptr<PostProcessor> make_post_processor(const JsonNode& node, int depth = 0);

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  /// Rewrites the tokens of a whole text; their concatenation is the text.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
  /// One token in the middle of a text. `fused`: tokens have been joined, so that what follows acts on the
  /// borders of the text only.
  virtual void apply_inside(std::string& token, bool& fused) const = 0;
  /// Whether it takes a space from the start of a text.
  virtual bool strips_leading_space(bool& fused) const { return false; }
};
std::unique_ptr<TokenDecoder> make_token_decoder(const JsonNode& node, int depth = 0);

}  // namespace millrace::text
