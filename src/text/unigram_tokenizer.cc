// Unigram vocabularies ("t5"): SentencePiece's normalisation, then the best cut of the text.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "text/base_tokenizer.h"
#include "text/charsmap.h"
#include "text/space_mark.h"
#include "text/unigram.h"

namespace millrace::text {
namespace {

class UnigramTokenizer final : public BaseTokenizer {
 public:
  explicit UnigramTokenizer(VocabularyData data);
  bool strips_leading_space() const override { return normalizer_.add_dummy_prefix; }

 protected:
  void encode_text(std::string_view text, bool after_token, std::vector<TokenId>& out) const override;
  std::string decode_normal(TokenId id) const override;

 private:
  PieceNormalizer normalizer_;
  UnigramModel model_;
  bool byte_fallback_ = false;
};

UnigramTokenizer::UnigramTokenizer(VocabularyData data)
    : BaseTokenizer(std::move(data), {.eos = 1, .unknown = 2, .padding = 0, .add_eos = true}) {
  require(!data_.scores.empty(), ErrorCode::kInvalidFile,
          "{}: a Unigram vocabulary needs tokenizer.ggml.scores, one for each token", data_.origin);
  require(data_.unknown.has_value(), ErrorCode::kInvalidFile,
          "{}: a Unigram vocabulary needs an unknown token", data_.origin);
  normalizer_.charsmap = CharsMap(data_.precompiled_charsmap, data_.origin);
  normalizer_.add_dummy_prefix = data_.add_space_prefix.value_or(false);
  normalizer_.remove_extra_whitespaces = data_.remove_extra_whitespaces.value_or(false);
  normalizer_.whitespace_as_suffix = data_.whitespace_as_suffix.value_or(false);
  std::vector<UnigramModel::Token> tokens;
  double min_score = 0;
  bool first = true;
  byte_fallback_ = true;
  for (int byte = 0; byte < 256; ++byte)
    byte_fallback_ = byte_fallback_ && byte_token(static_cast<uint8_t>(byte)) >= 0;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const bool user_defined = kinds_[i] == TokenKind::kUserDefined;
    if (kinds_[i] != TokenKind::kNormal && !user_defined) continue;
    const double score = data_.scores[i];
    require(std::isfinite(score), ErrorCode::kInvalidFile, "{}: the score of token {} is not a finite number",
            data_.origin, i);
    if (!user_defined) {
      min_score = first ? score : std::min(min_score, score);
      first = false;
    } else {
      normalizer_.user_defined.push_back(data_.tokens[i]);
    }
    tokens.push_back({data_.tokens[i], static_cast<TokenId>(i), score, user_defined});
  }
  std::sort(normalizer_.user_defined.begin(), normalizer_.user_defined.end());
  const auto sums = data_.sentence_piece_rules ? UnigramModel::Sums::kSingle : UnigramModel::Sums::kDouble;
  model_ = UnigramModel(tokens, min_score, sums);
}

void UnigramTokenizer::encode_text(std::string_view text, bool, std::vector<TokenId>& out) const {
  const std::string normalized = normalizer_.apply(text);
  std::vector<UnigramModel::Piece> pieces;
  model_.cut(normalized, pieces);
  bool after_unknown = false;
  for (const UnigramModel::Piece& piece : pieces) {
    if (piece.id >= 0) {
      out.push_back(piece.id);
    } else if (byte_fallback_) {
      for (uint32_t at = piece.begin; at < piece.end; ++at)
        out.push_back(byte_token(static_cast<uint8_t>(normalized[at])));
    } else if (!after_unknown) {
      out.push_back(*data_.unknown);
    }
    after_unknown = piece.id < 0;
  }
}

std::string UnigramTokenizer::decode_normal(TokenId id) const {
  std::string out = raw(id);
  for (size_t at = 0; (at = out.find(kSpaceMark, at)) != std::string::npos; ++at)
    out.replace(at, kSpaceMark.size(), " ");
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> make_unigram_tokenizer(VocabularyData data) {
  return std::make_unique<UnigramTokenizer>(std::move(data));
}

}  // namespace millrace::text
