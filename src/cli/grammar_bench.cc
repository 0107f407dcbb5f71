#include "cli/grammar_bench.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>

#include "core/error.h"
#include "grammar/compiler.h"
#include "grammar/mask.h"

namespace millrace::cli {
namespace {

double micros_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
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
                  MaskTimes& times) {
  const auto& trie = g->trie();
  grammar::Matcher m(g);
  std::vector<uint64_t> mask(m.mask_words());
  size_t tokens = 0;
  for (size_t at = 0;; ++tokens) {
    const auto start = std::chrono::steady_clock::now();
    m.fill_mask(mask);
    times.add(micros_since(start));
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
  MaskTimes compile_times, first, again;
  int64_t schemas = 0, refused = 0, slowest = 0;
  double slowest_us = 0, most_us = 0;
  int64_t longest = 0;
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
    const auto start = std::chrono::steady_clock::now();
    try {
      g = grammar::compile(source, trie);
    } catch (const Error&) {
      ++refused;
      continue;
    }
    compile_times.add(micros_since(start));
    const auto begun = std::chrono::steady_clock::now();
    for (MaskTimes* times : {&first, &again})
      for (const auto& value : j.value("valid", nlohmann::ordered_json::array())) {
        std::string text;
        if (options.compact) {
          text = value.dump();
        } else {
          write_spaced(value, text);
        }
        const size_t before = times->micros.size();
        time_masks(g, text, *times);
        for (size_t i = before; i < times->micros.size(); ++i)
          if (times->micros[i] > slowest_us) slowest_us = times->micros[i], slowest = number;
      }
    if (micros_since(begun) > most_us) most_us = micros_since(begun), longest = number;
  }
  nlohmann::json out;
  out["schemas"] = schemas;
  out["refused"] = refused;
  out["vocabulary"] = trie->vocab_size();
  out["compile"] = compile_times.summary();
  out["compile"]["p90_us"] =
      compile_times.micros.empty()
          ? 0.0
          : compile_times.micros[std::min(compile_times.micros.size() - 1, compile_times.micros.size() * 9 / 10)];
  out["masks_first_use"] = first.summary();
  out["masks_second_use"] = again.summary();
  out["slowest_mask"] = {{"line", slowest}, {"us", slowest_us}};
  out["longest_schema"] = {{"line", longest}, {"ms", most_us / 1e3}};
  fmt::print("{}\n", out.dump(2));
}

}  // namespace millrace::cli
