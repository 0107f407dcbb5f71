// Models of tokenizer.json: BPE, Unigram, WordPiece, WordLevel.
#include <cmath>
#include <limits>

#include "core/utf8.h"
#include "text/byte_trie.h"
#include "text/hash.h"
#include "text/hugging_face/components.h"
#include "text/hugging_face/json_node.h"
#include "text/merge.h"
#include "text/unigram.h"

namespace millrace::text {
namespace {

/// Ids of a "vocab" object. An id may not leave a gap larger than the vocabulary itself: the table is indexed
/// by id.
std::vector<std::string> read_vocabulary(const JsonNode& node) {
  if (!node.is_object()) node.bad("is not an object of tokens and ids");
  const size_t limit = node.size() * 4 + (size_t{1} << 16);
  std::vector<std::string> tokens;
  for (const auto& [token, value] : node.json().items()) {
    const auto index =
        static_cast<size_t>(JsonNode(value, node.file(), "model.vocab[\"" + token + "\"]").id());
    if (index >= limit)
      node.bad(
          fmt::format("gives token \"{}\" the id {}, far beyond its {} tokens", token, index, node.size()));
    if (index >= tokens.size()) tokens.resize(index + 1);
    tokens[index] = token;
  }
  return tokens;
}

TextMap index_tokens(const std::vector<std::string>& tokens) {
  TextMap map;
  map.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i)
    if (!tokens[i].empty()) map.insert(tokens[i], static_cast<TokenId>(i));
  return map;
}

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

class BpeModel final : public TokenModel {
 public:
  explicit BpeModel(const JsonNode& node)
      : prefix_(node.text("continuing_subword_prefix")),
        suffix_(node.text("end_of_word_suffix")),
        fuse_unknown_(node.flag("fuse_unk", false)),
        ignore_merges_(node.flag("ignore_merges", false)) {
    byte_fallback_ = node.flag("byte_fallback", false);
    tokens_ = read_vocabulary(node.at("vocab"));
    ids_ = index_tokens(tokens_);
    if (const auto unknown = node.find("unk_token")) {
      const TokenId id = ids_.find(unknown->string());
      // The reference accepts a name that is no token, and fails on the first unknown character; here it has
      // no effect.
      if (id >= 0) unknown_ = id;
    }
    for (int byte = 0; byte < 256; ++byte) bytes_[byte] = ids_.find(byte_token(static_cast<uint8_t>(byte)));
    read_merges(node.at("merges"));
  }

  void tokenize(std::string_view word, std::vector<TokenId>& out) const override {
    if (ignore_merges_) {
      if (const TokenId whole = ids_.find(word); whole >= 0) {
        out.push_back(whole);
        return;
      }
    }
    MergeScratch scratch;
    split(word, scratch.symbols);
    merge_symbols(scratch, [this](const MergeSymbol& left, const MergeSymbol& right) {
      return merges_.find(left.id, right.id);
    });
    for (const MergeSymbol& symbol : scratch.symbols) out.push_back(symbol.id);
  }

  bool describe(VocabularyData& data) const override {
    if (!prefix_.empty() || !suffix_.empty()) return false;
    data.merges.reserve(merge_pairs_.size());
    for (const auto& [left, right] : merge_pairs_)
      data.merges.push_back(tokens_[static_cast<size_t>(left)] + " " + tokens_[static_cast<size_t>(right)]);
    return true;
  }

 private:
  void read_merges(const JsonNode& node) {
    if (!node.is_array()) node.bad("is not an array of merges");
    merges_.reserve(node.size());
    merge_pairs_.reserve(node.size());
    for (size_t i = 0; i < node.size(); ++i) {
      const nlohmann::json& entry = node.json()[i];
      std::string_view left, right;
      if (entry.is_string()) {
        const std::string_view line = entry.get_ref<const std::string&>();
        const size_t space = line.find(' ');
        if (space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos) {
          left = line.substr(0, space);
          right = line.substr(space + 1);
        }
      } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        left = entry[0].get_ref<const std::string&>();
        right = entry[1].get_ref<const std::string&>();
      }
      if (left.empty() || right.empty()) node[i].bad("is not a pair of tokens (\"a b\" or [\"a\", \"b\"])");
      if (right.size() < prefix_.size())
        node[i].bad(fmt::format("names \"{}\", which is shorter than the subword prefix", right));
      const std::string joined = std::string(left) + std::string(right.substr(prefix_.size()));
      const TokenId left_id = ids_.find(left), right_id = ids_.find(right), id = ids_.find(joined);
      if (left_id < 0 || right_id < 0 || id < 0)
        node[i].bad(fmt::format("names \"{}\", which is no token of model.vocab",
                                left_id < 0    ? left
                                : right_id < 0 ? right
                                               : std::string_view(joined)));
      merges_.insert(left_id, right_id, {static_cast<uint32_t>(i), id});
      merge_pairs_.emplace_back(left_id, right_id);
    }
  }

  /// One symbol a character, with the marks of beginning and end; what is no token becomes bytes or
  /// "unknown".
  void split(std::string_view word, std::vector<MergeSymbol>& symbols) const {
    symbols.clear();
    std::optional<MergeSymbol> unknown;
    std::string marked;
    for (size_t at = 0; at < word.size();) {
      const auto begin = static_cast<uint32_t>(at);
      utf8::next(word, at);
      const auto end = static_cast<uint32_t>(at);
      std::string_view text = word.substr(begin, at - begin);
      if ((begin > 0 && !prefix_.empty()) || (at == word.size() && !suffix_.empty())) {
        marked = begin > 0 ? prefix_ : "";
        marked += text;
        if (at == word.size()) marked += suffix_;
        text = marked;
      }
      if (const TokenId id = ids_.find(text); id >= 0) {
        if (unknown) symbols.push_back(*unknown);
        unknown.reset();
        symbols.push_back({id, begin, end});
        continue;
      }
      if (byte_fallback_ && push_bytes(text, begin, end, symbols)) continue;
      if (!unknown_) continue;
      if (unknown && fuse_unknown_) {
        unknown->end = end;
      } else {
        if (unknown) symbols.push_back(*unknown);
        unknown = MergeSymbol{*unknown_, begin, end};
      }
    }
    if (unknown) symbols.push_back(*unknown);
  }

  bool push_bytes(std::string_view text, uint32_t begin, uint32_t end,
                  std::vector<MergeSymbol>& symbols) const {
    for (const char c : text)
      if (bytes_[static_cast<uint8_t>(c)] < 0) return false;
    for (const char c : text) symbols.push_back({bytes_[static_cast<uint8_t>(c)], begin, end});
    return true;
  }

  std::string prefix_, suffix_;
  bool fuse_unknown_, ignore_merges_;
  TextMap ids_;
  TokenId bytes_[256];
  PairMap merges_;
  std::vector<std::pair<TokenId, TokenId>> merge_pairs_;
};

class Unigram final : public TokenModel {
 public:
  explicit Unigram(const JsonNode& node) {
    byte_fallback_ = node.flag("byte_fallback", false);
    const JsonNode vocabulary = node.at("vocab");
    if (!vocabulary.is_array()) vocabulary.bad("is not an array of tokens and scores");
    std::vector<UnigramModel::Token> entries;
    double min_score = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < vocabulary.size(); ++i) {
      const JsonNode entry = vocabulary[i];
      if (!entry.is_array() || entry.size() != 2) entry.bad("is not a pair of token and score");
      const double score = entry[1].number();
      if (!std::isfinite(score)) entry.bad("has a score that is not finite");
      tokens_.push_back(entry[0].string());
      scores_.push_back(score);
      min_score = std::min(min_score, score);
    }
    if (const auto unknown = node.find("unk_id")) {
      unknown_ = unknown->id();
      if (static_cast<size_t>(*unknown_) >= tokens_.size())
        unknown->bad(fmt::format("is {}, beyond the {} tokens of model.vocab", *unknown_, tokens_.size()));
    }
    for (size_t i = 0; i < tokens_.size(); ++i)
      entries.push_back({tokens_[i], static_cast<TokenId>(i), scores_[i], false});
    ids_ = index_tokens(tokens_);
    for (int byte = 0; byte < 256; ++byte) bytes_[byte] = ids_.find(byte_token(static_cast<uint8_t>(byte)));
    model_ = UnigramModel(entries, tokens_.empty() ? 0 : min_score, UnigramModel::Sums::kDouble);
  }

  void tokenize(std::string_view word, std::vector<TokenId>& out) const override {
    std::vector<UnigramModel::Piece> pieces;
    model_.cut(word, pieces);
    for (size_t i = 0; i < pieces.size();) {
      const bool unknown = is_unknown(pieces[i]);
      if (!unknown) {
        out.push_back(pieces[i++].id);
        continue;
      }
      // Neighbouring unknown characters are one.
      const uint32_t begin = pieces[i].begin;
      while (i < pieces.size() && is_unknown(pieces[i])) ++i;
      push_unknown(word.substr(begin, pieces[i - 1].end - begin), out);
    }
  }

  bool describe(VocabularyData& data) const override {
    data.scores.assign(scores_.begin(), scores_.end());
    return true;
  }

 private:
  bool is_unknown(const UnigramModel::Piece& piece) const {
    return piece.id < 0 || (unknown_ && piece.id == *unknown_);
  }
  void push_unknown(std::string_view text, std::vector<TokenId>& out) const {
    if (const TokenId id = ids_.find(text); id >= 0) {
      out.push_back(id);
      return;
    }
    bool bytes = byte_fallback_;
    for (const char c : text) bytes = bytes && bytes_[static_cast<uint8_t>(c)] >= 0;
    if (bytes) {
      for (const char c : text) out.push_back(bytes_[static_cast<uint8_t>(c)]);
    } else if (unknown_) {
      out.push_back(*unknown_);
    }
  }

  TextMap ids_;
  std::vector<double> scores_;
  TokenId bytes_[256];
  UnigramModel model_;
};

class WordPiece final : public TokenModel {
 public:
  explicit WordPiece(const JsonNode& node) : prefix_(node.text("continuing_subword_prefix", "##")) {
    tokens_ = read_vocabulary(node.at("vocab"));
    if (const auto longest = node.find("max_input_chars_per_word"))
      longest_ = static_cast<size_t>(longest->id());
    const TextMap ids = index_tokens(tokens_);
    const JsonNode unknown = node.at("unk_token");
    const TokenId id = ids.find(unknown.string());
    if (id < 0) unknown.bad(fmt::format("names \"{}\", which is no token of model.vocab", unknown.string()));
    unknown_ = id;
    std::vector<std::pair<std::string_view, int32_t>> first, inner;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view token = tokens_[i];
      if (token.empty()) continue;
      first.emplace_back(token, static_cast<int32_t>(i));
      if (token.size() > prefix_.size() && token.substr(0, prefix_.size()) == prefix_)
        inner.emplace_back(token.substr(prefix_.size()), static_cast<int32_t>(i));
    }
    first_ = ByteTrie(std::move(first));
    inner_ = ByteTrie(std::move(inner));
  }

  void tokenize(std::string_view word, std::vector<TokenId>& out) const override {
    const size_t before = out.size();
    size_t characters = 0;
    for (size_t at = 0; at < word.size(); ++characters) utf8::next(word, at);
    bool known = characters <= longest_;
    for (size_t at = 0; known && at < word.size();) {
      const ByteTrie::Match match = (at == 0 ? first_ : inner_).longest(word.substr(at));
      known = match.value >= 0;
      if (known) out.push_back(match.value);
      at += match.length;
    }
    if (known) return;
    out.resize(before);
    out.push_back(*unknown_);
  }

 private:
  std::string prefix_;
  size_t longest_ = 100;
  ByteTrie first_, inner_;
};

class WordLevel final : public TokenModel {
 public:
  explicit WordLevel(const JsonNode& node) {
    tokens_ = read_vocabulary(node.at("vocab"));
    ids_ = index_tokens(tokens_);
    const TokenId id = ids_.find(node.at("unk_token").string());
    if (id >= 0) unknown_ = id;
  }
  void tokenize(std::string_view word, std::vector<TokenId>& out) const override {
    const TokenId id = ids_.find(word);
    if (id >= 0)
      out.push_back(id);
    else if (unknown_)
      out.push_back(*unknown_);
  }

 private:
  TextMap ids_;
};

}  // namespace

std::unique_ptr<TokenModel> make_token_model(const JsonNode& node) {
  // Files written before the type was named say it by their members.
  std::string type = node.text("type");
  if (type.empty()) {
    if (node.find("merges"))
      type = "BPE";
    else if (const auto vocabulary = node.find("vocab"); vocabulary && vocabulary->is_array())
      type = "Unigram";
    else if (node.find("continuing_subword_prefix"))
      type = "WordPiece";
    else
      type = "WordLevel";
  }
  if (type == "BPE") return std::make_unique<BpeModel>(node);
  if (type == "Unigram") return std::make_unique<Unigram>(node);
  if (type == "WordPiece") return std::make_unique<WordPiece>(node);
  if (type == "WordLevel") return std::make_unique<WordLevel>(node);
  fail(ErrorCode::kUnsupported, "{} has the unknown type \"{}\"", node.place(), type);
}

}  // namespace millrace::text
