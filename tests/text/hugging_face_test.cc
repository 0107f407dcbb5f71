// tokenizer.json and SentencePiece models against the libraries that define them (scripts/fixtures/
// make_tokenizer_fixtures.py made the vectors).
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/utf8.h"
#include "random_text.h"
#include "testing/testing.h"
#include "text/hugging_face/json_tokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace millrace::text {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

fs::path fixtures() { return testing::fixture("text/fixtures"); }

const json& texts() {
  static const json all = json::parse(testing::read_file(fixtures() / "texts.json"));
  return all;
}

std::vector<std::string> folders(const char* kind) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fixtures() / kind))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool keep_special) {
  StreamDecoder decoder(tokenizer, keep_special);
  std::string out;
  for (const TokenId id : ids) out += decoder.push(id);
  return out + decoder.finish();
}

class TokenizerJson : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerJson, EqualsTheReference) {
  const fs::path folder = fixtures() / "hugging_face" / GetParam();
  const auto tokenizer = open_hugging_face_tokenizer(folder.string());
  const json rows = json::parse(testing::read_file(folder / "vectors.json"));
  ASSERT_EQ(rows.size(), texts().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string text = texts()[i];
    const auto expected = rows[i][0].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer->encode(text), expected) << "text " << i << ": " << texts()[i];
    EncodeOptions plain;
    plain.add_special = false;
    EXPECT_EQ(expected.size() - tokenizer->encode(text, plain).size(), rows[i][1].get<size_t>())
        << texts()[i];
    for (const bool keep : {false, true}) {
      const std::string decoded = rows[i][keep ? 3 : 2];
      // The reference turns every byte of a damaged run into U+FFFD; here bytes stay bytes.
      if (decoded.find("\xef\xbf\xbd") != std::string::npos) continue;
      EXPECT_EQ(tokenizer->decode(expected, keep), decoded) << texts()[i];
    }
  }
}

/// Text that comes token by token is the text that comes at once, but for what only whole texts know.
TEST_P(TokenizerJson, StreamsWhatItDecodes) {
  // CTC drops repetitions and Metaspace all spaces of the first token; a mark of a word's end depends on the
  // next.
  if (GetParam() == "ctc" || GetParam() == "word_suffix" || GetParam() == "subword_prefix")
    GTEST_SKIP() << "decoding depends on neighbours";
  const auto tokenizer = open_hugging_face_tokenizer((fixtures() / "hugging_face" / GetParam()).string());
  for (const auto& text : texts()) {
    EncodeOptions plain;
    plain.add_special = false;
    const auto ids = tokenizer->encode(text.get<std::string>(), plain);
    const std::string whole = tokenizer->decode(ids);
    if (utf8::find_invalid(whole) != std::string::npos) continue;
    std::string streamed = stream(*tokenizer, ids, false);
    if (GetParam().rfind("unigram", 0) == 0 && streamed != whole)
      streamed.erase(0, streamed.find_first_not_of(' '));
    EXPECT_EQ(streamed, whole) << text;
  }
}

TEST_P(TokenizerJson, GgufFormGivesTheSameIds) {
  const fs::path folder = fixtures() / "hugging_face" / GetParam();
  const auto direct = open_hugging_face_tokenizer(folder.string());
  VocabularyData data;
  try {
    data = hugging_face_vocabulary(folder.string());
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
    GTEST_SKIP() << e.what();
  }
  const auto converted = make_tokenizer(std::move(data));
  ASSERT_EQ(converted->vocab_size(), direct->vocab_size());
  Random random(testing::seed());
  for (int i = 0; i < 300; ++i) {
    std::string text = testing::random_text(random, 40);
    if (GetParam().rfind("unigram", 0) == 0) text += '.';
    if (text.find("\xe2\x96\x81") != std::string::npos) continue;
    // GGUF has no normalisation to NFC, no dummy prefix that a space replaces, and strips nothing but spaces.
    if (unicode::normalize(text, unicode::Form::kNfc) != text) continue;
    if (GetParam() == "metaspace" && !text.empty() && text[0] == ' ') continue;
    if (GetParam().rfind("unigram", 0) == 0 && text != unicode::normalize(text, unicode::Form::kNfkc))
      continue;
    EncodeOptions plain;
    plain.add_special = false;
    EXPECT_EQ(converted->encode(text, plain), direct->encode(text, plain)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TokenizerJson, ::testing::ValuesIn(folders("hugging_face")), name_of);

class SentencePiece : public ::testing::TestWithParam<std::string> {};

TEST_P(SentencePiece, EqualsTheReference) {
  const fs::path folder = fixtures() / "sentence_piece" / GetParam();
  const auto tokenizer = open_hugging_face_tokenizer(folder.string());
  const json rows = json::parse(testing::read_file(folder / "vectors.json"));
  ASSERT_EQ(rows.size(), texts().size());
  EncodeOptions plain;
  plain.add_special = false;
  plain.parse_special = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string text = texts()[i];
    EXPECT_EQ(tokenizer->encode(text, plain), rows[i][0].get<std::vector<TokenId>>())
        << "text " << i << ": " << texts()[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, SentencePiece, ::testing::ValuesIn(folders("sentence_piece")), name_of);

TEST(SentencePieceFile, IsTheSameVocabularyAsTheGgufOfItsModel) {
  MILLRACE_NEED_SHARED(path, "models/tok512.model");
  testing::TempDir folder;
  fs::copy_file(path, folder / "tokenizer.model");
  const auto tokenizer = open_hugging_face_tokenizer(folder.path().string());
  EXPECT_EQ(tokenizer->vocab_size(), 512);
  EXPECT_EQ(tokenizer->encode("Once upon a time"), (std::vector<TokenId>{1, 403, 407, 261, 378}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("Once upon a time")), "Once upon a time");
}

std::string small_json(const std::string& model, const std::string& rest = "") {
  return "{\"model\":" + model + (rest.empty() ? "" : "," + rest) + "}";
}

/// What opening this text as a tokenizer.json says, or "" when it opens.
std::string complaint(const std::string& text) {
  try {
    const json parsed = json::parse(text);
    make_json_tokenizer(parsed, "tokenizer.json", {});
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(TokenizerJsonErrors, NameFileAndKey) {
  const std::string good = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";
  EXPECT_EQ(complaint(small_json(good)), "");
  EXPECT_THAT(complaint("{}"), ::testing::HasSubstr("tokenizer.json: the file has no key \"model\""));
  EXPECT_THAT(
      complaint(small_json(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]})")),
      ::testing::HasSubstr("tokenizer.json: model.merges[0] names \"ab\", which is no token of model.vocab"));
  EXPECT_THAT(complaint(small_json(R"({"type":"BPE","vocab":{"a":0},"merges":["a x"]})")),
              ::testing::HasSubstr("names \"x\""));
  EXPECT_THAT(complaint(small_json(R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})")),
              ::testing::HasSubstr("model.merges[0] is not a pair"));
  EXPECT_THAT(complaint(small_json(R"({"type":"BPE","vocab":{"a":4000000000},"merges":[]})")),
              ::testing::HasSubstr("model.vocab[\"a\"] is beyond"));
  EXPECT_THAT(complaint(small_json(R"({"type":"BPE","vocab":{"a":2000000000},"merges":[]})")),
              ::testing::HasSubstr("far beyond"));
  EXPECT_THAT(complaint(small_json(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})")),
              ::testing::HasSubstr("is not an id"));
  EXPECT_THAT(complaint(small_json(R"({"type":"Other"})")), ::testing::HasSubstr("unknown type \"Other\""));
  EXPECT_THAT(complaint(small_json(R"({"type":"Unigram","unk_id":7,"vocab":[["a",0.5]]})")),
              ::testing::HasSubstr("model.unk_id is 7, beyond the 1 tokens"));
  EXPECT_THAT(complaint(small_json(R"({"type":"WordPiece","unk_token":"[UNK]","vocab":{"a":0}})")),
              ::testing::HasSubstr("model.unk_token names \"[UNK]\""));
  EXPECT_THAT(
      complaint(small_json(good, R"("normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""})")),
      ::testing::HasSubstr("normalizer.pattern"));
  EXPECT_THAT(complaint(small_json(
                  good, R"("pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"Odd"})")),
              ::testing::HasSubstr("pre_tokenizer.behavior is the unknown behaviour \"Odd\""));
  EXPECT_THAT(
      complaint(small_json(good, R"("post_processor":{"type":"BertProcessing","sep":["x",1],"cls":3})")),
      ::testing::HasSubstr("post_processor.cls"));
  EXPECT_THAT(complaint(small_json(good, R"("decoder":{"type":"Strip","content":" ","start":-1,"stop":0})")),
              ::testing::HasSubstr("decoder.start"));
  std::string nested = R"({"type":"NFC"})";
  for (int i = 0; i < 40; ++i) nested = R"({"type":"Sequence","normalizers":[)" + nested + "]}";
  EXPECT_THAT(complaint(small_json(good, "\"normalizer\":" + nested)),
              ::testing::HasSubstr("nested too deeply"));
}

TEST(HuggingFaceDirectory, ReadsSettingsAndChatTemplate) {
  testing::TempDir folder;
  fs::copy_file(fixtures() / "hugging_face" / "gpt2" / "tokenizer.json", folder / "tokenizer.json");
  EXPECT_EQ(hugging_face_chat_template(folder.path().string()), std::nullopt);
  testing::write_file(
      folder / "tokenizer_config.json",
      R"({"bos_token":{"content":"<|end|>"},"eos_token":"<|end|>","add_bos_token":true,)"
      R"("chat_template":[{"name":"tool","template":"T"},{"name":"default","template":"D"}]})");
  testing::write_file(folder / "generation_config.json", R"({"eos_token_id":[5,0]})");
  const auto tokenizer = open_hugging_face_tokenizer(folder.path().string());
  EXPECT_EQ(tokenizer->bos(), std::optional<TokenId>(0));
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->encode("").size(), 1u);
  EXPECT_EQ(tokenizer->end_of_generation(), (std::vector<TokenId>{0, 5}));
  EXPECT_EQ(hugging_face_chat_template(folder.path().string()), std::optional<std::string>("D"));
  testing::write_file(folder / "chat_template.jinja", "J");
  EXPECT_EQ(hugging_face_chat_template(folder.path().string()), std::optional<std::string>("J"));
}

TEST(HuggingFaceDirectory, SaysWhatIsMissing) {
  testing::TempDir folder;
  EXPECT_THROW(open_hugging_face_tokenizer(folder.path().string()), Error);
  EXPECT_THROW(open_hugging_face_tokenizer((folder / "none").string()), Error);
  testing::write_file(folder / "tokenizer.json", "{\"model\": ");
  try {
    open_hugging_face_tokenizer(folder.path().string());
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("tokenizer.json: no valid JSON at byte"));
  }
}

TEST(SentencePieceFile, TruncatedAnywhereIsAnErrorOrAVocabulary) {
  const std::string bytes = testing::read_file(fixtures() / "sentence_piece" / "unigram" / "tokenizer.model");
  testing::TempDir folder;
  size_t errors = 0;
  for (size_t size = 0; size < bytes.size(); size += 7) {
    testing::write_file(folder / "tokenizer.model", bytes.substr(0, size));
    try {
      open_hugging_face_tokenizer(folder.path().string())->encode("hello");
    } catch (const Error& e) {
      ++errors;
      EXPECT_THAT(e.what(), ::testing::HasSubstr("tokenizer.model"));
    }
  }
  EXPECT_GT(errors, bytes.size() / 14);
}

}  // namespace
}  // namespace millrace::text
