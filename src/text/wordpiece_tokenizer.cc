// WordPiece ("bert"): a word is cut greedily into the longest tokens; a word that cannot be is unknown. In
// GGUF files a token that begins a word has U+2581 in front, and one that continues it stands bare.
#include "core/error.h"
#include "core/utf8.h"
#include "text/base_tokenizer.h"
#include "text/bert_normalizer.h"
#include "text/byte_trie.h"
#include "text/space_mark.h"

namespace millrace::text {
namespace {

class WordPieceTokenizer final : public BaseTokenizer {
 public:
  explicit WordPieceTokenizer(VocabularyData data);
  bool strips_leading_space() const override { return true; }

 protected:
  void encode_text(std::string_view text, bool after_token, std::vector<TokenId>& out) const override;
  std::string decode_normal(TokenId id) const override;
  std::optional<TokenId> closing_token() const override { return data_.separator; }

 private:
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;

  /// A longer word is unknown, as in the published tokenizers.
  static constexpr size_t kLongestWord = 100;
  BertNormalizer normalizer_;
  ByteTrie trie_;
};

/// BERT opens a text with its class token and closes it with its separator.
VocabularyData with_frame(VocabularyData data) {
  if (!data.bos) data.bos = data.cls;
  if (!data.eos) data.eos = data.separator;
  return data;
}

WordPieceTokenizer::WordPieceTokenizer(VocabularyData data)
    : BaseTokenizer(with_frame(std::move(data)), {.bos = 101,
                                                  .eos = 102,
                                                  .unknown = 100,
                                                  .separator = 102,
                                                  .padding = 0,
                                                  .add_bos = true,
                                                  .add_eos = true}) {
  require(data_.unknown.has_value(), ErrorCode::kInvalidFile,
          "{}: a WordPiece vocabulary needs an unknown token", data_.origin);
  normalizer_.lowercase = data_.lowercase.value_or(true);
  normalizer_.strip_accents = data_.strip_accents.value_or(normalizer_.lowercase);
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (size_t i = 0; i < data_.tokens.size(); ++i)
    keys.emplace_back(data_.tokens[i], static_cast<int32_t>(i));
  trie_ = ByteTrie(std::move(keys));
}

void WordPieceTokenizer::encode_text(std::string_view text, bool, std::vector<TokenId>& out) const {
  const std::string normalized = normalizer_.apply(text);
  split_bert_words(normalized, [&](std::string_view word) { encode_word(word, out); });
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  const size_t before = out.size();
  size_t characters = 0;
  for (size_t at = 0; at < word.size(); ++characters) utf8::next(word, at);
  bool known = characters <= kLongestWord;
  const std::string marked = std::string(kSpaceMark) + std::string(word);
  for (size_t at = 0; known && at < marked.size();) {
    const ByteTrie::Match match = trie_.longest(std::string_view(marked).substr(at));
    // The mark alone is no beginning of a word.
    known = match.value >= 0 && at + match.length > (at == 0 ? kSpaceMark.size() : 0);
    if (!known) break;
    out.push_back(match.value);
    at += match.length;
  }
  if (known) return;
  out.resize(before);
  out.push_back(*data_.unknown);
}

std::string WordPieceTokenizer::decode_normal(TokenId id) const {
  const std::string& token = raw(id);
  if (token.compare(0, kSpaceMark.size(), kSpaceMark) == 0) return " " + token.substr(kSpaceMark.size());
  return token;
}

}  // namespace

std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(VocabularyData data) {
  return std::make_unique<WordPieceTokenizer>(std::move(data));
}

}  // namespace millrace::text
