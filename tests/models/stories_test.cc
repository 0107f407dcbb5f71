// A trained model continues its author's own text, character for character.
#include <algorithm>

#include "loaders/checkpoint.h"
#include "models/model.h"
#include "models/sequence_runner.h"
#include "testing/testing.h"
#include "text/tokenizer.h"
#include "text/vocabulary_data.h"

namespace millrace {
namespace {

std::string greedy(models::Model& model, const text::Tokenizer& tokenizer, const std::string& prompt,
                   ThreadPool& pool, IsaLevel isa, layers::KvType kv, int32_t tokens) {
  models::SequenceRunner runner(model, pool, isa, kv, 512);
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  const float* logits = runner.append(ids);
  for (int32_t i = 0; i < tokens; ++i) {
    const auto next =
        static_cast<int32_t>(std::max_element(logits, logits + model.info().vocab_size) - logits);
    ids.push_back(next);
    logits = runner.append({&next, 1});
  }
  return tokenizer.decode(ids);
}

TEST(Stories, GreedyTextIsTheAuthorsAtEveryIsaAndThreadCount) {
  MILLRACE_NEED_SHARED(path, "models/stories260K.gguf");
  // The newline at the file's end is the author's program's, after its 256 tokens.
  std::string expected = testing::read_file(testing::shared_data("models/stories260K.greedy.txt"));
  while (!expected.empty() && expected.back() == '\n') expected.pop_back();
  const auto checkpoint = loaders::open_checkpoint(path);
  const auto tokenizer =
      text::make_tokenizer(text::vocabulary_from(text::metadata_reader(checkpoint.metadata)));
  for (const IsaLevel isa : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (isa > best_isa()) continue;
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      models::LoadOptions options;
      options.isa = isa;
      const auto model = models::load_model(checkpoint, options, pool);
      for (const char* prompt : {"", "Once upon a time"}) {
        const std::string text = greedy(*model, *tokenizer, prompt, pool, isa, layers::KvType::kF32, 256);
        EXPECT_EQ(text.substr(0, expected.size()), expected)
            << isa_name(isa) << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace millrace
