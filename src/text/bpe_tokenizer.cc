// Byte-pair encoding with ranked merges ("gpt2"): the text is cut into words by the vocabulary's `pre` rule,
// and within a word the adjacent pair of smallest rank merges first. Tokens are spelt in GPT-2's byte
// alphabet, or, for rules that say so, in plain UTF-8 with U+2581 for spaces and "<0x41>" for bytes that no
// token covers.
#include "core/error.h"
#include "core/utf8.h"
#include "text/base_tokenizer.h"
#include "text/byte_alphabet.h"
#include "text/merge.h"
#include "text/pretokenizer.h"
#include "text/space_mark.h"
#include "text/word_cache.h"

namespace millrace::text {
namespace {

struct BpeScratch {
  MergeScratch merge;
  WordCache cache;
  std::string text;
};

const PreRule& rule_of(const VocabularyData& data) {
  std::string_view name = data.pre.empty() ? std::string_view("default") : std::string_view(data.pre);
  if (data.model == "gemma4") name = "gemma4";
  const PreRule* rule = find_pre_rule(name);
  require(rule != nullptr, ErrorCode::kUnsupported,
          "{}: unknown pre-tokeniser \"{}\" (tokenizer.ggml.pre); the names known are those of llama-bpe, "
          "qwen2, gpt-2 "
          "and the rest of the published list",
          data.origin, data.pre);
  return *rule;
}

class BpeTokenizer final : public BaseTokenizer {
 public:
  BpeTokenizer(VocabularyData data, const PreRule& rule)
      : BaseTokenizer(std::move(data), {.add_bos = rule.add_bos}),
        whole_words_(rule.whole_words),
        plain_utf8_(rule.plain_utf8),
        pre_(rule.patterns, data_.origin) {
    spell_tokens();
    read_merges();
  }

 protected:
  void encode_text(std::string_view text, bool after_token, std::vector<TokenId>& out) const override;
  std::string decode_normal(TokenId id) const override;

 private:
  void spell_tokens();
  void read_merges();
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void fill_symbols(std::string_view word, std::vector<MergeSymbol>& symbols) const;

  bool whole_words_, plain_utf8_;
  PreTokenizer pre_;
  std::vector<std::string> spellings_;  ///< bytes that each token stands for
  TextMap words_;                       ///< by those bytes
  TokenId byte_ids_[256];               ///< token of each single byte, or -1
  PairMap merges_;
  mutable ScratchPool<BpeScratch> scratch_;
};

void BpeTokenizer::spell_tokens() {
  const size_t count = data_.tokens.size();
  spellings_.resize(count);
  words_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string& token = data_.tokens[i];
    const bool normal = kinds_[i] == TokenKind::kNormal || kinds_[i] == TokenKind::kUnused;
    if (plain_utf8_) {
      if (normal || kinds_[i] == TokenKind::kUserDefined) words_.insert(token, static_cast<TokenId>(i));
      continue;
    }
    // A character outside the byte alphabet can only be shown as it is.
    spellings_[i] = normal ? from_byte_alphabet(token).value_or(token) : token;
    if (normal && !spellings_[i].empty()) words_.insert(spellings_[i], static_cast<TokenId>(i));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] =
        plain_utf8_ ? byte_token(static_cast<uint8_t>(byte)) : words_.find(std::string_view(&c, 1));
  }
}

void BpeTokenizer::read_merges() {
  merges_.reserve(data_.merges.size());
  for (size_t rank = 0; rank < data_.merges.size(); ++rank) {
    const std::string_view merge = data_.merges[rank];
    // The first half may itself be a space where tokens are plain text, so the border is looked for behind
    // it.
    const size_t space = merge.find(' ', 1);
    require(space != std::string_view::npos && space + 1 < merge.size(), ErrorCode::kInvalidFile,
            "{}: merge {} (\"{}\") of tokenizer.ggml.merges is not two tokens with a space between",
            data_.origin, rank, merge);
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const TokenId left_id = ids_.find(left), right_id = ids_.find(right);
    const TokenId id = ids_.find(std::string(left) + std::string(right));
    require(
        left_id >= 0 && right_id >= 0 && id >= 0, ErrorCode::kInvalidFile,
        "{}: merge {} (\"{}\") of tokenizer.ggml.merges names \"{}\", which is no token of the vocabulary",
        data_.origin, rank, merge,
        left_id < 0    ? std::string(left)
        : right_id < 0 ? std::string(right)
                       : std::string(left) + std::string(right));
    merges_.insert(left_id, right_id, {static_cast<uint32_t>(rank), id});
  }
  data_.merges.clear();
  data_.merges.shrink_to_fit();
}

void BpeTokenizer::encode_text(std::string_view text, bool, std::vector<TokenId>& out) const {
  const auto scratch = scratch_.take();
  if (plain_utf8_) {
    std::string& escaped = scratch->text;
    escaped.clear();
    for (const char c : text) {
      if (c == ' ')
        escaped += kSpaceMark;
      else
        escaped += c;
    }
    text = escaped;
  }
  pre_.split(text, [&](std::string_view word) { encode_word(word, *scratch, out); });
}

void BpeTokenizer::fill_symbols(std::string_view word, std::vector<MergeSymbol>& symbols) const {
  symbols.clear();
  for (size_t at = 0; at < word.size();) {
    const auto begin = static_cast<uint32_t>(at);
    TokenId id;
    if (plain_utf8_) {
      utf8::next(word, at);
      id = words_.find(word.substr(begin, at - begin));
    } else {
      id = byte_ids_[static_cast<uint8_t>(word[at++])];
    }
    symbols.push_back({id, begin, static_cast<uint32_t>(at)});
  }
}

void BpeTokenizer::encode_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (scratch.cache.get(word, out)) return;
  const size_t before = out.size();
  TokenId whole = -1;
  // In plain text a run of newlines is one word, and a token for the run goes before merges.
  if (whole_words_ || (plain_utf8_ && word[0] == '\n')) whole = words_.find(word);
  if (whole >= 0) {
    out.push_back(whole);
  } else {
    auto& symbols = scratch.merge.symbols;
    fill_symbols(word, symbols);
    merge_symbols(scratch.merge, [this](const MergeSymbol& left, const MergeSymbol& right) {
      return left.id < 0 || right.id < 0 ? Merge{} : merges_.find(left.id, right.id);
    });
    for (const MergeSymbol& symbol : symbols) {
      if (symbol.id >= 0) {
        out.push_back(symbol.id);
        continue;
      }
      // A byte that the vocabulary does not have stands for itself where it can, for "unknown" if there is
      // one.
      for (uint32_t at = symbol.begin; at < symbol.end; ++at) {
        const TokenId id = byte_ids_[static_cast<uint8_t>(word[at])];
        if (id >= 0)
          out.push_back(id);
        else if (data_.unknown)
          out.push_back(*data_.unknown);
      }
    }
  }
  scratch.cache.put(word, out.data() + before, out.size() - before);
}

std::string BpeTokenizer::decode_normal(TokenId id) const {
  if (!plain_utf8_) return spellings_[static_cast<size_t>(id)];
  std::string out = raw(id);
  for (size_t at = 0; (at = out.find(kSpaceMark, at)) != std::string::npos; ++at)
    out.replace(at, kSpaceMark.size(), " ");
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(VocabularyData data) {
  const PreRule& rule = rule_of(data);
  return std::make_unique<BpeTokenizer>(std::move(data), rule);
}

}  // namespace millrace::text
