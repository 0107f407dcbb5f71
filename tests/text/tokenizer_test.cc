// Tokenizers made from vocabulary data: round trips, streams, special tokens, defaults, hostile texts and
// data.
#include "text/tokenizer.h"

#include <chrono>
#include <thread>

#include "core/error.h"
#include "gguf_metadata.h"
#include "random_text.h"
#include "testing/testing.h"
#include "text/vocabulary_data.h"

namespace millrace::text {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> fixture_tokenizer(const std::string& name) {
  VocabularyData data = hugging_face_vocabulary(testing::fixture("text/fixtures/" + name).string());
  return make_tokenizer(std::move(data));
}

EncodeOptions plain() {
  EncodeOptions options;
  options.add_special = false;
  return options;
}

// ---- round trips
// ----------------------------------------------------------------------------------------------------

/// decode(encode(x)) = x for byte strings of every kind. A literal U+2581 is left out where it means a space,
/// and so are bytes that a vocabulary has no token for (two of the published ones lack control characters and
/// bytes that UTF-8 never uses).
void expect_round_trips(const Tokenizer& tokenizer, bool marks_are_spaces) {
  std::string missing;
  for (int byte = 0; byte < 256; ++byte)
    if (tokenizer.encode(std::string(1, static_cast<char>(byte)), plain()).empty())
      missing += static_cast<char>(byte);
  ASSERT_LT(missing.size(), 60u);
  Random random(testing::seed() + 7);
  const int64_t count = testing::scaled(20000);
  // Three random bytes spell "<s>" now and then; as a special token it would not come back.
  EncodeOptions literal = plain();
  literal.parse_special = false;
  for (int64_t i = 0; i < count; ++i) {
    std::string text = i % 3 == 0 ? testing::random_text(random, 24) : testing::random_bytes(random, 24);
    if (marks_are_spaces && text.find("\xe2\x96\x81") != std::string::npos) continue;
    if (text.find_first_of(missing) != std::string::npos) continue;
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, literal)), text) << "string " << i;
  }
}

TEST(RoundTrip, ByteLevelFixtures) {
  for (const char* name : {"gpt2", "llama3", "gpt4o"})
    expect_round_trips(*fixture_tokenizer(std::string("hugging_face/") + name), false);
}

TEST(RoundTrip, ByteFallbackFixtures) {
  expect_round_trips(*fixture_tokenizer("hugging_face/llama2"), true);
  expect_round_trips(*fixture_tokenizer("sentence_piece/bpe"), true);
}

class PublishedRoundTrip : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedRoundTrip, ReturnsEveryByte) {
  const std::string name = std::string("tokenizers/ggml-vocab-") + GetParam() + ".gguf";
  MILLRACE_NEED_SHARED(path, name);
  const testing::GgufMetadata metadata(testing::read_file(path), path.string());
  const auto tokenizer = make_tokenizer(vocabulary_from(metadata_reader(metadata)));
  expect_round_trips(*tokenizer, tokenizer->strips_leading_space());
}

INSTANTIATE_TEST_SUITE_P(Five, PublishedRoundTrip,
                         ::testing::Values("llama-spm", "phi-3", "gpt-2", "falcon", "deepseek-coder"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// ---- streams
// --------------------------------------------------------------------------------------------------------

TEST(StreamDecoder, GivesWholeCharactersAndAllOfThem) {
  Random random(testing::seed() + 3);
  for (const char* name : {"hugging_face/gpt2", "hugging_face/llama2", "sentence_piece/bpe"}) {
    const auto tokenizer = fixture_tokenizer(name);
    for (int i = 0; i < 500; ++i) {
      const std::string text = testing::random_text(random, 30);
      const Ids ids = tokenizer->encode(text, plain());
      StreamDecoder decoder(*tokenizer);
      std::string out;
      for (const TokenId id : ids) {
        const std::string part = decoder.push(id);
        ASSERT_EQ(utf8::find_invalid(part), std::string::npos) << "a character was split";
        out += part;
      }
      out += decoder.finish();
      ASSERT_EQ(out, tokenizer->decode(ids));
    }
  }
}

TEST(StreamDecoder, MarksWhatIsNoCharacter) {
  const auto tokenizer = fixture_tokenizer("hugging_face/gpt2");
  const auto push_all = [&](const std::string& bytes) {
    StreamDecoder decoder(*tokenizer);
    std::string out;
    for (const TokenId id : tokenizer->encode(bytes, plain())) out += decoder.push(id);
    return out + decoder.finish();
  };
  EXPECT_EQ(push_all("a\xff"), "a\xef\xbf\xbd");
  EXPECT_EQ(push_all("a\xe2\x82"), "a\xef\xbf\xbd");
  EXPECT_EQ(push_all("a\xe2\x82z"), "a\xef\xbf\xbd\xef\xbf\xbdz");
}

TEST(StreamDecoder, DummyPrefixGoesOnlyAtTheStart) {
  const auto tokenizer = fixture_tokenizer("hugging_face/llama2");
  const Ids ids = tokenizer->encode("hello", plain());
  const auto push_all = [&](bool at_start) {
    StreamDecoder decoder(*tokenizer);
    decoder.set_at_start(at_start);
    std::string out;
    for (const TokenId id : ids) out += decoder.push(id);
    return out + decoder.finish();
  };
  EXPECT_EQ(push_all(true), "hello");
  EXPECT_EQ(push_all(false), " hello");
}

// ---- small vocabularies by hand
// -------------------------------------------------------------------------------------

/// SentencePiece BPE with bytes 3..258, then the given tokens with falling scores.
VocabularyData spm_data(const std::vector<std::string>& tokens) {
  VocabularyData data;
  data.model = "llama";
  data.origin = "test.gguf";
  const auto add = [&](const std::string& token, float score, int32_t type) {
    data.tokens.push_back(token);
    data.scores.push_back(score);
    data.types.push_back(type);
  };
  add("<unk>", 0, 2);
  add("<s>", 0, 3);
  add("</s>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, 6);
  float score = 0;
  for (const std::string& token : tokens) add(token, score -= 1, 1);
  return data;
}

TEST(Spm, MergesByScoreAndFallsBackToBytes) {
  const auto tokenizer = make_tokenizer(spm_data({"ab", "bc", "\xe2\x96\x81", "a", "b", "c",
                                                  "\xe2\x96\x81"
                                                  "ab"}));
  const TokenId ab = 259, bc = 260, mark = 261, a = 262, c = 264, mark_ab = 265;
  // "ab" merges before "bc"; the mark joins it after that.
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{1, mark_ab, c}));
  EXPECT_EQ(tokenizer->encode("cabc", plain()), (Ids{mark, c, ab, c}));
  EXPECT_EQ(tokenizer->encode("abcbc", plain()), (Ids{mark_ab, c, bc}));
  EXPECT_EQ(tokenizer->encode("\xc3\xa9", plain()), (Ids{mark, 3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(tokenizer->encode("a\xff", plain()), (Ids{mark, a, 3 + 0xff}));
  EXPECT_EQ(tokenizer->encode(""), (Ids{1}));
  EXPECT_EQ(tokenizer->decode({mark_ab, c}), "abc");
  EXPECT_EQ(tokenizer->decode({1, mark_ab, 2}), "ab");
  EXPECT_EQ(tokenizer->decode({1, mark_ab, 2}, true), "<s>ab</s>");
  EXPECT_EQ(tokenizer->piece(mark_ab), " ab");
  EXPECT_EQ(tokenizer->piece(3 + 0x41), "A");
  EXPECT_EQ(tokenizer->piece(99999), "");
  EXPECT_EQ(tokenizer->bos(), std::optional<TokenId>(1));
  EXPECT_EQ(tokenizer->end_of_generation(), (Ids{2}));
}

TEST(Spm, SpecialTokensInTheText) {
  const auto tokenizer = make_tokenizer(spm_data({"\xe2\x96\x81", "a", "<", "s", ">"}));
  const TokenId mark = 259, a = 260;
  EXPECT_EQ(tokenizer->encode("a<s>a", plain()), (Ids{mark, a, 1, mark, a}));
  EncodeOptions literal = plain();
  literal.parse_special = false;
  EXPECT_EQ(tokenizer->encode("a<s>", literal), (Ids{mark, a, 261, 262, 263}));
}

TEST(Spm, RulesOfTheFileAreKept) {
  VocabularyData data = spm_data({"\xe2\x96\x81", "a"});
  data.add_space_prefix = false;
  data.add_bos = false;
  data.add_eos = true;
  const auto tokenizer = make_tokenizer(std::move(data));
  EXPECT_EQ(tokenizer->encode("a a"), (Ids{260, 259, 260, 2}));
  EXPECT_EQ(tokenizer->decode({259, 260}), " a");
}

TEST(Spm, UnusedTokensComeApart) {
  VocabularyData data = spm_data({"ab", "abc", "a", "b", "c"});
  data.types[259] = 5;
  const auto tokenizer = make_tokenizer(std::move(data));
  EXPECT_EQ(tokenizer->encode("ab", plain()).size(), 5u);  // three bytes of the mark, "a", "b"
  EXPECT_EQ(tokenizer->encode("abc", plain()).back(), 260);
}

VocabularyData wordpiece_data() {
  VocabularyData data;
  data.model = "bert";
  data.origin = "test.gguf";
  data.tokens = {"[PAD]",
                 "[UNK]",
                 "[CLS]",
                 "[SEP]",
                 "\xe2\x96\x81hello",
                 "\xe2\x96\x81wor",
                 "ld",
                 "\xe2\x96\x81,",
                 "\xe2\x96\x81"
                 "e",
                 "\xe2\x96\x81\xe6\xb0\xb4"};
  data.types = {3, 3, 3, 3, 1, 1, 1, 1, 1, 1};
  data.unknown = 1;
  data.cls = 2;
  data.separator = 3;
  return data;
}

TEST(WordPiece, NormalisesAndCuts) {
  const auto tokenizer = make_tokenizer(wordpiece_data());
  EXPECT_EQ(tokenizer->encode("Hello, WORLD"), (Ids{2, 4, 7, 5, 6, 3}));
  EXPECT_EQ(tokenizer->encode("h\xc3\xa9llo\xe6\xb0\xb4\xc3\x89", plain()), (Ids{4, 9, 8}));
  EXPECT_EQ(tokenizer->encode("worlds", plain()), (Ids{1}));
  EXPECT_EQ(tokenizer->encode(std::string(200, 'e'), plain()), (Ids{1}));
  EXPECT_EQ(tokenizer->decode({2, 4, 7, 5, 6, 3}), "hello , world");
}

TEST(Unigram, TakesTheBestCut) {
  VocabularyData data;
  data.model = "t5";
  data.origin = "test.gguf";
  data.tokens = {"<pad>",
                 "</s>",
                 "<unk>",
                 "\xe2\x96\x81",
                 "a",
                 "b",
                 "ab",
                 "\xe2\x96\x81"
                 "a",
                 "bb"};
  data.scores = {0, 0, 0, -2, -3, -3, -4, -4.5f, -3.5f};
  data.types = {3, 3, 2, 1, 1, 1, 1, 1, 1};
  data.add_space_prefix = true;
  data.remove_extra_whitespaces = true;
  const auto tokenizer = make_tokenizer(std::move(data));
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{3, 6, 1}));   // -6 against -4.5 - 3
  EXPECT_EQ(tokenizer->encode("abb"), (Ids{7, 8, 1}));  // -8 against -2 - 4 - 3
  EXPECT_EQ(tokenizer->encode("  a   b  ", plain()), (Ids{7, 3, 5}));
  EXPECT_EQ(tokenizer->encode("axyz b", plain()), (Ids{7, 2, 3, 5}));
  EXPECT_EQ(tokenizer->encode("   ", plain()), (Ids{}));
  EXPECT_EQ(tokenizer->decode({7, 8}), "abb");
}

TEST(Rwkv, TakesTheLongestToken) {
  VocabularyData data;
  data.model = "rwkv";
  data.origin = "test.gguf";
  data.tokens = {"<s>", "a", "ab", "abcd", "\\n", "\\xff", "\\\\", "c"};
  data.types = {3, 1, 1, 1, 1, 1, 1, 1};
  const auto tokenizer = make_tokenizer(std::move(data));
  EXPECT_EQ(tokenizer->encode("abcabcd\n\xff\\"), (Ids{2, 7, 3, 4, 5, 6}));
  EXPECT_EQ(tokenizer->decode({2, 7, 3, 4, 5, 6}), "abcabcd\n\xff\\");
  EXPECT_FALSE(tokenizer->adds_bos());
}

TEST(ByteLevelBpe, PlainUtf8RulesOfGemma) {
  VocabularyData data;
  data.model = "gemma4";
  data.origin = "test.gguf";
  data.tokens = {"<pad>",
                 "<eos>",
                 "<bos>",
                 "a",
                 "b",
                 "\xe2\x96\x81",
                 "\xe2\x96\x81"
                 "a",
                 "\n",
                 "\n\n",
                 "<0xFF>"};
  data.types = {3, 3, 3, 1, 1, 1, 1, 1, 1, 6};
  data.merges = {"\xe2\x96\x81 a"};
  data.bos = 2;
  data.eos = 1;
  const auto tokenizer = make_tokenizer(std::move(data));
  EXPECT_EQ(tokenizer->encode("b a\n\na\xff", plain()), (Ids{4, 6, 8, 3, 9}));
  EXPECT_EQ(tokenizer->decode({4, 6, 8, 3, 9}), "b a\n\na\xff");
}

// ---- special tokens
// -------------------------------------------------------------------------------------------------

VocabularyData bpe_data() {
  VocabularyData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  data.origin = "test.gguf";
  data.tokens = {"a", "b", "c", "\xc4\xa0", "ab", "<|x|>", "<|x", "<tool>", "<|im_end|>"};
  data.types = {1, 1, 1, 1, 1, 3, 3, 4, 1};
  data.merges = {"a b"};
  return data;
}

TEST(SpecialTokens, LongestAtEachPlace) {
  const auto tokenizer = make_tokenizer(bpe_data());
  EXPECT_EQ(tokenizer->encode("ab<|x|>c<|xc"), (Ids{4, 5, 2, 6, 2}));
  EXPECT_EQ(tokenizer->decode({4, 5, 7, 2}), "ab<tool>c");
  EXPECT_EQ(tokenizer->decode({4, 5, 7, 2}, true), "ab<|x|><tool>c");
  EncodeOptions literal;
  literal.parse_special = false;
  // User-defined tokens are found all the same; characters that no token spells give nothing here.
  EXPECT_EQ(tokenizer->encode("a<tool>b", literal), (Ids{0, 7, 1}));
  EXPECT_EQ(tokenizer->encode("a<|x|>b", literal), (Ids{0, 1}));
}

TEST(SpecialTokens, EndsAreKnownByName) {
  const auto tokenizer = make_tokenizer(bpe_data());
  EXPECT_EQ(tokenizer->end_of_generation(), (Ids{8}));
  EXPECT_EQ(tokenizer->kind(8), TokenKind::kControl);
  EXPECT_EQ(tokenizer->find("<|im_end|>"), std::optional<TokenId>(8));
  EXPECT_EQ(tokenizer->find("<|none|>"), std::nullopt);
}

TEST(SpecialTokens, SomeModelsStripWhatIsBeside) {
  VocabularyData data = bpe_data();
  data.name = "Phi-3 mini";
  const auto tokenizer = make_tokenizer(std::move(data));
  EXPECT_EQ(tokenizer->encode("a<|x|>  b"), (Ids{0, 5, 1}));
}

// ---- metadata and errors
// --------------------------------------------------------------------------------------------

std::string complaint(VocabularyData data) {
  try {
    make_tokenizer(std::move(data));
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(VocabularyErrors, SayWhatIsWrong) {
  using ::testing::HasSubstr;
  VocabularyData data = bpe_data();
  data.model = "other";
  EXPECT_THAT(complaint(data), HasSubstr("test.gguf: unknown tokenizer model \"other\""));
  data = bpe_data();
  data.pre = "no-such";
  EXPECT_THAT(complaint(data), HasSubstr("unknown pre-tokeniser \"no-such\""));
  data = bpe_data();
  data.merges = {"a zz"};
  EXPECT_THAT(complaint(data), HasSubstr("merge 0 (\"a zz\") of tokenizer.ggml.merges names \"zz\""));
  data.merges = {"ab"};
  EXPECT_THAT(complaint(data), HasSubstr("is not two tokens"));
  data = bpe_data();
  data.types.resize(3);
  EXPECT_THAT(complaint(data), HasSubstr("3 token types for 9 tokens"));
  data = bpe_data();
  data.tokens.clear();
  EXPECT_THAT(complaint(data), HasSubstr("no tokens"));
  data = bpe_data();
  data.add_bos = true;
  EXPECT_THAT(complaint(data), HasSubstr("adds a BOS token"));
  data.bos = 4000;
  EXPECT_THAT(complaint(data), HasSubstr("adds a BOS token"));
  data = spm_data({"a"});
  data.scores.clear();
  EXPECT_THAT(complaint(data), HasSubstr("tokenizer.ggml.scores"));
  data = spm_data({"a"});
  data.tokens[5] = "<0xZZ>";
  EXPECT_THAT(complaint(data), HasSubstr("has the type of a byte"));
  data = wordpiece_data();
  data.unknown.reset();
  EXPECT_THAT(complaint(data), HasSubstr("unknown token"));
  data = VocabularyData();
  data.model = "t5";
  data.tokens = {"a", "b", "c"};
  data.scores = {0, 0, 0};
  data.precompiled_charsmap = {255, 255, 255, 255, 0};
  EXPECT_THAT(complaint(data), HasSubstr("charsmap"));
}

TEST(HostileTexts, LongWordsAreQuick) {
  std::string spaces(size_t{1} << 18, ' '), letters(size_t{1} << 18, 'a'), mixed;
  while (mixed.size() < letters.size()) mixed += "ab";
  for (const char* name : {"hugging_face/gpt2", "hugging_face/llama2", "hugging_face/unigram",
                           "sentence_piece/unigram", "sentence_piece/bpe_user"}) {
    const auto tokenizer = fixture_tokenizer(name);
    const auto direct =
        open_hugging_face_tokenizer(testing::fixture(std::string("text/fixtures/") + name).string());
    for (const Tokenizer* t : {tokenizer.get(), direct.get()}) {
      for (const std::string& text : {spaces, letters, mixed}) {
        const auto begin = std::chrono::steady_clock::now();
        const Ids ids = t->encode(text);
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        EXPECT_LT(seconds, 4.0) << name << " on " << text.substr(0, 2);
        EXPECT_LE(ids.size(), text.size() + 8);
      }
    }
  }
}

TEST(Threads, ManyMayEncodeAtOnce) {
  const auto tokenizer = fixture_tokenizer("hugging_face/gpt2");
  const auto direct =
      open_hugging_face_tokenizer(testing::fixture("text/fixtures/hugging_face/llama2").string());
  Random random(testing::seed() + 9);
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (int i = 0; i < 200; ++i) {
    texts.push_back(testing::random_text(random, 60));
    expected.push_back(tokenizer->encode(texts.back()));
    expected.push_back(direct->encode(texts.back()));
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) {
        if (tokenizer->encode(texts[i]) != expected[2 * i]) ++wrong;
        if (direct->encode(texts[i]) != expected[2 * i + 1]) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace millrace::text
