#include "text/tokenizer.h"

#include "core/error.h"
#include "text/base_tokenizer.h"

namespace millrace::text {

std::unique_ptr<Tokenizer> make_tokenizer(VocabularyData data) {
  using Make = std::unique_ptr<Tokenizer> (*)(VocabularyData);
  struct Kind {
    std::string_view name;
    Make make;
  };
  static constexpr Kind kKinds[] = {
      {"llama", make_spm_tokenizer},      {"gpt2", make_bpe_tokenizer},   {"gemma4", make_bpe_tokenizer},
      {"bert", make_wordpiece_tokenizer}, {"t5", make_unigram_tokenizer}, {"rwkv", make_rwkv_tokenizer},
  };
  for (const Kind& kind : kKinds)
    if (kind.name == data.model) return kind.make(std::move(data));
  fail(ErrorCode::kUnsupported,
       "{}: unknown tokenizer model \"{}\" (tokenizer.ggml.model); expected llama, gpt2, bert, t5 or rwkv",
       data.origin, data.model);
}

}  // namespace millrace::text
