// Unigram language model: of all ways to cut a text into tokens, the one of the largest sum of scores (Kudo
// 2018), found by dynamic programming in one pass.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/tokenizer.h"

namespace millrace::text {

class UnigramModel {
 public:
  struct Token {
    std::string_view text;  ///< only read while the model is made
    TokenId id;
    double score;  ///< log probability
    bool user_defined;
  };
  enum class Sums {
    kSingle,  ///< sums in float, as SentencePiece adds them
    kDouble,  ///< in double, as the `tokenizers` library does
  };

  /// `min_score`: the smallest score of a normal token; unknown characters cost 10 more than that.
  UnigramModel() = default;
  UnigramModel(const std::vector<Token>& tokens, double min_score, Sums sums);

  struct Piece {
    uint32_t begin, end;
    TokenId id;  ///< -1: one character that no token covers
  };
  /// The best cut of `text`, in order.
  void cut(std::string_view text, std::vector<Piece>& out) const;

 private:
  template <typename Sum>
  void cut_with(std::string_view text, std::vector<Piece>& out) const;

  ByteTrie trie_;  ///< values are indices into ids_ and scores_
  std::vector<TokenId> ids_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  Sums sums_ = Sums::kDouble;
};

}  // namespace millrace::text
