#include "cli/grammar_bench.h"

#include <fmt/format.h>

#include <ctime>
#include <fstream>

#include "core/error.h"
#include "grammar/compiler.h"
#include "grammar/warm.h"

namespace millrace::cli {
namespace {

double now_us(bool cpu) {
  timespec t{};
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

// As json.dumps writes it by default: a blank after ':' and ','.
void write_spaced(const nlohmann::ordered_json& j, std::string& out) {
  bool first = true;
  if (j.is_object()) {
    out += '{';
    for (const auto& [key, value] : j.items()) {
      if (!std::exchange(first, false)) out += ", ";
      out += nlohmann::json(key).dump() + ": ";
      write_spaced(value, out);
    }
    out += '}';
  } else if (j.is_array()) {
    out += '[';
    for (const auto& value : j) {
      if (!std::exchange(first, false)) out += ", ";
      write_spaced(value, out);
    }
    out += ']';
  } else {
    out += j.dump();
  }
}

struct Slow {
  double us;
  int64_t line;
  int use;
  size_t token;
  std::string text;
};

grammar::TokenId longest_token(const grammar::TokenTrie& trie, std::string_view text) {
  const auto& nodes = trie.nodes();
  grammar::TokenId best = -1;
  for (uint32_t i = 0; i < nodes.size();) {
    const size_t d = nodes[i].depth - 1u;
    if (d >= text.size()) break;
    if (nodes[i].byte == static_cast<uint8_t>(text[d])) {
      if (nodes[i].ends > 0) best = trie.order()[nodes[i].tokens];
      ++i;
      if (i >= nodes.size() || nodes[i].depth != d + 2) break;
    } else {
      i = nodes[i].skip;
      if (i >= nodes.size() || nodes[i].depth != d + 1) break;
    }
  }
  return best;
}

}  // namespace

nlohmann::json MaskTimes::summary() {
  nlohmann::json j;
  j["count"] = micros.size();
  if (micros.empty()) return j;
  std::sort(micros.begin(), micros.end());
  double sum = 0;
  for (double m : micros) sum += m;
  const auto at = [&](double q) {
    return micros[std::min(micros.size() - 1, static_cast<size_t>(q * static_cast<double>(micros.size())))];
  };
  j["mean_us"] = sum / static_cast<double>(micros.size());
  j["p50_us"] = at(0.5);
  j["p99_us"] = at(0.99);
  j["p999_us"] = at(0.999);
  j["max_us"] = micros.back();
  return j;
}

size_t time_masks(const std::shared_ptr<const grammar::CompiledGrammar>& g, const std::string& text,
                  MaskTimes& times, bool cpu) {
  const auto& trie = g->trie();
  grammar::Matcher m(g);
  std::vector<uint64_t> mask(m.mask_words());
  size_t tokens = 0;
  for (size_t at = 0;; ++tokens) {
    const double start = now_us(cpu);
    m.fill_mask(mask);
    times.add(now_us(cpu) - start);
    if (at == text.size()) break;
    const grammar::TokenId best = longest_token(trie, std::string_view(text).substr(at));
    if (best < 0 || !m.accept(best)) break;
    at += trie.vocabulary().token_bytes[static_cast<size_t>(best)].size();
  }
  return tokens;
}

void bench_grammars(const GrammarBenchOptions& options,
                    const std::shared_ptr<const grammar::TokenTrie>& trie) {
  std::ifstream in(options.schemas, std::ios::binary);
  require(in.good(), ErrorCode::kNotFound, "'{}' cannot be read", options.schemas);
  MaskTimes compile_times, background, first, again;
  size_t unfinished = 0;
  int64_t schemas = 0, refused = 0;
  std::vector<Slow> slowest;
  nlohmann::json refusals = nlohmann::json::array(), compiled = nlohmann::json::array();
  std::string line;
  while (std::getline(in, line) && schemas != options.first) {
    nlohmann::ordered_json j;
    try {
      j = nlohmann::ordered_json::parse(line);
      require(j.is_object() && j.contains("schema"), ErrorCode::kInvalidFile,
              "{}, line {}: expected an object with a schema", options.schemas, schemas + 1);
    } catch (const nlohmann::json::exception&) {
      fail(ErrorCode::kInvalidFile, "{}, line {}: expected a JSON object", options.schemas, schemas + 1);
    }
    grammar::Source source;
    source.kind = grammar::SourceKind::kJsonSchema;
    source.text = j["schema"].dump();
    if (options.compact) source.json.whitespace = grammar::Whitespace::kCompact;
    const int64_t number = ++schemas;
    std::shared_ptr<const grammar::CompiledGrammar> g;
    const double start = now_us(true);
    try {
      g = grammar::compile(source, trie);
    } catch (const Error& e) {
      ++refused;
      if (options.refusals) refusals.push_back({{"line", number}, {"why", e.what()}});
      continue;
    }
    compile_times.add(now_us(true) - start);
    if (options.refusals) compiled.push_back({{"line", number}, {"us", compile_times.micros.back()}});
    if (!options.cold) {
      const grammar::WarmResult warmed = grammar::warm(g);
      background.add(1e6 * warmed.seconds);
      unfinished += warmed.complete ? 0 : 1;
    }
    for (MaskTimes* times : {&first, &again}) {
      Slow worst{0, number, times == &again ? 2 : 1, 0, ""};
      for (const auto& value : j.value("valid", nlohmann::ordered_json::array())) {
        std::string text;
        if (options.compact) {
          text = value.dump();
        } else {
          write_spaced(value, text);
        }
        const size_t before = times->micros.size();
        time_masks(g, text, *times, true);
        for (size_t i = before; i < times->micros.size(); ++i)
          if (times->micros[i] > worst.us) worst = {times->micros[i], number, worst.use, i - before, text};
      }
      slowest.push_back(std::move(worst));
    }
    std::sort(slowest.begin(), slowest.end(), [](const Slow& x, const Slow& y) { return x.us > y.us; });
    slowest.resize(std::min<size_t>(slowest.size(), static_cast<size_t>(options.slowest)));
  }
  nlohmann::json out;
  out["schemas"] = schemas;
  out["refused"] = refused;
  out["vocabulary"] = trie->vocab_size();
  out["compile"] = compile_times.summary();
  out["compile"]["p90_us"] =
      compile_times.micros.empty()
          ? 0.0
          : compile_times
                .micros[std::min(compile_times.micros.size() - 1, compile_times.micros.size() * 9 / 10)];
  if (!options.cold) {
    out["background"] = background.summary();
    out["background"]["unfinished"] = unfinished;
  }
  out["masks_first_use"] = first.summary();
  out["masks_second_use"] = again.summary();
  for (const Slow& x : slowest)
    out["slowest"].push_back({{"us", x.us},
                              {"line", x.line},
                              {"use", x.use},
                              {"token", x.token},
                              {"instance", x.text.substr(0, 200)}});
  if (options.refusals) {
    out["refusals"] = std::move(refusals);
    out["compiled"] = std::move(compiled);
  }
  fmt::print("{}\n", out.dump(2));
}

}  // namespace millrace::cli
