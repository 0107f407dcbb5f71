// Scanners against the regular expressions they stand for, every published rule, and time on hostile texts.
#include "text/pretokenizer.h"

#include <chrono>

#include "core/error.h"
#include "random_text.h"
#include "testing/testing.h"
#include "text/unicode.h"

namespace millrace::text {
namespace {

std::vector<std::string> parts(std::string_view text, const std::vector<uint32_t>& ends) {
  std::vector<std::string> out;
  uint32_t at = 0;
  for (const uint32_t end : ends) {
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

std::vector<std::string> words_of(std::string_view rule, std::string_view text) {
  const PreRule* found = find_pre_rule(rule);
  EXPECT_NE(found, nullptr) << rule;
  const PreTokenizer pre(found->patterns, "test");
  std::vector<std::string> out;
  pre.split(text, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

/// Characters whose properties the regular expression engine and unicode::classes see differently.
const std::vector<bool>& disputed_characters() {
  static const std::vector<bool> disputed = [] {
    struct {
      const char* pattern;
      uint16_t mask;
    } const kCategories[] = {
        {"\\p{L}", unicode::kLetter},          {"\\p{N}", unicode::kNumber}, {"\\p{M}", unicode::kMark},
        {"\\p{P}", unicode::kPunctuation},     {"\\p{S}", unicode::kSymbol}, {"\\s", unicode::kSpace},
        {"[\\p{Lu}\\p{Lt}]", unicode::kUpper}, {"\\p{Ll}", unicode::kLower}, {"\\p{Nd}", unicode::kDigit}};
    std::string all;
    for (uint32_t c = 0; c <= 0x10ffff; ++c)
      if (c < 0xd800 || c >= 0xe000) utf8::append(all, c);
    std::vector<bool> made(0x110000);
    for (const auto& category : kCategories) {
      const Regex regex(category.pattern, "test");
      Regex::Match match{};
      size_t at = 0;
      const auto take = [&](size_t end, bool expected) {
        while (at < end) {
          const uint32_t c = utf8::next(all, at);
          if (((unicode::classes(c) & category.mask) != 0) != expected) made[c] = true;
        }
      };
      while (regex.find(all, at, match)) {
        take(match.begin, false);
        take(match.end, true);
      }
      take(all.size(), false);
    }
    return made;
  }();
  return disputed;
}

bool has_disputed(std::string_view text) {
  for (size_t at = 0; at < text.size();)
    if (disputed_characters()[utf8::next(text, at)]) return true;
  return false;
}

using Words = std::vector<std::string>;

TEST(PreTokenizer, ScannersEqualTheirRegularExpressions) {
  std::vector<std::string_view> patterns;
  for (const std::string_view name : pre_rule_names())
    for (const std::string_view pattern : find_pre_rule(name)->patterns)
      if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) patterns.push_back(pattern);
  size_t scanners = 0;
  Random random(testing::seed());
  for (const std::string_view pattern : patterns) {
    // Two patterns of these look ahead quadratically as regular expressions, and stay equal on short texts.
    const auto fast = make_stage(pattern, "test");
    const auto reference = make_regex_stage(pattern, "test");
    scanners += scan_rule_of(pattern) ? 1 : 0;
    for (int64_t i = 0; i < testing::scaled(4000); ++i) {
      const std::string text = testing::random_text(random, 40);
      if (has_disputed(text)) continue;
      std::vector<uint32_t> got, expected;
      fast->cut(text, got);
      reference->cut(text, expected);
      ASSERT_EQ(parts(text, got), parts(text, expected)) << "pattern " << pattern << "\ntext " << text;
    }
  }
  EXPECT_GE(scanners, 8u);
}

TEST(PreTokenizer, EveryRuleKeepsEveryByte) {
  Random random(testing::seed() + 1);
  for (const std::string_view name : pre_rule_names()) {
    const PreTokenizer pre(find_pre_rule(name)->patterns, "test");
    for (int i = 0; i < 200; ++i) {
      const std::string text =
          i % 2 == 0 ? testing::random_text(random, 60) : testing::random_bytes(random, 60);
      std::string joined;
      pre.split(text, [&](std::string_view word) {
        ASSERT_FALSE(word.empty());
        joined += word;
      });
      ASSERT_EQ(joined, text) << name;
    }
  }
}

TEST(PreTokenizer, KnownWords) {
  EXPECT_EQ(words_of("gpt-2", "I'll be  there, o'clock 12345!\n"),
            (Words{"I", "'ll", " be", " ", " there", ",", " o", "'", "clock", " 12345", "!", "\n"}));
  EXPECT_EQ(words_of("llama-bpe", "I'LL be  there 12345!\n\n x"),
            (Words{"I", "'LL", " be", " ", " there", " ", "123", "45", "!\n\n", " x"}));
  EXPECT_EQ(words_of("qwen2", "a12\n \n b"), (Words{"a", "1", "2", "\n \n", " b"}));
  EXPECT_EQ(words_of("gpt-4o", "HelloWorld ABCdef it's"), (Words{"Hello", "World", " ABCdef", " it's"}));
  EXPECT_EQ(words_of("superbpe", "x1234567y"), (Words{"x", "1", "234", "567", "y"}));
  EXPECT_EQ(words_of("tiny_aya", "1234567"), (Words{"1", "234", "567"}));
  EXPECT_EQ(words_of("falcon", "12345+6"), (Words{"123", "45", "+", "6"}));
  EXPECT_EQ(words_of("deepseek-llm", "ab  cd  "), (Words{"ab", " ", " cd", "  "}));
  EXPECT_EQ(words_of("kimi-k2", "漢字かなABC"), (Words{"漢字", "かな", "ABC"}));
  EXPECT_EQ(words_of("bloom", "Hello, world!"), (Words{"Hello", ",", " world", "!"}));
}

TEST(PreTokenizer, IllFormedBytesAreWordsOfTheirOwn) {
  EXPECT_EQ(words_of("gpt-2",
                     "ab\xff\xfe"
                     "cd \xe2\x82"),
            (Words{"ab", "\xff\xfe", "cd", " ", "\xe2\x82"}));
}

TEST(PreTokenizer, UnknownNameIsNoRule) { EXPECT_EQ(find_pre_rule("no-such-rule"), nullptr); }

/// Long runs of one thing, of two alternating things, and with an end that makes greedy matches give back.
TEST(PreTokenizer, LinearOnHostileTexts) {
  constexpr size_t kSize = size_t{1} << 15;
  const std::vector<std::string> units = {
      " ",        "a",    "A",        "1", ".", "\n",       "\t ", "'",  "'s",   "aA",  " a", "\xe4\xb8\x80",
      "\xcc\x81", "\r\n", "\xc2\xa0", "_", "$", "\xd9\xa1", "a ",  "1,", "\x01", "\xff"};
  for (const std::string_view name : pre_rule_names()) {
    // Names that share a rule share its time.
    const PreRule* rule = find_pre_rule(name);
    static std::vector<const PreRule*> done;
    if (std::find(done.begin(), done.end(), rule) != done.end()) continue;
    done.push_back(rule);
    const PreTokenizer pre(rule->patterns, "test");
    for (const std::string& unit : units) {
      for (const std::string tail : {"", "!", "x", " "}) {
        std::string text;
        while (text.size() < kSize) text += unit;
        text += tail;
        const auto begin = std::chrono::steady_clock::now();
        size_t bytes = 0;
        pre.split(text, [&](std::string_view word) { bytes += word.size(); });
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        EXPECT_EQ(bytes, text.size());
        // Quadratic time would be many seconds; sanitizers and a busy machine stay far below this.
        EXPECT_LT(seconds, 1.5) << name << " on repeated \"" << unit << "\" with tail \"" << tail << "\"";
      }
    }
  }
}

TEST(Unicode, WordsAreThoseOfTheRegularExpressions) {
  const Regex word("\\w", "test");
  for (uint32_t c = 0; c <= 0x10ffff; ++c) {
    if ((c >= 0xd800 && c < 0xe000) || disputed_characters()[c]) continue;
    std::string text;
    utf8::append(text, c);
    Regex::Match match{};
    ASSERT_EQ(word.find(text, 0, match), unicode::is_word(c)) << std::hex << c;
  }
}

TEST(Unicode, HanIsTheScriptHan) {
  const auto stage = make_regex_stage("\\p{Han}", "test");
  for (uint32_t c = 0; c <= 0x10ffff; ++c) {
    if ((c >= 0xd800 && c < 0xe000) || disputed_characters()[c]) continue;
    std::string text = "(";
    utf8::append(text, c);
    std::vector<uint32_t> ends;
    stage->cut(text, ends);
    ASSERT_EQ(ends.size() == 2, unicode::is_han(c)) << std::hex << c;
  }
}

TEST(Unicode, CategoriesAreThoseOfTheRegexEngine) {
  // Where the two libraries know different Unicode versions, only newly assigned characters differ.
  size_t disputed = 0;
  for (uint32_t c = 0; c <= 0x10ffff; ++c) {
    if (!disputed_characters()[c]) continue;
    ++disputed;
    ASSERT_GT(c, 0x400u) << "a character that every version of Unicode has";
  }
  EXPECT_LT(disputed, 6000u);
}

}  // namespace
}  // namespace millrace::text
