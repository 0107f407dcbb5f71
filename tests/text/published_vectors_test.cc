// The published vectors of six vocabularies: 46 texts each, ids exact.
#include <sstream>

#include "gguf_metadata.h"
#include "testing/testing.h"
#include "text/tokenizer.h"
#include "text/vocabulary_data.h"

namespace millrace::text {
namespace {

std::vector<std::string> read_texts(const std::filesystem::path& path) {
  const std::string all = testing::read_file(path);
  const std::string border = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  size_t at = 0;
  for (size_t end; (end = all.find(border, at)) != std::string::npos; at = end + border.size())
    texts.push_back(all.substr(at, end - at));
  if (at < all.size()) texts.push_back(all.substr(at));
  return texts;
}

std::vector<std::vector<TokenId>> read_ids(const std::filesystem::path& path) {
  std::istringstream all(testing::read_file(path));
  std::vector<std::vector<TokenId>> rows;
  for (std::string line; std::getline(all, line);) {
    std::istringstream numbers(line);
    rows.emplace_back();
    for (TokenId id; numbers >> id;) rows.back().push_back(id);
  }
  return rows;
}

class PublishedVectors : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedVectors, EveryTextGivesItsIds) {
  const std::string name = std::string("tokenizers/ggml-vocab-") + GetParam() + ".gguf";
  MILLRACE_NEED_SHARED(path, name);
  const testing::GgufMetadata metadata(testing::read_file(path), path.string());
  const auto tokenizer = make_tokenizer(vocabulary_from(metadata_reader(metadata)));
  const auto texts = read_texts(path.string() + ".inp");
  const auto expected = read_ids(path.string() + ".out");
  ASSERT_EQ(texts.size(), 46u);
  ASSERT_EQ(expected.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EncodeOptions options;
    options.add_special = false;
    EXPECT_EQ(tokenizer->encode(texts[i], options), expected[i]) << "text " << i << ": " << texts[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Six, PublishedVectors,
                         ::testing::Values("llama-spm", "phi-3", "gpt-2", "falcon", "deepseek-coder",
                                           "bert-bge"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace millrace::text
