// The published `pre` names of byte-level BPE vocabularies and the patterns that they stand for, as data.
// Patterns are those of the models' own tokenizer files; a few are written so that PCRE2 needs no
// backtracking for the same result.
#include <algorithm>
#include <array>

#include "text/pretokenizer.h"

namespace millrace::text {
namespace {

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT4_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CASED(ending)                                                                                \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" ending \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" ending
#define CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ASCII_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define CJK_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define DEEPSEEK_V3 ASCII_WORD "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"

constexpr std::string_view kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kNumber = "\\p{N}";
constexpr std::string_view kNumbers3 = "\\p{N}{1,3}";
constexpr std::string_view kNewline = "[\\r\\n]";
constexpr std::string_view kLines = "[^\\n]+|[\\n]+";
constexpr std::string_view kCjk = "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+";
constexpr std::string_view kQwen2 = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" GPT4_TAIL;
constexpr std::string_view kLlama3 = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" GPT4_TAIL;
constexpr std::string_view kBloom =
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+";
constexpr std::string_view kDeepseekV3 = DEEPSEEK_V3 "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/// Letters that have a case, of the Unicode version that the vocabulary was made with.
constexpr std::string_view kDeepseekLetters =
    "\\s?["
    "\\x{41}-\\x{5a}\\x{61}-\\x{7a}\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}"
    "\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}-\\x{377}"
    "\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}"
    "\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}"
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}-\\x{2184}"
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}-\\x{2cf3}\\x{a640}-\\x{a66d}"
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
    "]+";
constexpr std::string_view kDeepseekPunctuation =
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+";
/// \s+$ without a search that starts over at every space.
constexpr std::string_view kTrailingSpace = "(?<!\\s)\\s++$";

struct NamedRule {
  PreRule rule;
  std::vector<std::string_view> names;
};

std::vector<NamedRule> make_rules() {
  return {
      {{{"[\\p{P}$+<=>^~|]+", kGpt2, "\\p{N}+", "[0-9][0-9][0-9]"}}, {"default"}},
      {{{kLlama3}, true, true},
       {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano"}},
      {{{kLlama3}}, {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}},
      {{{CONTRACTIONS
         "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
         "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)"
         "|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
       {"jais-2"}},
      {{{kNewline, kDeepseekLetters, kDeepseekPunctuation, kTrailingSpace, kCjk, "\\p{N}+"}},
       {"deepseek-llm"}},
      {{{kNewline, "\\s?\\p{L}+", "\\s?\\p{P}+", kCjk, kNumber}}, {"deepseek-coder"}},
      {{{kNumbers3, CJK_KANA, kDeepseekV3}}, {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}},
      {{{kNumbers3, CJK_KANA, DEEPSEEK_V3 "|[\\r\\n]|\\s+(?!\\S)|\\s+", kNumber}}, {"spark2_5"}},
      {{{"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}"
         "\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+"
         "|[\\x{3105}-\\x{312f}]+|" CJK_KANA,
         CASED(CONTRACTIONS "?") "|\\p{N}" CASED_TAIL},
        true},
       {"youtu"}},
      {{{"[\\p{P}$+<=>^~|`]+", kGpt2, "[0-9][0-9][0-9]"}}, {"falcon"}},
      {{{kNumber, kGpt2}},
       {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"}},
      {{{kGpt2}},
       {"gpt-2",      "gpt2",         "phi-2",       "mpt",         "olmo",     "jais",    "trillion",
        "jina-es",    "jina-de",      "jina-v1-en",  "jina-v2-es",  "gigachat", "a.x-4.0", "granite-docling",
        "jina-v2-de", "jina-v2-code", "roberta-bpe", "modern-bert", "mellum",   "exaone4"}},
      {{{kQwen2}},
       {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open",
        "grok-2"}},
      {{{CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                      "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
       {"qwen35"}},
      {{{kBloom}}, {"bloom", "poro-chat", "gpt3-finnish"}},
      {{{kBloom, kNumber}}, {"viking"}},
      {{{CASED("") "|\\p{N}" CASED_TAIL}, true, true}, {"tekken"}},
      {{{CASED(CONTRACTIONS "?") "|\\p{N}{1,3}" CASED_TAIL}},
       {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}},
      {{{CASED(CONTRACTIONS "?") "|\\p{N}{1,3}" CASED_TAIL}, true}, {"granite-embed-multi-97m"}},
      {{{"\\d{1,3}(?=(?:\\d{3})*\\b)", CASED(CONTRACTIONS "?") "|\\p{N}{1,3}" CASED_TAIL}},
       {"tiny_aya", "cohere2moe"}},
      {{{"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", kNumber,
         "[\\p{P}!-/:-@\\[-`{-~]", kGpt2},
        false,
        true},
       {"chameleon"}},
      {{{"\\p{Han}+"
         "|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])*"
         "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])+" CONTRACTIONS "?"
         "|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])+"
         "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])*" CONTRACTIONS "?|\\p{N}{1,3}" GPT4_TAIL}},
       {"kimi-k2"}},
      {{{"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}}, {"superbpe"}},
      {{{"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
         "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
       {"bailingmoe", "bailingmoe2", "llada-moe"}},
      {{{CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+"
                      "|\\s+(?!\\S)|\\s+"}},
       {"seed-coder"}},
      {{{"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" GPT4_TAIL}}, {"ufakzeka"}},
      {{{"\\d{1,3}(?=(?:\\d{3})*\\b)",
         "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}"
         "\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}"
         "\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+",
         kDeepseekV3}},
       {"afmoe"}},
      {{{kLines, kQwen2}}, {"laguna"}},
      {{{CONTRACTIONS
         "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}(?:\\p{M}| ?\\p{L})*+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?"
         "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
       {"exaone-moe"}},
      {{{kNumbers3, CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+" GPT4_TAIL}, true}, {"minicpm5"}},
      {{{kLines}, false, false, true}, {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}},
  };
}

const std::vector<NamedRule>& rules() {
  static const std::vector<NamedRule> all = make_rules();
  return all;
}

}  // namespace

const PreRule* find_pre_rule(std::string_view name) {
  for (const NamedRule& named : rules())
    if (std::find(named.names.begin(), named.names.end(), name) != named.names.end()) return &named.rule;
  return nullptr;
}

std::vector<std::string_view> pre_rule_names() {
  std::vector<std::string_view> names;
  for (const NamedRule& named : rules()) names.insert(names.end(), named.names.begin(), named.names.end());
  return names;
}

}  // namespace millrace::text
