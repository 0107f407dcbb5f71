#include "text/hugging_face/json_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/utf8.h"
#include "text/added_tokens.h"
#include "text/base_tokenizer.h"
#include "text/byte_alphabet.h"
#include "text/end_names.h"
#include "text/hugging_face/components.h"
#include "text/hugging_face/json_node.h"
#include "text/word_cache.h"

namespace millrace::text {
namespace {

struct AddedEntry {
  AddedToken token;
  bool normalized = false;
};

std::vector<AddedEntry> read_added_tokens(const JsonNode& root) {
  std::vector<AddedEntry> out;
  const std::optional<JsonNode> list = root.find("added_tokens");
  if (!list) return out;
  for (const JsonNode& item : list->items()) {
    AddedEntry entry;
    entry.token.text = item.at("content").string();
    entry.token.id = item.at("id").id();
    entry.token.special = item.flag("special", false);
    entry.token.strip_left = item.flag("lstrip", false);
    entry.token.strip_right = item.flag("rstrip", false);
    entry.token.single_word = item.flag("single_word", false);
    entry.normalized = item.flag("normalized", !entry.token.special);
    out.push_back(std::move(entry));
  }
  return out;
}

struct Scratch {
  WordCache cache;
  std::string spelt;
};

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const JsonNode& root, const TokenizerSettings& settings);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(const std::vector<TokenId>& ids, bool keep_special) const override;
  std::string piece(TokenId id, bool keep_special) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  TokenKind kind(TokenId id) const override {
    return in_range(id) ? kinds_[static_cast<size_t>(id)] : TokenKind::kUnused;
  }
  const std::string& raw(TokenId id) const override {
    static const std::string empty;
    return in_range(id) ? tokens_[static_cast<size_t>(id)] : empty;
  }
  std::optional<TokenId> find(std::string_view raw_token) const override {
    const TokenId id = ids_.find(raw_token);
    return id < 0 ? std::nullopt : std::optional<TokenId>(id);
  }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  const std::vector<TokenId>& end_of_generation() const override { return ends_; }
  bool adds_bos() const override { return adds_bos_; }
  bool adds_eos() const override { return adds_eos_; }
  bool strips_leading_space() const override { return strips_leading_space_; }

 private:
  bool in_range(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < tokens_.size(); }
  void read_components(const JsonNode& root);
  void add_tokens(const JsonNode& root);
  void apply_settings(const JsonNode& root, const TokenizerSettings& settings);
  std::optional<TokenId> setting_id(const JsonNode& root, const std::string& token) const;
  void encode_text(std::string_view text, bool at_start, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;
  void post_process(std::vector<TokenId>& ids) const;
  void add_frame(std::vector<TokenId>& ids) const;

  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PieceSplitter> splitter_;
  std::unique_ptr<TokenModel> model_;
  std::unique_ptr<PostProcessor> post_;
  std::unique_ptr<TokenDecoder> decoder_;
  AddedTokenMatcher raw_matcher_;         ///< found in the text as it is
  AddedTokenMatcher normalized_matcher_;  ///< found in the normalised text
  bool spell_bytes_ = false;              ///< words are bytes, the model wants GPT-2's alphabet

  std::vector<std::string> tokens_;
  std::vector<TokenKind> kinds_;
  TextMap ids_;
  std::optional<TokenId> bos_, eos_;
  std::vector<TokenId> ends_;
  bool adds_bos_ = false, adds_eos_ = false;
  bool prepend_bos_ = false, append_eos_ = false;  ///< asked for by the settings, not done by post_
  bool strips_leading_space_ = false;
  mutable ScratchPool<Scratch> scratch_;
};

JsonTokenizer::JsonTokenizer(const JsonNode& root, const TokenizerSettings& settings) {
  read_components(root);
  add_tokens(root);
  apply_settings(root, settings);
}

void JsonTokenizer::read_components(const JsonNode& root) {
  model_ = make_token_model(root.at("model"));
  if (const auto node = root.find("normalizer")) normalizer_ = make_normalizer(*node);
  if (const auto node = root.find("pre_tokenizer")) splitter_ = make_piece_splitter(*node);
  if (const auto node = root.find("post_processor")) post_ = make_post_processor(*node);
  if (const auto node = root.find("decoder")) decoder_ = make_token_decoder(*node);
  if (splitter_ && splitter_->ends_in_byte_alphabet()) {
    splitter_->leave_bytes();
    spell_bytes_ = true;
  }
  bool fused = false;
  // Without a decoder tokens are joined by spaces.
  strips_leading_space_ = decoder_ ? decoder_->strips_leading_space(fused) : true;
}

void JsonTokenizer::add_tokens(const JsonNode& root) {
  tokens_ = model_->tokens();
  std::vector<AddedEntry> added = read_added_tokens(root);
  const size_t limit = tokens_.size() + added.size() * 4 + (size_t{1} << 16);
  for (const AddedEntry& entry : added) {
    const auto index = static_cast<size_t>(entry.token.id);
    if (index >= limit)
      root.at("added_tokens")
          .bad(fmt::format("gives \"{}\" the id {}, far beyond the vocabulary's {} tokens", entry.token.text,
                           index, model_->tokens().size()));
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    tokens_[index] = entry.token.text;
  }
  require(!tokens_.empty(), ErrorCode::kInvalidFile, "{} has neither a vocabulary nor added tokens",
          root.place());
  kinds_.assign(tokens_.size(), TokenKind::kNormal);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = tokens_[i];
    if (token.empty())
      kinds_[i] = TokenKind::kUnused;
    else if (model_->byte_fallback() && token.size() == 6 && token.compare(0, 3, "<0x") == 0 &&
             token[5] == '>')
      kinds_[i] = TokenKind::kByte;
  }
  std::vector<AddedToken> raw, normalized;
  for (AddedEntry& entry : added) {
    kinds_[static_cast<size_t>(entry.token.id)] =
        entry.token.special ? TokenKind::kControl : TokenKind::kUserDefined;
    if (entry.normalized && normalizer_) entry.token.text = normalizer_->apply(entry.token.text);
    (entry.normalized ? normalized : raw).push_back(std::move(entry.token));
  }
  raw_matcher_ = AddedTokenMatcher(std::move(raw));
  normalized_matcher_ = AddedTokenMatcher(std::move(normalized));
  ids_.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (!tokens_[i].empty()) ids_.insert(tokens_[i], static_cast<TokenId>(i));
}

std::optional<TokenId> JsonTokenizer::setting_id(const JsonNode& root, const std::string& token) const {
  if (token.empty()) return std::nullopt;
  const TokenId id = ids_.find(token);
  require(id >= 0, ErrorCode::kInvalidFile,
          "{} has no token \"{}\", which tokenizer_config.json names as a special token", root.place(),
          token);
  return id;
}

void JsonTokenizer::apply_settings(const JsonNode& root, const TokenizerSettings& settings) {
  bos_ = setting_id(root, settings.bos);
  eos_ = setting_id(root, settings.eos);
  std::vector<TokenId> frame;
  post_process(frame);
  const auto framed = [&](const std::optional<TokenId>& id) {
    return id && std::find(frame.begin(), frame.end(), *id) != frame.end();
  };
  prepend_bos_ = settings.add_bos.value_or(false) && bos_ && !framed(bos_);
  append_eos_ = settings.add_eos.value_or(false) && eos_ && !framed(eos_);
  adds_bos_ = prepend_bos_ || (bos_ && !frame.empty() && frame.front() == *bos_);
  adds_eos_ = append_eos_ || (eos_ && !frame.empty() && frame.back() == *eos_);

  std::set<TokenId> ends;
  if (eos_) ends.insert(*eos_);
  for (const TokenId id : settings.end_ids)
    if (in_range(id)) ends.insert(id);
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (kinds_[i] == TokenKind::kControl && is_end_name(tokens_[i])) ends.insert(static_cast<TokenId>(i));
  ends_.assign(ends.begin(), ends.end());
}

std::vector<TokenId> JsonTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  require(text.size() < (size_t{1} << 31), ErrorCode::kLimitExceeded,
          "a text of {} bytes cannot be tokenised at once, expected less than 2 GiB", text.size());
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 4);
  std::vector<Fragment> fragments, inner;
  raw_matcher_.split(text, options.parse_special, fragments);
  const auto scratch = scratch_.take();
  for (const Fragment& fragment : fragments) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
      continue;
    }
    const std::string normalized =
        normalizer_ ? normalizer_->apply(fragment.text) : std::string(fragment.text);
    bool first = fragment.text.data() == text.data();
    if (first && normalizer_ && splitter_ && splitter_->uses_start() && !fragment.text.empty()) {
      // What the normalizer left without its first character does not begin the text.
      size_t second = 0;
      utf8::next(fragment.text, second);
      first = normalizer_->apply(fragment.text.substr(second)) != normalized;
    }
    inner.clear();
    normalized_matcher_.split(normalized, options.parse_special, inner);
    for (const Fragment& part : inner) {
      if (part.id >= 0)
        ids.push_back(part.id);
      else
        encode_text(part.text, first && part.text.data() == normalized.data(), *scratch, ids);
    }
  }
  if (options.add_special) add_frame(ids);
  return ids;
}

void JsonTokenizer::encode_text(std::string_view text, bool at_start, Scratch& scratch,
                                std::vector<TokenId>& out) const {
  if (!splitter_) {
    encode_word(text, scratch, out);
    return;
  }
  TextArena arena;
  std::vector<Piece> pieces = {{text, at_start}};
  splitter_->apply(pieces, arena);
  for (const Piece& piece : pieces) encode_word(piece.text, scratch, out);
}

void JsonTokenizer::encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty() || scratch.cache.get(word, out)) return;
  const size_t before = out.size();
  if (spell_bytes_) {
    scratch.spelt.clear();
    for (const char c : word) scratch.spelt += byte_alphabet()[static_cast<uint8_t>(c)];
    model_->tokenize(scratch.spelt, out);
  } else {
    model_->tokenize(word, out);
  }
  scratch.cache.put(word, out.data() + before, out.size() - before);
}

void JsonTokenizer::post_process(std::vector<TokenId>& ids) const {
  if (!post_) return;
  IdParts parts;
  parts.push_back(std::move(ids));
  post_->apply(parts);
  ids = std::move(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) ids.insert(ids.end(), parts[i].begin(), parts[i].end());
}

void JsonTokenizer::add_frame(std::vector<TokenId>& ids) const {
  post_process(ids);
  if (prepend_bos_) ids.insert(ids.begin(), *bos_);
  if (append_eos_) ids.push_back(*eos_);
}

std::string JsonTokenizer::decode(const std::vector<TokenId>& ids, bool keep_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    if (!in_range(id) || tokens_[static_cast<size_t>(id)].empty()) continue;
    if (!keep_special && kind(id) == TokenKind::kControl) continue;
    tokens.push_back(tokens_[static_cast<size_t>(id)]);
  }
  if (decoder_) decoder_->apply(tokens);
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!decoder_ && i > 0) out += ' ';
    out += tokens[i];
  }
  return out;
}

std::string JsonTokenizer::piece(TokenId id, bool keep_special) const {
  const TokenKind k = kind(id);
  if (k == TokenKind::kUnused || (k == TokenKind::kControl && !keep_special)) return {};
  std::string token = raw(id);
  if (!decoder_) return " " + token;
  bool fused = false;
  decoder_->apply_inside(token, fused);
  return token;
}

}  // namespace

std::unique_ptr<Tokenizer> make_json_tokenizer(const nlohmann::json& json, const std::string& origin,
                                               const TokenizerSettings& settings) {
  return std::make_unique<JsonTokenizer>(JsonNode(json, origin, ""), settings);
}

}  // namespace millrace::text
