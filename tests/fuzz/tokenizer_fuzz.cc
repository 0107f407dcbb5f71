// Tokenizers under arbitrary bytes: as texts for a vocabulary of every kind, as ids to decode, as a
// tokenizer.json and as a SentencePiece model. Whatever comes, an Error is the worst that may happen.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"
#include "text/hugging_face/json_tokenizer.h"
#include "text/hugging_face/sentence_piece.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace {

using namespace millrace;
using namespace millrace::text;

VocabularyData with_tokens(const char* model, std::vector<std::string> tokens, std::vector<int32_t> types) {
  VocabularyData data;
  data.model = model;
  data.origin = "fuzz";
  data.scores.resize(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) data.scores[i] = -static_cast<float>(i % 7);
  data.tokens = std::move(tokens);
  data.types = std::move(types);
  return data;
}

std::unique_ptr<Tokenizer> make_spm() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  for (const char* token : {"a", "b", "ab", "aba", "\xe2\x96\x81", "\xe2\x96\x81\xe2\x96\x81",
                            "\xe2\x96\x81"
                            "a"}) {
    tokens.emplace_back(token);
    types.push_back(tokens.size() % 5 == 0 ? 5 : 1);
  }
  return make_tokenizer(with_tokens("llama", tokens, types));
}

std::vector<std::unique_ptr<Tokenizer>> make_all() {
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(make_spm());
  for (const std::string_view rule : {"gpt-2", "llama-bpe", "gpt-4o", "kimi-k2", "deepseek-llm", "gemma4"}) {
    VocabularyData data =
        with_tokens("gpt2", {"a", "b", "ab", "\xc4\xa0", "1", "<|x|>", "aba"}, {1, 1, 1, 1, 1, 3, 1});
    data.merges = {"a b", "ab a"};
    data.pre = std::string(rule);
    data.bos = 0;
    all.push_back(make_tokenizer(std::move(data)));
  }
  VocabularyData bert = with_tokens("bert",
                                    {"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                     "\xe2\x96\x81"
                                     "a",
                                     "b"},
                                    {3, 3, 3, 3, 1, 1});
  bert.unknown = 1;
  bert.cls = 2;
  bert.separator = 3;
  all.push_back(make_tokenizer(std::move(bert)));
  VocabularyData t5 =
      with_tokens("t5", {"<pad>", "</s>", "<unk>", "a", "\xe2\x96\x81", "ab"}, {3, 3, 2, 1, 1, 4});
  t5.add_space_prefix = t5.remove_extra_whitespaces = true;
  all.push_back(make_tokenizer(std::move(t5)));
  all.push_back(make_tokenizer(with_tokens("rwkv", {"<s>", "a", "ab", "\\xff"}, {3, 1, 1, 1})));
  return all;
}

void use(const Tokenizer& tokenizer, const std::string& bytes) {
  const std::vector<TokenId> ids = tokenizer.encode(bytes);
  (void)tokenizer.decode(ids, true);
  StreamDecoder decoder(tokenizer);
  std::string out;
  for (const TokenId id : ids) out += decoder.push(id);
  out += decoder.finish();
  if (utf8::find_invalid(out) != std::string::npos) std::abort();
  // The bytes as ids, most of them out of range.
  std::vector<TokenId> wild;
  for (const char c : bytes) wild.push_back(static_cast<TokenId>(c) * (wild.size() % 3 == 0 ? 1 : 1000003));
  (void)tokenizer.decode(wild);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  static const std::vector<std::unique_ptr<Tokenizer>> all = make_all();
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t choice = data[0] % (all.size() + 2);
  try {
    if (choice < all.size()) {
      use(*all[choice], bytes);
    } else if (choice == all.size()) {
      const nlohmann::json json = nlohmann::json::parse(bytes, nullptr, false);
      if (json.is_discarded()) return 0;
      use(*make_json_tokenizer(json, "fuzz.json", {}), "a b \xff" + bytes.substr(0, 64));
      (void)describe_json_tokenizer(json, "fuzz.json", {});
    } else {
      use(*make_tokenizer(parse_sentence_piece(bytes, "fuzz.model")), "a b \xff" + bytes.substr(0, 64));
    }
  } catch (const Error&) {
  }
  return 0;
}
