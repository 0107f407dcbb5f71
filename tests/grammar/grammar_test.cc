#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/random.h"
#include "grammar/compiler.h"
#include "grammar/gbnf.h"
#include "grammar/mask.h"
#include "grammar/place_cache.h"
#include "grammar/ready.h"
#include "grammar/regex.h"
#include "reference.h"
#include "testing/testing.h"

namespace millrace::grammar {
namespace {

std::shared_ptr<const TokenTrie> bytes() {
  static const auto trie = std::make_shared<const TokenTrie>(byte_vocabulary());
  return trie;
}

std::shared_ptr<const CompiledGrammar> make(SourceKind kind, const std::string& text) {
  Source s;
  s.kind = kind;
  s.text = text;
  CompileOptions options;
  options.limits.seconds *= testing::slowness();
  return compile(s, bytes(), options);
}

bool accepts(const std::shared_ptr<const CompiledGrammar>& g, const std::string& text) {
  return match_text(g, text).accepted;
}

// Tokens of several bytes over a small alphabet, and the alphabet itself.
std::shared_ptr<const TokenTrie> small_vocabulary(const std::string& alphabet, Random& random) {
  Vocabulary v;
  for (int b = 0; b < 256; ++b) v.token_bytes.push_back(std::string(1, static_cast<char>(b)));
  for (int i = 0; i < 200; ++i) {
    std::string t;
    for (uint32_t n = 2 + random.below(4); n > 0; --n)
      t += alphabet[random.below(static_cast<uint32_t>(alphabet.size()))];
    v.token_bytes.push_back(t);
  }
  v.token_bytes.push_back("");
  v.end_of_generation = {static_cast<TokenId>(v.token_bytes.size() - 1)};
  return std::make_shared<const TokenTrie>(std::move(v));
}

ExprId random_expr(Grammar& g, Random& random, int depth, uint32_t rules) {
  const uint32_t kind = random.below(depth > 0 ? 9 : 3);
  switch (kind) {
    case 0:
      return g.literal(std::string(1, static_cast<char>('a' + random.below(3))));
    case 1:
      return g.literal(random.below(2) ? "ab" : "ca");
    case 2:
      return random.below(4) == 0 ? g.empty() : g.char_class(CodepointSet('a', 'a' + random.below(3)));
    case 3:
    case 4: {
      std::vector<ExprId> list;
      for (uint32_t n = 1 + random.below(3); n > 0; --n)
        list.push_back(random_expr(g, random, depth - 1, rules));
      return g.sequence(list);
    }
    case 5: {
      std::vector<ExprId> list;
      for (uint32_t n = 2 + random.below(2); n > 0; --n)
        list.push_back(random_expr(g, random, depth - 1, rules));
      return g.choice(list);
    }
    case 6: {
      const ExprId e = random_expr(g, random, depth - 1, rules);
      const uint32_t min = random.below(3);
      // Some bounds are beyond what is copied, so that counters are used.
      return g.repeat(
          e, min,
          random.below(3) == 0 ? kUnlimited : min + random.below(3) + (random.below(3) == 0 ? 300 : 0));
    }
    default:
      return g.rule_ref(random.below(rules));
  }
}

std::string random_text(Random& random, uint32_t most) {
  std::string t;
  for (uint32_t n = random.below(most + 1); n > 0; --n) t += static_cast<char>('a' + random.below(3));
  return t;
}

TEST(GrammarReference, RandomGrammarsAgree) {
  Random random(testing::seed());
  int64_t compiled = 0, texts = 0, matched = 0;
  for (int64_t i = 0; i < testing::scaled(500); ++i) {
    Grammar g;
    const uint32_t rules = 1 + random.below(4);
    for (uint32_t r = 0; r < rules; ++r) g.add_rule("r", 0);
    for (uint32_t r = 0; r < rules; ++r) {
      const ExprId e = random_expr(g, random, 3, rules);
      g.rules[r].expr = e;
    }
    const Grammar copy = g;
    std::shared_ptr<const CompiledGrammar> c;
    try {
      Budget budget;
      c = std::make_shared<const CompiledGrammar>(lower(g, budget), small_vocabulary("abc", random));
    } catch (const Error&) {
      continue;  // matches nothing, or begins with itself through a counted repetition
    }
    ++compiled;
    for (int t = 0; t < 20; ++t) {
      const std::string text = random_text(random, 8);
      const bool expected = reference::Reference(copy, text).matches();
      ASSERT_EQ(accepts(c, text), expected)
          << "grammar " << i << " of seed " << testing::seed() << ", text '" << text << "'";
      ++texts;
      matched += expected;
    }
  }
  EXPECT_GT(compiled, testing::scaled(500) / 3);
  EXPECT_GT(matched, texts / 50);
}

// A mask bit is set exactly when the matcher takes the token; walked along random allowed tokens.
void check_masks(const std::shared_ptr<const CompiledGrammar>& g, Random& random, int steps) {
  Matcher m(g);
  std::vector<uint64_t> mask(m.mask_words()), again(m.mask_words());
  for (int s = 0; s < steps; ++s) {
    m.fill_mask(mask);
    std::vector<TokenId> allowed;
    for (size_t t = 0; t < g->trie().vocab_size(); ++t) {
      Matcher fork = m.fork();
      const bool set = (mask[t >> 6] >> (t & 63)) & 1;
      ASSERT_EQ(fork.accept(static_cast<TokenId>(t)), set) << "token " << t << " at step " << s;
      if (set) allowed.push_back(static_cast<TokenId>(t));
    }
    ASSERT_FALSE(allowed.empty()) << "a dead end at step " << s;
    const TokenId t = allowed[random.below(static_cast<uint32_t>(allowed.size()))];
    const uint64_t before = m.state_hash();
    ASSERT_TRUE(m.accept(t));
    if (m.is_terminated()) return;
    m.rollback(1);
    ASSERT_EQ(m.state_hash(), before);
    m.fill_mask(again);
    ASSERT_EQ(mask, again);
    ASSERT_TRUE(m.accept(t));
  }
}

TEST(GrammarMask, BitsAreWhatTheMatcherTakes) {
  Random random(testing::seed());
  const std::vector<std::pair<SourceKind, std::string>> sources = {
      {SourceKind::kJson, ""},
      {SourceKind::kJsonSchema,
       R"({"type":"object","properties":{"a":{"type":"integer","minimum":-3,"maximum":12},
          "ab":{"enum":["a","ab","b"]},"b":{"type":"array","items":{"enum":["a","b",1]},"uniqueItems":true}},
          "required":["ab"],"additionalProperties":{"type":"string","maxLength":3}})"},
      {SourceKind::kJsonSchema,
       R"({"type":"array","items":{"type":"string","pattern":"^[ab]{1,3}$"},"uniqueItems":true})"},
      {SourceKind::kJsonSchema,
       R"({"type":"object","minProperties":2,"maxProperties":3,"additionalProperties":{"type":"null"}})"},
      {SourceKind::kJsonSchema,
       R"({"type":"array","contains":{"const":1},"minContains":2,"maxContains":2,"maxItems":4})"},
      {SourceKind::kRegex, "(ab|a)*[1b]{2,300}"},
      {SourceKind::kGbnf, "root ::= root \"a\" | \"b\" tail\ntail ::= \"1\" tail | \"}\""},
      {SourceKind::kReady, "arithmetic"},
  };
  for (const auto& [kind, text] : sources) {
    Source s;
    s.kind = kind;
    s.text = text;
    const auto g = compile(s, small_vocabulary("ab1\"{}[],: n\\u", random));
    for (int round = 0; round < 4; ++round) check_masks(g, random, 14);
    if (HasFatalFailure()) FAIL() << text;
  }
}

// What the background leaves in the cache is what the matcher would have made, and covers the usual way
// through a text.
TEST(GrammarMask, MadeInTheBackgroundAreTheSame) {
  Vocabulary v = byte_vocabulary();
  for (const char* token : {"{\"", "\":", "\": \"", "name", "na", "age", "é", "\",", ", \"", "\"}", "true",
                            "12", "\n\n", "abcdef"})
    v.token_bytes.push_back(token);
  v.special.resize(v.token_bytes.size(), false);
  const auto trie = std::make_shared<const TokenTrie>(std::move(v));
  Source source;
  source.kind = SourceKind::kJsonSchema;
  source.text =
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer"},
    "é":{"enum":["a","b"]},"list":{"type":"array","items":{"type":"boolean"},"uniqueItems":true}},
    "required":["name"],"patternProperties":{"^x[0-9]+$":{"type":"null"}},"additionalProperties":false})";
  const auto g = compile(source, trie);
  const WarmResult first = warm(g);
  EXPECT_TRUE(first.complete);
  EXPECT_GT(first.places, 20u);
  const size_t cached = trie->places().count();
  EXPECT_GT(cached, 20u);
  Matcher m(g);
  std::vector<uint64_t> mask(m.mask_words());
  for (const char* token : {"{\"", "name", "\": \"", "abcdef", "\"", ",", "\"", "age", "\":", "12", "}"}) {
    m.fill_mask(mask);
    ASSERT_TRUE(m.accept_bytes(token)) << token;
  }
  EXPECT_EQ(trie->places().count(), cached) << "the usual text met a place without a mask";
  Random random(testing::seed());
  for (int i = 0; i < 10; ++i) check_masks(g, random, 30);
  const std::atomic<bool> stop{true};
  WarmLimits none;
  none.stop = &stop;
  EXPECT_EQ(warm(g, none).places, 0u);
}

TEST(GrammarMatcher, ForksShareAndRollBack) {
  const auto g = make(SourceKind::kJson, "");
  Matcher m(g);
  ASSERT_TRUE(m.accept_bytes("[1,"));
  Matcher fork = m.fork();
  ASSERT_TRUE(m.accept_bytes("{\"a\":"));
  ASSERT_TRUE(fork.accept_bytes("2]"));
  EXPECT_TRUE(fork.can_end());
  EXPECT_FALSE(m.can_end());
  EXPECT_FALSE(m.accept_bytes("}"));
  m.rollback(1);
  EXPECT_TRUE(m.accept_bytes("2]"));
  EXPECT_EQ(m.state_hash(), fork.state_hash());
  EXPECT_EQ(m.depth(), 2u);
  EXPECT_THROW(m.rollback(3), Error);
  EXPECT_TRUE(m.accept(256));
  EXPECT_TRUE(m.is_terminated());
  EXPECT_FALSE(m.accept_bytes(" "));
  m.rollback(1);
  EXPECT_FALSE(m.is_terminated());
}

TEST(GrammarMatcher, ForcedBytesAreTheOnlyWay) {
  Source s;
  s.kind = SourceKind::kJsonSchema;
  s.text =
      R"({"type":"object","properties":{"name":{"type":"string"},"kind":{"const":"fixed"}},"required":["name","kind"],"additionalProperties":false})";
  s.json.whitespace = Whitespace::kCompact;
  Matcher m(compile(s, bytes()));
  EXPECT_EQ(m.forced_bytes(), "{\"");
  ASSERT_TRUE(m.accept_bytes("{\"n"));
  // Escapes make even a listed key a choice: "\u0061" is "a".
  EXPECT_EQ(m.forced_bytes(), "");
  // ... but not of what the key is.
  EXPECT_EQ(m.forced_bytes(4096, true), "ame\":\"");
  EXPECT_EQ(m.forced_bytes(3, true), "ame");
  ASSERT_TRUE(m.accept_bytes("ame\":\"x\",\""));
  EXPECT_EQ(m.forced_bytes(), "");
  EXPECT_EQ(m.forced_bytes(4096, true), "kind\":\"fixed\"}");
  ASSERT_TRUE(m.accept_bytes("ki\\u006"));
  EXPECT_EQ(m.forced_bytes(4096, true), "");  // an e or an E for the digit
}

TEST(GrammarMatcher, AnEscapeThatMeansSomethingElseIsAChoice) {
  Source s;
  s.kind = SourceKind::kJsonSchema;
  s.json.whitespace = Whitespace::kCompact;
  const auto forced = [&](const char* schema, const char* after) {
    s.text = schema;
    Matcher m(compile(s, bytes()));
    EXPECT_TRUE(m.accept_bytes(after));
    return m.forced_bytes(4096, true);
  };
  EXPECT_EQ(forced(R"({"enum":["xa/b","xa/c"]})", "\""), "xa/");
  EXPECT_EQ(forced(R"({"enum":["a","\n"]})", "\""), "");
  EXPECT_EQ(forced(R"({"enum":["a","\""]})", "\""), "");
  EXPECT_EQ(forced(R"({"enum":["a","\u00e4"]})", "\""), "");
  EXPECT_EQ(forced(R"({"enum":["a","\ud83d\ude00"]})", "\""), "");
  EXPECT_EQ(forced(R"({"const":"a\u00e4"})", "\""), "a");
}

TEST(GrammarMatcher, DeepNestingIsBoundedByMemoryNotByStack) {
  const auto g = make(SourceKind::kJson, "");
  const std::string deep(50'000, '[');
  EXPECT_TRUE(accepts(g, deep + std::string(50'000, ']')));
  EXPECT_FALSE(accepts(g, deep + std::string(49'999, ']')));
}

TEST(GrammarBombs, EndWithinASecond) {
  std::string nested = "root ::= ";
  for (int i = 0; i < 60'000; ++i) nested += "(";
  nested += "\"a\"";
  for (int i = 0; i < 60'000; ++i) nested += ")";
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i) chain += fmt::format("r{} ::= r{} \"x\"?\n", i, i + 1);
  chain += "r5000 ::= \"a\"\n";
  std::string left;
  for (int i = 0; i < 5000; ++i)
    left += fmt::format("{} ::= {} \"x\" | \"a\"\n", i ? fmt::format("r{}", i) : "root",
                        i + 1 < 5000 ? fmt::format("r{}", i + 1) : "root");
  std::string groups;
  for (int i = 0; i < 60'000; ++i) groups += "(";
  const std::vector<std::pair<SourceKind, std::string>> bombs = {
      {SourceKind::kGbnf, nested},
      {SourceKind::kGbnf, chain},
      {SourceKind::kGbnf, left},
      {SourceKind::kGbnf, "root ::= (\"a\"*)*"},
      {SourceKind::kGbnf, "root ::= root"},
      {SourceKind::kGbnf, "root ::= root root | \"a\""},
      {SourceKind::kRegex, "(a+)+b"},
      {SourceKind::kRegex, "a{1,100000}"},
      {SourceKind::kRegex, "((a{1,1000}){1,1000}){1,1000}"},
      {SourceKind::kRegex, "(a|b)*a(a|b){24}"},
      {SourceKind::kRegex, groups},
      {SourceKind::kRegex, "(.*.*.*.*.*.*.*.*a){40}"},
      {SourceKind::kJsonSchema, R"({"$ref":"#"})"},
      {SourceKind::kJsonSchema, R"({"type":"string","pattern":"^(a|b)*a(a|b){24}$"})"},
      {SourceKind::kJsonSchema, R"({"type":"string","maxLength":100000,"minLength":99999})"},
      {SourceKind::kJsonSchema,
       R"({"type":"array","items":{"type":"integer"},"minItems":100000,"maxItems":100000})"},
      {SourceKind::kJsonSchema, std::string(60'000, '[')},
  };
  for (const auto& [kind, text] : bombs) {
    const auto start = std::chrono::steady_clock::now();
    try {
      Matcher m(make(kind, text));
      std::vector<uint64_t> mask(m.mask_words());
      for (int i = 0; i < 200 && m.accept_bytes(kind == SourceKind::kJsonSchema ? "\"" : "a"); ++i)
        m.fill_mask(mask);
      EXPECT_LT(m.grammar().bytes() + m.bytes(), size_t{64} << 20) << text.substr(0, 60);
    } catch (const Error& e) {
      EXPECT_NE(e.code(), ErrorCode::kInternal) << text.substr(0, 60) << ": " << e.what();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, 4.0) << text.substr(
        0, 60);  // the limit is 0.9 s of this thread's time; machines may be busy
  }
}

TEST(GrammarBombs, CountersCount) {
  const auto g = make(SourceKind::kRegex, "a{3,100000}");
  EXPECT_FALSE(accepts(g, "aa"));
  EXPECT_TRUE(accepts(g, "aaa"));
  EXPECT_TRUE(accepts(g, std::string(100'000, 'a')));
  EXPECT_FALSE(accepts(g, std::string(100'001, 'a')));
  const auto h = make(SourceKind::kRegex, "(ab?){2,500}");
  EXPECT_FALSE(accepts(h, "ab"));
  EXPECT_TRUE(accepts(h, "aba"));
}

TEST(GrammarFrontEnds, Texts) {
  const auto check = [](SourceKind kind, const std::string& text, const std::vector<std::string>& yes,
                        const std::vector<std::string>& no) {
    const auto g = make(kind, text);
    for (const auto& t : yes) EXPECT_TRUE(accepts(g, t)) << text << " should take " << t;
    for (const auto& t : no) EXPECT_FALSE(accepts(g, t)) << text << " should refuse " << t;
  };
  check(SourceKind::kChoices, R"(["yes","no","noo"])", {"yes", "no", "noo"}, {"", "n", "yesno"});
  check(SourceKind::kRegex, "^[A-Z]\\w+@(x|y)\\.com$", {"Ab@x.com"}, {"ab@x.com", "Ab@x,com", "Ab@x.com\n"});
  check(SourceKind::kRegex, "(?=.*[0-9])[a-z0-9]{3,5}", {"ab1", "12345"}, {"abc", "a1", "abcde1"});
  check(SourceKind::kRegex, "(?i)ab+\\u00e9", {"aB\u00e9", "ABBB\u00e9"}, {"ab"});
  check(SourceKind::kRegex, "\\bcat\\b.*", {"cat", "cat sat"}, {"cats"});
  check(SourceKind::kReady, "arithmetic", {"1+2*(3-4)", "-1 ^ 2.5"}, {"1+", "01", "(1"});
  check(SourceKind::kReady, "date", {"2024-02-29", "1999-12-31"}, {"2023-02-29", "2024-13-01"});
  check(SourceKind::kReady, "date-time", {"2024-02-29T10:00:00Z"}, {"2024-02-29", "2024-02-29T25:00:00Z"});
  check(SourceKind::kReady, "sql",
        {"SELECT a, COUNT(*) AS n FROM t JOIN u ON t.id = u.id WHERE x > 3 AND y IN (1, 2) GROUP BY a ORDER "
         "BY n DESC LIMIT 5;"},
        {"SELECT", "SELECT a FROM", "DROP TABLE t"});
  check(SourceKind::kLark,
        "start: \"hi\"i NAME (\",\" NAME)* | num~2..3\nNAME: /[a-z]+/\nnum: \"0\"..\"9\"\n%ignore / +/\n",
        {"Hi bob", "hi a , b", "12", "1 2 3"}, {"hi", "hi Bob", "1234"});
  check(SourceKind::kGbnf,
        "root ::= [a-c]{2,3} \"\\n\" | \"\\u00e9\"  # end\n  | other\nother ::= (\"x\" | \"y\")+\n",
        {"ab\n", "\u00e9", "xyx"}, {"a\n", "", "z"});
  for (const char* bad :
       {"root ::= \"a", "root ::= b", "x ::= \"a\"", "root ::= (\"a\"", "root ::= [z-a]", "root ::= root"})
    EXPECT_THROW(make(SourceKind::kGbnf, bad), Error) << bad;
  for (const char* bad :
       {"(", "a)", "[a", "a{3,2}", "*a", "(a)\\1", "a(?=b)c", "(?<=a)b", "\\p{Nonsense}", "a**"})
    EXPECT_THROW(make(SourceKind::kRegex, bad), Error) << bad;
}

TEST(GrammarSchemas, VerdictsOfJsonschema) {
  std::ifstream in(testing::fixture("grammar/schemas.jsonl"));
  ASSERT_TRUE(in.good());
  std::string line;
  int64_t schemas = 0, instances = 0, refused = 0;
  while (std::getline(in, line)) {
    const auto c = nlohmann::json::parse(line);
    // From the text itself, so that the order of keywords stays.
    const std::string schema = nlohmann::ordered_json::parse(line)["schema"].dump();
    ++schemas;
    std::shared_ptr<const CompiledGrammar> g;
    try {
      g = make(SourceKind::kJsonSchema, schema);
    } catch (const Error& e) {
      ++refused;
      const std::string what = e.what();
      const bool nothing = what.find("contradicts itself") != what.npos || what.find("no text") != what.npos;
      EXPECT_TRUE(c.contains("refused") || (nothing && c["valid"].empty()) ||
                  what.find("cannot be enforced") != what.npos)
          << schema << ": " << what;
      continue;
    }
    ASSERT_FALSE(c.contains("refused")) << schema;
    for (const char* kind : {"valid", "invalid"})
      for (const auto& value : c[kind]) {
        ++instances;
        EXPECT_EQ(accepts(g, value.dump()), kind == std::string_view("valid"))
            << schema << " and " << value.dump();
      }
  }
  EXPECT_GE(schemas, 500);
  EXPECT_GE(instances, 3000);
  EXPECT_LT(refused, schemas / 5);
}

TEST(GrammarFrontEnds, UnicodeProperties) {
  const struct {
    const char *pattern, *yes, *no;
  } cases[] = {{"^\\\\p{Letter}+$", "aéЖ漢", "a1"},        {"^\\\\p{Lu}\\\\p{Ll}*$", "Éa", "éa"},
               {"^[^\\\\p{L}\\\\p{N}]$", "-", "é"},        {"^\\\\P{L}+$", "12-", "1é"},
               {"^\\\\p{Script=Greek}+$", "αΩ", "a"},      {"^[\\\\p{sc=Han}\\\\d]+$", "漢1", "か"},
               {"^\\\\p{General_Category=Nd}$", "٣", "x"}, {"^\\\\p{Emoji_Presentation}$", "😀", "a"}};
  for (const auto& c : cases) {
    const auto g = make(SourceKind::kJsonSchema, fmt::format(R"({{"pattern":"{}"}})", c.pattern));
    EXPECT_TRUE(accepts(g, fmt::format("\"{}\"", c.yes))) << c.pattern;
    EXPECT_FALSE(accepts(g, fmt::format("\"{}\"", c.no))) << c.pattern;
  }
  EXPECT_THROW(make(SourceKind::kJsonSchema, R"({"pattern":"\\p{Nonsense}"})"), Error);
}

TEST(GrammarFrontEnds, LarkLibrary) {
  const auto g = make(SourceKind::kLark,
                      "start: CNAME \"=\" (NUM | ESCAPED_STRING)\n"
                      "%import common (CNAME, ESCAPED_STRING)\n%import common.SIGNED_NUMBER -> NUM\n"
                      "%import common.WS\n%ignore WS");
  for (const char* yes : {"a = 1", "_x2=-1.5e3", "s =\n\"a\\\"b\""}) EXPECT_TRUE(accepts(g, yes)) << yes;
  for (const char* no : {"2 = 1", "a = \"b", "a = 1.5.2", "a ="}) EXPECT_FALSE(accepts(g, no)) << no;
  for (const char* bad : {"start: X\n%import common.NOTHING -> X", "start: X\n%import python.X",
                          "start: list{\"a\"}\nlist{x}: x+", "start: \"a\"\n%declare B"})
    EXPECT_THROW(make(SourceKind::kLark, bad), Error) << bad;
}

// A case for every keyword in several drafts; few may be refused, and none judged wrongly, in two spellings.
TEST(GrammarSchemas, KeywordsOfAllDrafts) {
  std::ifstream in(testing::fixture("grammar/keywords.jsonl"));
  ASSERT_TRUE(in.good());
  std::string line;
  int64_t schemas = 0, refused = 0;
  while (std::getline(in, line)) {
    const auto c = nlohmann::ordered_json::parse(line);
    ++schemas;
    std::shared_ptr<const CompiledGrammar> g;
    try {
      g = make(SourceKind::kJsonSchema, c["schema"].dump());
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << c["schema"] << ": " << e.what();
      ++refused;
      continue;
    }
    for (const char* kind : {"valid", "invalid"})
      for (const auto& value : c[kind])
        for (const int indent : {-1, 2})
          EXPECT_EQ(accepts(g, value.dump(indent)), kind == std::string_view("valid"))
              << c["schema"] << " and " << value.dump();
  }
  EXPECT_GE(schemas, 340);
  EXPECT_LE(refused, 12);
}

// Random walks through masks never meet a dead end, and what they finish is JSON.
TEST(GrammarSchemas, WalksFindNoDeadEnd) {
  Random random(testing::seed());
  std::ifstream in(testing::fixture("grammar/schemas.jsonl"));
  std::string line;
  while (std::getline(in, line)) {
    if (random.below(12) != 0 || line.find("uniqueItems") != line.npos) continue;
    const auto c = nlohmann::json::parse(line);
    std::shared_ptr<const CompiledGrammar> g;
    try {
      g = make(SourceKind::kJsonSchema, c["schema"].dump());
    } catch (const Error&) {
      continue;
    }
    Matcher m(g);
    std::vector<uint64_t> mask(m.mask_words());
    for (int step = 0; step < 40 && !m.is_terminated(); ++step) {
      m.fill_mask(mask);
      std::vector<TokenId> allowed;
      for (TokenId t = 0; t < 257; ++t)
        if ((mask[static_cast<size_t>(t) >> 6] >> (t & 63)) & 1) allowed.push_back(t);
      ASSERT_FALSE(allowed.empty()) << c["schema"].dump();
      ASSERT_TRUE(m.accept(allowed[random.below(static_cast<uint32_t>(allowed.size()))]));
    }
  }
}

TEST(GrammarCompilerTest, CachesCancelsAndMeetsDeadlines) {
  GrammarCompiler::Options options;
  options.cache_entries = 2;
  GrammarCompiler compiler(bytes(), options);
  Source s;
  s.kind = SourceKind::kRegex;
  s.text = "a+";
  const auto first = compiler.submit(s).get();
  EXPECT_EQ(compiler.submit(s).get(), first);
  for (const char* t : {"b+", "c+", "d+"}) {
    s.text = t;
    compiler.submit(s).get();
  }
  EXPECT_EQ(compiler.cached_entries(), 2u);
  s.text = "e+";
  try {
    compiler.submit(s, std::chrono::steady_clock::now() - std::chrono::seconds(1)).get();
    FAIL() << "the deadline had passed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kDeadlineExceeded);
  }
  std::atomic<bool> cancel{true};
  CompileOptions o;
  o.cancel = &cancel;
  s.text = "(a|b)*a(a|b){20}";
  try {
    compile_program(s, o);
    FAIL() << "it was cancelled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  }
}

TEST(GrammarCompilerTest, OutlivesGrammarsThatTakeTooLong) {
  GrammarCompiler::Options options;
  options.limits.seconds = 0;  // those that it makes for itself, too
  GrammarCompiler compiler(bytes(), options);
  Source s;
  s.kind = SourceKind::kRegex;
  s.text = "a+";
  for (int i = 0; i < 2; ++i) {
    try {
      compiler.submit(s).get();
      FAIL() << "there was no time";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kLimitExceeded);
    }
  }
}

// Requests, given up and not, and matchers on several threads, while masks are made in the background and few
// of what was compiled is kept.
TEST(GrammarCompilerTest, ServesThreads) {
  GrammarCompiler::Options options;
  options.cache_entries = 3;
  options.limits.seconds = 600;  // not what is tested
  GrammarCompiler compiler(bytes(), options);
  const std::vector<std::pair<Source, std::string>> wanted = {
      {{SourceKind::kJson, {}, {}}, R"({"a":[1,true,"x\u0041"],"b":{}})"},
      {{SourceKind::kJsonObject, {}, {}}, R"({"key":-1.5e3})"},
      {{SourceKind::kJsonSchema,
        R"({"type":"object","properties":{"n":{"type":"integer","minimum":7}}})",
        {}},
       R"({"n":12})"},
      {{SourceKind::kJsonSchema, R"({"enum":["one","two",3]})", {}}, R"("two")"},
      {{SourceKind::kRegex, "[ab]*a[ab]{4}", {}}, "abbabbab"},
      {{SourceKind::kGbnf, "root ::= \"(\" root \")\" | [a-z]+", {}}, "((word))"},
      {{SourceKind::kChoices, R"(["yes","no"])", {}}, "no"},
  };
  std::vector<Matcher> begun;  // forked by all
  begun.reserve(wanted.size());
  for (const auto& [source, text] : wanted) begun.emplace_back(compiler.submit(source).get());
  const int64_t rounds = testing::scaled(40);
  const uint64_t seed = testing::seed();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Random random(seed + t);
      for (int64_t round = 0; round < rounds; ++round) {
        const size_t i = random.below(static_cast<uint32_t>(wanted.size()));
        const auto& [source, text] = wanted[i];
        const auto ticket = compiler.submit(source);
        if (random.below(3) == 0) continue;
        Matcher matcher = random.below(2) ? begun[i].fork() : Matcher(ticket.get());
        Matcher fork = matcher.fork();
        std::vector<uint64_t> mask(matcher.mask_words());
        for (const char c : text) {
          matcher.fill_mask(mask);
          const auto b = static_cast<uint8_t>(c);
          EXPECT_TRUE((mask[b >> 6] >> (b & 63)) & 1) << text;
          EXPECT_TRUE(matcher.accept(b)) << text;
        }
        EXPECT_TRUE(matcher.can_end()) << text;
        EXPECT_EQ(fork.viable_prefix(text), text.size());
        EXPECT_GT(compiler.cached_bytes(), 0u);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_LE(compiler.cached_entries(), 3u);
  compiler.wait_warm();
}

}  // namespace
}  // namespace millrace::grammar
