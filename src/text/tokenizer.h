// Text to token ids and back. One class for all vocabularies; what differs (normaliser, pre-tokeniser, merge
// algorithm, decoder) is made by a factory from the checkpoint's metadata.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::text {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_special = true;    ///< BOS / EOS as the vocabulary asks for
  bool parse_special = true;  ///< special tokens written in the text ("<|im_start|>") become their ids
};

enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

/// Streaming detokeniser: gives text as soon as it cannot change, never half a character.
class StreamDecoder;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  /// Text of the ids. Special (control) tokens are left out unless `keep_special`.
  virtual std::string decode(const std::vector<TokenId>& ids, bool keep_special = false) const = 0;

  /// Bytes that `id` adds in the middle of a text (a leading-space mark is a space; byte tokens are their
  /// byte; control tokens give their name when `keep_special`, else nothing). Ids out of range give nothing.
  virtual std::string piece(TokenId id, bool keep_special = false) const = 0;

  virtual int32_t vocab_size() const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  /// The token as the vocabulary spells it ("▁the", "Ġthe", "<0x0A>").
  virtual const std::string& raw(TokenId id) const = 0;
  virtual std::optional<TokenId> find(std::string_view raw_token) const = 0;

  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  /// Every id that ends generation (EOS, end of turn, end of message).
  virtual const std::vector<TokenId>& end_of_generation() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;

  /// Decode strips one leading space from the start of a text (SentencePiece's dummy prefix).
  virtual bool strips_leading_space() const = 0;
};

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool keep_special = false)
      : tokenizer_(&tokenizer), keep_special_(keep_special) {}

  /// `prompt_follows_text` false at the start of a text (so that a dummy prefix space is stripped as decode()
  /// does).
  void set_at_start(bool at_start) { at_start_ = at_start; }
  /// Adds a token; returns the text that is now certain (may be empty). Ill-formed bytes become U+FFFD.
  std::string push(TokenId id);
  /// The rest at the end of the stream (an unfinished character becomes U+FFFD).
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool keep_special_;
  bool at_start_ = true;
  std::string pending_;
};

/// What a tokenizer is made from; filled from GGUF metadata ("tokenizer.ggml.*") by whoever opens the
/// checkpoint, so that this folder knows no file format of weights.
struct VocabularyData {
  std::string model;  ///< "llama" (SPM), "gpt2" (byte-level BPE), "bert", "t5" (Unigram), "rwkv", "none"
  std::string pre;    ///< pre-tokeniser rule: "llama-bpe", "qwen2", "default", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;        ///< empty or one each
  std::vector<int32_t> types;       ///< GGUF token types (1 normal .. 6 byte), empty or one each
  std::vector<std::string> merges;  ///< "left right"
  std::optional<TokenId> bos, eos, eot, eom, unknown, separator, padding, mask, cls;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::optional<bool> whitespace_as_suffix;  ///< "t5" only: the dummy space stands at the end
  /// SentencePiece's own rules to the letter, for vocabularies read from its model file: user-defined pieces
  /// are found inside the normalised text, and sums of scores are in float.
  bool sentence_piece_rules = false;
  std::optional<bool> lowercase, strip_accents;  ///< "bert" only; lower-case unless told otherwise
  std::vector<uint8_t> precompiled_charsmap;
  std::string name,
      architecture;    ///< "general.name" and "general.architecture": some files imply rules by them
  std::string origin;  ///< file name for errors
};

/// Error(kInvalidFile) when the data contradict themselves, kUnsupported for an unknown model or pre rule.
std::unique_ptr<Tokenizer> make_tokenizer(VocabularyData data);

/// From a Hugging Face directory: tokenizer.json (with tokenizer_config.json), or tokenizer.model
/// (SentencePiece), or vocab.json with merges.txt. Errors name file and key.
std::unique_ptr<Tokenizer> open_hugging_face_tokenizer(const std::string& directory);

/// The directory's chat template: chat_template.jinja, or the one of tokenizer_config.json (of several,
/// "default"); nullopt when there is none.
std::optional<std::string> hugging_face_chat_template(const std::string& directory);

/// The directory's tokenizer as GGUF keeps one. Error(kUnsupported) saying what GGUF has no form for.
VocabularyData hugging_face_vocabulary(const std::string& directory);

}  // namespace millrace::text
