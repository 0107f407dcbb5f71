// millrace grammar: checks texts against a grammar, and samples texts from one.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/grammar_bench.h"
#include "cli/loaded_model.h"
#include "cli/subcommand.h"
#include "core/error.h"
#include "core/random.h"
#include "core/utf8.h"
#include "grammar/compiler.h"
#include "grammar/completion.h"
#include "grammar/place_cache.h"
#include "loaders/checkpoint.h"
#include "text/tokenizer.h"

namespace millrace::cli {
namespace {

constexpr int kRefused = 3;

struct GrammarOptions {
  std::string json_schema, regex, gbnf, lark, choices, ready;
  bool json = false, compact = false, stats = false;
  std::string instances, model;
  uint64_t seed = 0;
  int64_t count = 1, max_tokens = 200;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ErrorCode::kNotFound, "'{}' cannot be read", path);
  std::ostringstream all;
  all << in.rdbuf();
  return std::move(all).str();
}

// One line feed at the end of a file belongs to the file, not to the expression in it.
std::string without_last_newline(std::string s) {
  if (!s.empty() && s.back() == '\n') s.pop_back();
  if (!s.empty() && s.back() == '\r') s.pop_back();
  return s;
}

grammar::Source source_of(const GrammarOptions& o) {
  grammar::Source s;
  int given = 0;
  const auto take = [&](const std::string& path, grammar::SourceKind kind, bool is_path) {
    if (path.empty()) return;
    ++given;
    s.kind = kind;
    s.text = is_path ? read_file(path) : path;
    if (kind == grammar::SourceKind::kRegex) s.text = without_last_newline(s.text);
  };
  take(o.json_schema, grammar::SourceKind::kJsonSchema, true);
  take(o.regex, grammar::SourceKind::kRegex, true);
  take(o.gbnf, grammar::SourceKind::kGbnf, true);
  take(o.lark, grammar::SourceKind::kLark, true);
  take(o.choices, grammar::SourceKind::kChoices, true);
  take(o.ready, grammar::SourceKind::kReady, false);
  if (o.json) ++given, s.kind = grammar::SourceKind::kJson;
  if (given != 1)
    throw UsageError(
        "give one grammar: --json-schema, --regex, --gbnf, --lark or --choices FILE, --ready NAME, or "
        "--json");
  if (o.compact) s.json.whitespace = grammar::Whitespace::kCompact;
  return s;
}

grammar::Vocabulary vocabulary_of(const std::string& model) {
  if (model.empty()) return grammar::byte_vocabulary();
  std::unique_ptr<text::Tokenizer> t = std::filesystem::is_directory(model)
                                           ? text::open_hugging_face_tokenizer(model)
                                           : open_tokenizer(loaders::open_checkpoint(model));
  require(t != nullptr, ErrorCode::kInvalidFile, "'{}' has no vocabulary", model);
  grammar::Vocabulary v;
  for (int32_t id = 0; id < t->vocab_size(); ++id) {
    const text::TokenKind kind = t->kind(id);
    const bool special = kind == text::TokenKind::kControl || kind == text::TokenKind::kUnknown ||
                         kind == text::TokenKind::kUnused;
    v.token_bytes.push_back(special ? std::string() : t->piece(id));
    v.special.push_back(special);
  }
  v.end_of_generation = t->end_of_generation();
  return v;
}

int check(const GrammarOptions& o, const std::shared_ptr<const grammar::CompiledGrammar>& g,
          MaskTimes& times) {
  if (o.instances.empty()) return 0;
  std::ifstream in(o.instances, std::ios::binary);
  require(in.good(), ErrorCode::kNotFound, "'{}' cannot be read", o.instances);
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line == "\r") continue;
    std::string text;
    try {
      const auto j = nlohmann::json::parse(line);
      require(j.is_string(), ErrorCode::kInvalidFile, "{}, line {}: expected a JSON string", o.instances,
              number);
      text = j.get<std::string>();
    } catch (const nlohmann::json::exception&) {
      fail(ErrorCode::kInvalidFile, "{}, line {}: expected a JSON string", o.instances, number);
    }
    const grammar::MatchResult r = grammar::match_text(g, text);
    if (r.accepted) {
      std::puts("{\"accepted\": true}");
    } else {
      fmt::print("{{\"accepted\": false, \"at\": {}}}\n", r.at);
    }
    if (o.stats) time_masks(g, text, times);
  }
  return 0;
}

// Uniform logits: every allowed token is as likely as another. From max_tokens on, the nearest way to an end
// is taken.
std::string sample_text(const std::shared_ptr<const grammar::CompiledGrammar>& g,
                        grammar::CompletionCost& cost, const GrammarOptions& o, Random& random,
                        MaskTimes& times) {
  grammar::Matcher m(g);
  std::vector<uint64_t> mask(m.mask_words());
  std::vector<uint32_t> allowed;
  std::string text;
  const auto& v = g->trie().vocabulary();
  for (int64_t step = 0;; ++step) {
    const auto start = std::chrono::steady_clock::now();
    m.fill_mask(mask);
    times.add(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    allowed.clear();
    for (size_t w = 0; w < mask.size(); ++w)
      for (uint64_t bits = mask[w]; bits; bits &= bits - 1)
        allowed.push_back(static_cast<uint32_t>(w * 64 + static_cast<size_t>(std::countr_zero(bits))));
    require(!allowed.empty(), ErrorCode::kInternal, "the grammar allows no token after '{}'", text);
    uint32_t token = allowed[random.below(static_cast<uint32_t>(allowed.size()))];
    if (step >= o.max_tokens) {
      require(step < o.max_tokens + 20'000, ErrorCode::kLimitExceeded,
              "a sample did not come to an end within {} tokens; it ends in '{}'", step,
              text.substr(text.size() - std::min<size_t>(text.size(), 300)));
      if (m.can_end()) return text;
      uint64_t best = ~uint64_t{0};
      // The estimate may have flat places: a random step now and then leaves them.
      const bool wander = step > o.max_tokens + 300 && random.below(8) == 0;
      const size_t tries = wander ? 1 : std::min<size_t>(allowed.size(), 400);
      for (size_t i = 0; i < tries; ++i) {
        const uint32_t t = tries == allowed.size()
                               ? allowed[i]
                               : allowed[random.below(static_cast<uint32_t>(allowed.size()))];
        const uint64_t c = m.distance_to_end(cost, v.token_bytes[t]);
        const bool blank = v.token_bytes[t].find_first_not_of(" \t\r\n") == std::string::npos;
        if (c < best || (c == best && !blank)) best = c, token = t;
      }
      for (unsigned b = 0; b < 256 && !wander && tries < allowed.size();
           ++b) {  // single bytes are always worth a try
        const char byte = static_cast<char>(b);
        const uint64_t c = m.distance_to_end(cost, std::string_view(&byte, 1));
        if (c < best) {
          best = c;
          token = ~uint32_t{0};
          for (uint32_t t : allowed)
            if (v.token_bytes[t].size() == 1 && v.token_bytes[t][0] == byte) token = t;
          if (token == ~uint32_t{0}) token = allowed[random.below(static_cast<uint32_t>(allowed.size()))];
        }
      }
    }
    const bool ends = std::find(v.end_of_generation.begin(), v.end_of_generation.end(),
                                static_cast<grammar::TokenId>(token)) != v.end_of_generation.end();
    require(m.accept(static_cast<grammar::TokenId>(token)), ErrorCode::kInternal,
            "the mask allowed token {} after '{}', the matcher did not", token, text);
    if (ends) return text;
    text += v.token_bytes[token];
  }
}

int sample(const GrammarOptions& o, const std::shared_ptr<const grammar::CompiledGrammar>& g,
           MaskTimes& times) {
  grammar::CompletionCost cost(g->program());
  for (int64_t i = 0; i < o.count; ++i) {
    Random random(o.seed + static_cast<uint64_t>(i));
    const std::string text = sample_text(g, cost, o, random, times);
    fmt::print("{}\n", nlohmann::json(utf8::replace_invalid(text)).dump());
  }
  return 0;
}

int run_grammar(int argc, char** argv) {
  CLI::App app("Compiles a grammar, then checks texts against it or samples texts from it.",
               "millrace grammar");
  app.require_subcommand(1);
  GrammarOptions o;
  const auto common = [&](CLI::App* sub) {
    sub->add_option("--json-schema", o.json_schema, "JSON Schema")->type_name("FILE");
    sub->add_option("--regex", o.regex, "regular expression that matches the whole text")->type_name("FILE");
    sub->add_option("--gbnf", o.gbnf, "grammar in GBNF")->type_name("FILE");
    sub->add_option("--lark", o.lark, "grammar in Lark-like EBNF")->type_name("FILE");
    sub->add_option("--choices", o.choices, "JSON list of strings")->type_name("FILE");
    sub->add_option("--ready", o.ready, "ready grammar: arithmetic, date, date-time, sql")->type_name("NAME");
    sub->add_flag("--json", o.json, "any JSON value");
    sub->add_flag("--compact", o.compact, "JSON without white space");
    sub->add_flag("--stats", o.stats, "compile time, sizes and mask times on standard error, as JSON");
    sub->add_option("-m,--model", o.model, "take the vocabulary of this model (bytes alone without it)")
        ->type_name("PATH");
  };
  CLI::App* check_app =
      app.add_subcommand("check", "prints for each instance whether the grammar accepts it");
  common(check_app);
  check_app->add_option("--instances", o.instances, "texts, one JSON string a line")->type_name("FILE");
  CLI::App* sample_app =
      app.add_subcommand("sample", "prints texts sampled with random logits, one JSON string a line");
  common(sample_app);
  sample_app->add_option("--seed", o.seed, "seed of the first text; the next ones count up");
  sample_app->add_option("--count", o.count, "number of texts")->check(CLI::NonNegativeNumber);
  sample_app->add_option("--max-tokens", o.max_tokens, "tokens after which the nearest end is sought")
      ->check(CLI::NonNegativeNumber);
  GrammarBenchOptions bench;
  CLI::App* bench_app = app.add_subcommand("bench", "times compilation and masks over many JSON Schemas");
  bench_app->add_option("--schemas", bench.schemas, "objects with \"schema\" and \"valid\", one a line")
      ->type_name("FILE")
      ->required();
  bench_app->add_option("--first", bench.first, "only so many schemas");
  bench_app->add_option("--slowest", bench.slowest, "how many of the schemas with the slowest masks to name");
  bench_app->add_flag("--refusals", bench.refusals, "also list each refusal and each time of compilation");
  bench_app->add_flag("--compact", bench.compact, "JSON without white space");
  bench_app->add_flag("--cold", bench.cold, "without the masks that are made in the background");
  bench_app->add_option("-m,--model", o.model, "take the vocabulary of this model")->type_name("PATH");
  if (parse_arguments(app, argc, argv)) return 0;

  if (bench_app->parsed()) {
    bench_grammars(bench, std::make_shared<const grammar::TokenTrie>(vocabulary_of(o.model)));
    return 0;
  }
  const grammar::Source source = source_of(o);
  const auto trie = std::make_shared<const grammar::TokenTrie>(vocabulary_of(o.model));
  std::shared_ptr<const grammar::CompiledGrammar> g;
  try {
    g = grammar::compile(source, trie);
  } catch (const Error& e) {
    fmt::print(stderr, "millrace: the grammar is refused: {}\n", e.what());
    return kRefused;
  }
  MaskTimes times;
  const int status = check_app->parsed() ? check(o, g, times) : sample(o, g, times);
  if (o.stats) {
    nlohmann::json j;
    j["compile_ms"] = g->program().compile_seconds * 1e3;
    j["states"] = g->program().num_positions();
    j["rules"] = g->program().rules.size();
    j["program_bytes"] = g->program().bytes;
    j["mask_cache_bytes"] = trie->places().bytes();
    j["mask_cache_entries"] = trie->places().count();
    j["vocabulary"] = trie->vocab_size();
    j["masks"] = times.summary();
    fmt::print(stderr, "{}\n", j.dump());
  }
  return status;
}

MILLRACE_SUBCOMMAND("grammar", 75, "check texts against a grammar, or sample from one", run_grammar);

}  // namespace
}  // namespace millrace::cli
