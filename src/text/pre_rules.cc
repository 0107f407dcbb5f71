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
constexpr std::string_view kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";
constexpr std::string_view kDeepseekV3 = DEEPSEEK_V3 "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/// Letters that have a case, of the Unicode version that the vocabulary was made with.
constexpr std::string_view kDeepseekLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-"
    "ἕἘ-"
    "Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-"
    "ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-"
    "𐓓𐓘-"
    "𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
constexpr std::string_view kDeepseekPunctuation = "\\s?[!-/:-~！-／：-～‘-‟\\x{3000}-。]+";
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
      {{{"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[！…“”‘’—：；，\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+"
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
