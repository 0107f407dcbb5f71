// SentencePiece BPE ("llama"): of all adjacent pieces whose concatenation is a token, the one of highest
// score merges first. Spaces are U+2581; what is no token becomes its bytes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "core/error.h"
#include "core/utf8.h"
#include "text/base_tokenizer.h"
#include "text/byte_trie.h"
#include "text/charsmap.h"
#include "text/merge.h"
#include "text/space_mark.h"
#include "text/word_cache.h"

namespace millrace::text {
namespace {

/// Symbols that may not merge carry kFrozen - id.
constexpr TokenId kFrozen = -2;

struct SpmScratch {
  MergeScratch merge;
  WordCache cache;
  std::string word;  ///< the current word, spaces escaped
  bool saw_unknown = false;
  std::string first;  ///< the first word with its dummy prefix
  std::unordered_map<std::string_view, uint32_t>
      unused_splits;  ///< length of the left half of an unused token
};

class SpmTokenizer final : public BaseTokenizer {
 public:
  explicit SpmTokenizer(VocabularyData data);
  bool strips_leading_space() const override { return add_space_prefix_; }

 protected:
  void encode_text(std::string_view text, bool after_token, std::vector<TokenId>& out) const override;
  std::string decode_normal(TokenId id) const override;

 private:
  void set_up_normalizer();
  size_t word_end(std::string_view text, size_t at) const;
  void encode_word(std::string_view word, SpmScratch& scratch, std::vector<TokenId>& out) const;
  void append_piece(std::string_view piece, TokenId id, SpmScratch& scratch, std::vector<TokenId>& out) const;

  TextMap mergeable_;  ///< normal, user-defined and unused tokens
  size_t longest_token_ = 0;
  std::vector<uint32_t> ranks_;  ///< order of merging: by falling score, equal for equal scores
  bool add_space_prefix_;
  bool has_unused_ = false;
  bool normalizes_ = false;  ///< the text goes through normalizer_ whole, before it is cut into words
  PieceNormalizer normalizer_;
  ByteTrie frozen_;  ///< pieces that are never cut nor merged, where they stand in the text
  bool cut_at_spaces_ =
      true;  ///< no token has a space mark behind another character, so no merge crosses one
  mutable ScratchPool<SpmScratch> scratch_;
};

/// Whether a space mark stands behind something other than space marks.
bool has_inner_space(std::string_view token) {
  size_t at = 0;
  while (token.substr(at, kSpaceMark.size()) == kSpaceMark) at += kSpaceMark.size();
  return token.find(kSpaceMark, at) != std::string_view::npos;
}

SpmTokenizer::SpmTokenizer(VocabularyData data)
    : BaseTokenizer(std::move(data), {.bos = 1, .eos = 2, .unknown = 0, .add_bos = true}),
      add_space_prefix_(data_.add_space_prefix.value_or(true)) {
  require(!data_.scores.empty(), ErrorCode::kInvalidFile,
          "{}: a SentencePiece vocabulary needs tokenizer.ggml.scores, one for each token", data_.origin);
  const size_t count = data_.tokens.size();
  mergeable_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const TokenKind k = kinds_[i];
    if (k == TokenKind::kControl || k == TokenKind::kUnknown || k == TokenKind::kByte) continue;
    const std::string& token = data_.tokens[i];
    if (token.empty()) continue;
    has_unused_ = has_unused_ || k == TokenKind::kUnused;
    cut_at_spaces_ = cut_at_spaces_ && !has_inner_space(token);
    longest_token_ = std::max(longest_token_, token.size());
    mergeable_.insert(token, static_cast<TokenId>(i));
  }
  set_up_normalizer();
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  const auto score = [this](uint32_t i) {
    return std::isnan(data_.scores[i]) ? -std::numeric_limits<float>::infinity() : data_.scores[i];
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return score(a) > score(b); });
  ranks_.resize(count);
  uint32_t rank = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    ranks_[order[i]] = rank;
  }
}

/// Vocabularies of SentencePiece's own files may map characters and squeeze spaces, and their user-defined
/// pieces stand inside the text.
void SpmTokenizer::set_up_normalizer() {
  normalizer_.charsmap = CharsMap(data_.precompiled_charsmap, data_.origin);
  normalizer_.add_dummy_prefix = add_space_prefix_;
  normalizer_.remove_extra_whitespaces =
      data_.sentence_piece_rules && data_.remove_extra_whitespaces.value_or(false);
  normalizer_.whitespace_as_suffix = data_.whitespace_as_suffix.value_or(false);
  if (data_.sentence_piece_rules) {
    std::vector<std::pair<std::string_view, int32_t>> keys;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i] != TokenKind::kUserDefined) continue;
      normalizer_.user_defined.push_back(data_.tokens[i]);
      keys.emplace_back(data_.tokens[i], static_cast<TokenId>(i));
    }
    std::sort(normalizer_.user_defined.begin(), normalizer_.user_defined.end());
    frozen_ = ByteTrie(std::move(keys));
  }
  normalizes_ = !normalizer_.charsmap.empty() || normalizer_.remove_extra_whitespaces ||
                normalizer_.whitespace_as_suffix || !frozen_.empty();
  // A frozen piece may hold spaces anywhere.
  if (!frozen_.empty()) cut_at_spaces_ = false;
}

/// End of the word that begins at `at`: before a space that follows something other than spaces and space
/// marks.
size_t SpmTokenizer::word_end(std::string_view text, size_t at) const {
  if (!cut_at_spaces_) return text.size();
  for (size_t end = at + 1; end < text.size(); ++end) {
    end = text.find(' ', end);
    if (end == std::string_view::npos) break;
    if (text[end - 1] == ' ') continue;
    if (end - at >= kSpaceMark.size() &&
        text.substr(end - kSpaceMark.size(), kSpaceMark.size()) == kSpaceMark)
      continue;
    return end;
  }
  return text.size();
}

void SpmTokenizer::encode_text(std::string_view text, bool after_token, std::vector<TokenId>& out) const {
  const auto scratch = scratch_.take();
  if (normalizes_) {
    // Words end before space marks then; to cut there too, marks become spaces again.
    std::string normalized = normalizer_.apply(text);
    for (size_t at = 0; cut_at_spaces_ && (at = normalized.find(kSpaceMark, at)) != std::string::npos; ++at)
      normalized.replace(at, kSpaceMark.size(), " ");
    for (size_t at = 0; at < normalized.size();) {
      const size_t end = word_end(normalized, at);
      encode_word(std::string_view(normalized).substr(at, end - at), *scratch, out);
      at = end;
    }
    return;
  }
  size_t at = 0;
  if (add_space_prefix_ && after_token) {
    at = word_end(text, 0);
    scratch->first.assign(1, ' ');
    scratch->first.append(text.substr(0, at));
    encode_word(scratch->first, *scratch, out);
  }
  while (at < text.size()) {
    const size_t end = word_end(text, at);
    encode_word(text.substr(at, end - at), *scratch, out);
    at = end;
  }
}

void SpmTokenizer::encode_word(std::string_view word, SpmScratch& scratch, std::vector<TokenId>& out) const {
  if (scratch.cache.get(word, out)) return;
  std::string& text = scratch.word;
  text.clear();
  for (const char c : word) {
    if (c == ' ')
      text += kSpaceMark;
    else
      text += c;
  }
  auto& symbols = scratch.merge.symbols;
  symbols.clear();
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!frozen_.empty()) {
      const ByteTrie::Match match = frozen_.longest(std::string_view(text).substr(at));
      if (match.value >= 0) {
        at += match.length;
        symbols.push_back({kFrozen - match.value, static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
        continue;
      }
    }
    utf8::next(text, at);
    symbols.push_back({mergeable_.find(std::string_view(text).substr(begin, at - begin)),
                       static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
  }
  if (has_unused_) scratch.unused_splits.clear();
  merge_symbols(scratch.merge, [&](const MergeSymbol& left, const MergeSymbol& right) {
    if (left.id <= kFrozen || right.id <= kFrozen) return Merge{};
    const size_t length = right.end - left.begin;
    if (length > longest_token_) return Merge{};
    const std::string_view joined(text.data() + left.begin, length);
    const TokenId id = mergeable_.find(joined);
    if (id < 0) return Merge{};
    if (has_unused_ && kinds_[static_cast<size_t>(id)] == TokenKind::kUnused)
      scratch.unused_splits[joined] = left.end - left.begin;
    return Merge{ranks_[static_cast<size_t>(id)], id};
  });
  const size_t before = out.size();
  scratch.saw_unknown = false;
  for (const MergeSymbol& symbol : symbols) {
    const TokenId id = symbol.id <= kFrozen ? kFrozen - symbol.id : symbol.id;
    append_piece(std::string_view(text).substr(symbol.begin, symbol.end - symbol.begin), id, scratch, out);
  }
  // Whether an unknown character comes out depends on the word before, so such words are not kept.
  if (!scratch.saw_unknown) scratch.cache.put(word, out.data() + before, out.size() - before);
}

void SpmTokenizer::append_piece(std::string_view piece, TokenId id, SpmScratch& scratch,
                                std::vector<TokenId>& out) const {
  if (id >= 0 && kinds_[static_cast<size_t>(id)] == TokenKind::kUnused) {
    // An unused token helps others to form, but never comes out: its halves do.
    const auto split = scratch.unused_splits.find(piece);
    if (split != scratch.unused_splits.end()) {
      const std::string_view left = piece.substr(0, split->second), right = piece.substr(split->second);
      append_piece(left, mergeable_.find(left), scratch, out);
      append_piece(right, mergeable_.find(right), scratch, out);
      return;
    }
  }
  if (id >= 0) {
    out.push_back(id);
    return;
  }
  const bool has_bytes = std::all_of(piece.begin(), piece.end(),
                                     [this](char c) { return byte_token(static_cast<uint8_t>(c)) >= 0; });
  if (has_bytes) {
    for (const char c : piece) out.push_back(byte_token(static_cast<uint8_t>(c)));
    return;
  }
  scratch.saw_unknown = true;
  // Neighbouring unknown characters are one.
  if (data_.unknown && (out.empty() || out.back() != *data_.unknown)) out.push_back(*data_.unknown);
}

std::string SpmTokenizer::decode_normal(TokenId id) const {
  const std::string& token = raw(id);
  std::string out;
  out.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    if (token.compare(at, kSpaceMark.size(), kSpaceMark) == 0) {
      out += ' ';
      at += kSpaceMark.size();
    } else {
      out += token[at++];
    }
  }
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> make_spm_tokenizer(VocabularyData data) {
  return std::make_unique<SpmTokenizer>(std::move(data));
}

}  // namespace millrace::text
