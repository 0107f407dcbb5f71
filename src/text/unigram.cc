#include "text/unigram.h"

#include <algorithm>
#include <limits>

#include "core/utf8.h"

namespace millrace::text {

UnigramModel::UnigramModel(const std::vector<Token>& tokens, double min_score, Sums sums) : sums_(sums) {
  constexpr double kUnknownPenalty = 10.0;
  double max_score = 0;
  bool first = true;
  std::vector<std::pair<std::string_view, int32_t>> keys;
  keys.reserve(tokens.size());
  for (const Token& token : tokens) {
    keys.emplace_back(token.text, static_cast<int32_t>(keys.size()));
    if (!token.user_defined && (first || token.score > max_score)) max_score = token.score;
    first = first && token.user_defined;
  }
  for (const Token& token : tokens) {
    ids_.push_back(token.id);
    // A user-defined token wins over every cut of the same text into normal ones.
    scores_.push_back(token.user_defined ? static_cast<double>(token.text.size()) * max_score - 0.1
                                         : token.score);
  }
  trie_ = ByteTrie(std::move(keys));
  unknown_score_ = min_score - kUnknownPenalty;
}

void UnigramModel::cut(std::string_view text, std::vector<Piece>& out) const {
  if (sums_ == Sums::kSingle)
    cut_with<float>(text, out);
  else
    cut_with<double>(text, out);
}

template <typename Sum>
void UnigramModel::cut_with(std::string_view text, std::vector<Piece>& out) const {
  struct Best {
    Sum score = -std::numeric_limits<Sum>::infinity();
    uint32_t begin = UINT32_MAX;  ///< where the last token of the best cut begins; UINT32_MAX: none ends here
    TokenId id = -1;
  };
  const size_t size = text.size();
  std::vector<Best> best(size + 1);
  best[0] = {0, 0, -1};
  for (size_t at = 0; at < size;) {
    size_t next_character = at;
    utf8::next(text, next_character);
    const Sum here = best[at].score;
    bool covered = false;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = at; end < size;) {
      node = trie_.child(node, static_cast<uint8_t>(text[end]));
      if (node == ByteTrie::kNone) break;
      ++end;
      const int32_t index = trie_.value(node);
      if (index < 0) continue;
      const Sum score = here + static_cast<Sum>(scores_[static_cast<size_t>(index)]);
      Best& target = best[end];
      if (target.begin == UINT32_MAX || score > target.score)
        target = {score, static_cast<uint32_t>(at), ids_[static_cast<size_t>(index)]};
      covered = covered || end == next_character;
    }
    if (!covered) {
      const Sum score = here + static_cast<Sum>(unknown_score_);
      Best& target = best[next_character];
      if (target.begin == UINT32_MAX || score > target.score) target = {score, static_cast<uint32_t>(at), -1};
    }
    at = next_character;
  }
  const size_t first = out.size();
  for (size_t end = size; end > 0; end = best[end].begin)
    out.push_back({best[end].begin, static_cast<uint32_t>(end), best[end].id});
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

}  // namespace millrace::text
