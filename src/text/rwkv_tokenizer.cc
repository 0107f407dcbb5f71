// RWKV's "world" vocabulary: tokens are byte strings, and the longest that fits is taken at each place. GGUF
// spells them escaped: \t \n \r \xHH, and a backslash before any other character gives that character.
#include "core/error.h"
#include "text/base_tokenizer.h"
#include "text/byte_trie.h"

namespace millrace::text {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string unescape(const std::string& token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '\\' || i + 1 == token.size()) {
      out += token[i];
      continue;
    }
    const char c = token[++i];
    if (c == 't')
      out += '\t';
    else if (c == 'n')
      out += '\n';
    else if (c == 'r')
      out += '\r';
    else if (c == 'x' && i + 2 < token.size() && hex_digit(token[i + 1]) >= 0 &&
             hex_digit(token[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(token[i + 1]) * 16 + hex_digit(token[i + 2]));
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

class RwkvTokenizer final : public BaseTokenizer {
 public:
  explicit RwkvTokenizer(VocabularyData data) : BaseTokenizer(std::move(data), {}) {
    spellings_.reserve(data_.tokens.size());
    std::vector<std::pair<std::string_view, int32_t>> keys;
    for (const std::string& token : data_.tokens) spellings_.push_back(unescape(token));
    for (size_t i = 0; i < spellings_.size(); ++i)
      if (kinds_[i] == TokenKind::kNormal) keys.emplace_back(spellings_[i], static_cast<int32_t>(i));
    trie_ = ByteTrie(std::move(keys));
  }

 protected:
  void encode_text(std::string_view text, bool, std::vector<TokenId>& out) const override {
    while (!text.empty()) {
      const ByteTrie::Match match = trie_.longest(text);
      if (match.value >= 0)
        out.push_back(match.value);
      else if (data_.unknown)
        out.push_back(*data_.unknown);
      text.remove_prefix(match.value >= 0 ? match.length : 1);
    }
  }
  std::string decode_normal(TokenId id) const override { return spellings_[static_cast<size_t>(id)]; }

 private:
  std::vector<std::string> spellings_;
  ByteTrie trie_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_rwkv_tokenizer(VocabularyData data) {
  return std::make_unique<RwkvTokenizer>(std::move(data));
}

}  // namespace millrace::text
