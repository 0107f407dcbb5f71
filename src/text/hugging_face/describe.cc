// A tokenizer.json as GGUF keeps a vocabulary, where GGUF has a form for it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/hugging_face/components.h"
#include "text/hugging_face/json_node.h"
#include "text/hugging_face/json_tokenizer.h"
#include "text/pretokenizer.h"

namespace millrace::text {
namespace {

/// Objects of a component and all that it is a Sequence of, flat.
std::vector<JsonNode> flatten(const JsonNode& node, const char* list, int depth = 0) {
  if (depth > kMaxNesting) node.bad("is nested too deeply");
  std::vector<JsonNode> out;
  if (node.at("type").string() != "Sequence") return {node};
  for (const JsonNode& item : node.at(list).items())
    for (JsonNode& part : flatten(item, list, depth + 1)) out.push_back(std::move(part));
  return out;
}

std::vector<JsonNode> parts_of(const JsonNode& root, const char* key, const char* list) {
  const std::optional<JsonNode> node = root.find(key);
  return node ? flatten(*node, list) : std::vector<JsonNode>{};
}

bool has_type(const std::vector<JsonNode>& parts, std::string_view type) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const JsonNode& part) { return part.at("type").string() == type; });
}

[[noreturn]] void no_form(const JsonNode& root, const std::string& what) {
  fail(ErrorCode::kUnsupported, "{} cannot be written as GGUF: {}", root.place(), what);
}

/// Patterns of the pre-tokeniser in the words of pre_rules.cc: what Split, Digits and ByteLevel stand for.
std::vector<std::string> patterns_of(const JsonNode& root, const std::vector<JsonNode>& parts) {
  std::vector<std::string> patterns;
  for (const JsonNode& part : parts) {
    const std::string type = part.at("type").string();
    if (type == "ByteLevel") {
      if (part.flag("add_prefix_space", true)) no_form(root, "a space is put before the text");
      if (part.flag("use_regex", true)) patterns.emplace_back(find_pre_rule("gpt-2")->patterns[0]);
    } else if (type == "Digits") {
      patterns.emplace_back(part.flag("individual_digits", false) ? "\\p{N}" : "\\p{N}+");
    } else if (type == "Split") {
      const std::string behavior = part.at("behavior").string();
      const JsonNode pattern = part.at("pattern");
      const auto regex = pattern.find("Regex");
      const bool isolated = behavior == "Isolated" || (behavior == "Removed" && part.flag("invert", false));
      if (!regex || !isolated)
        no_form(root, "its pre-tokeniser splits at something else than a regular expression");
      patterns.push_back(regex->string());
    } else {
      no_form(root, "it has the pre-tokeniser " + type);
    }
  }
  return patterns;
}

/// Whether two patterns do the same: equal text, or one scanner for both.
bool same_pattern(std::string_view a, std::string_view b) {
  if (a == b) return true;
  const std::optional<ScanRule> left = scan_rule_of(a), right = scan_rule_of(b);
  if (!left || !right) return false;
  return left->shape == right->shape && left->max_digits == right->max_digits &&
         left->contractions == right->contractions && left->marks_are_letters == right->marks_are_letters &&
         left->slash_tail == right->slash_tail && left->han_apart == right->han_apart;
}

std::string find_pre_name(const JsonNode& root, const std::vector<std::string>& patterns, bool whole_words) {
  for (const std::string_view name : pre_rule_names()) {
    const PreRule& rule = *find_pre_rule(name);
    if (rule.plain_utf8 || rule.whole_words != whole_words || rule.patterns.size() != patterns.size())
      continue;
    if (std::equal(patterns.begin(), patterns.end(), rule.patterns.begin(), same_pattern))
      return std::string(name);
  }
  no_form(root, "no published pre-tokeniser name stands for its patterns");
}

/// GGUF's SentencePiece form merges by score; the rank of the merge that makes a token is its score.
void scores_from_merges(const JsonNode& root, VocabularyData& data) {
  data.scores.assign(data.tokens.size(), 0.0f);
  std::map<std::string, size_t> ids;
  for (size_t i = 0; i < data.tokens.size(); ++i) ids.emplace(data.tokens[i], i);
  std::vector<bool> scored(data.tokens.size());
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    std::string joined = data.merges[rank];
    joined.erase(joined.find(' ', 1), 1);
    const auto it = ids.find(joined);
    if (it == ids.end()) no_form(root, "a merge makes no token");
    if (scored[it->second]) continue;
    scored[it->second] = true;
    data.scores[it->second] = -static_cast<float>(rank) - 1.0f;
  }
  data.merges.clear();
}

void describe_bpe(const JsonNode& root, VocabularyData& data) {
  const std::vector<JsonNode> splitters = parts_of(root, "pre_tokenizer", "pretokenizers");
  const std::vector<JsonNode> normalizers = parts_of(root, "normalizer", "normalizers");
  const JsonNode model = root.at("model");
  if (has_type(splitters, "ByteLevel")) {
    for (const JsonNode& part : normalizers)
      if (part.at("type").string() != "NFC")
        no_form(root, "it has the normaliser " + part.at("type").string());
    data.model = "gpt2";
    data.pre = find_pre_name(root, patterns_of(root, splitters), model.flag("ignore_merges", false));
    return;
  }
  const bool marks = has_type(splitters, "Metaspace") || has_type(normalizers, "Replace");
  if (!marks || !model.flag("byte_fallback", false))
    no_form(root, "its BPE is neither byte-level nor with byte fallback");
  data.model = "llama";
  data.pre = "default";
  data.add_space_prefix = has_type(normalizers, "Prepend");
  for (const JsonNode& part : splitters)
    if (part.at("type").string() == "Metaspace" && part.text("prepend_scheme", "always") != "never")
      data.add_space_prefix = true;
  scores_from_merges(root, data);
}

void describe_unigram(const JsonNode& root, VocabularyData& data) {
  data.model = "t5";
  data.pre = "default";
  data.add_space_prefix = false;
  data.remove_extra_whitespaces = false;
  for (const JsonNode& part : parts_of(root, "pre_tokenizer", "pretokenizers")) {
    const std::string type = part.at("type").string();
    if (type == "Metaspace")
      data.add_space_prefix = part.text("prepend_scheme", "always") != "never";
    else if (type == "WhitespaceSplit")
      data.remove_extra_whitespaces = true;
    else
      no_form(root, "it has the pre-tokeniser " + type);
  }
  for (const JsonNode& part : parts_of(root, "normalizer", "normalizers")) {
    const std::string type = part.at("type").string();
    if (type == "Precompiled") {
      data.precompiled_charsmap = precompiled_charsmap(part);
    } else if (type == "Replace") {
      const auto regex = part.at("pattern").find("Regex");
      if (!regex || regex->string() != " {2,}")
        no_form(root, "its normaliser replaces something else than spaces");
      data.remove_extra_whitespaces = true;
    } else if (type != "Strip") {
      no_form(root, "it has the normaliser " + type);
    }
  }
}

}  // namespace

VocabularyData describe_json_tokenizer(const nlohmann::json& json, const std::string& origin,
                                       const TokenizerSettings& settings) {
  const JsonNode root(json, origin, "");
  const std::unique_ptr<TokenModel> model = make_token_model(root.at("model"));
  VocabularyData data;
  data.origin = origin;
  data.tokens = model->tokens();
  data.unknown = model->unknown();
  if (!model->describe(data)) no_form(root, "its model has no form there");
  const bool bytes = model->byte_fallback();
  const auto type_of = [&](const std::string& token) {
    return bytes && token.size() == 6 && token.compare(0, 3, "<0x") == 0 ? 6 : 1;
  };
  for (const std::string& token : data.tokens) data.types.push_back(token.empty() ? 5 : type_of(token));
  if (const auto added = root.find("added_tokens")) {
    for (const JsonNode& item : added->items()) {
      const auto id = static_cast<size_t>(item.at("id").id());
      if (id >= data.tokens.size() + added->size() + (size_t{1} << 16))
        item.bad("has an id far beyond the vocabulary");
      if (id >= data.tokens.size()) {
        data.tokens.resize(id + 1);
        data.types.resize(id + 1, 5);
      }
      data.tokens[id] = item.at("content").string();
      data.types[id] = item.flag("special", false) ? 3 : 4;
    }
  }
  for (size_t i = 0; i < data.tokens.size(); ++i)
    if (data.tokens[i].empty()) data.tokens[i] = "[unused" + std::to_string(i) + "]";
  if (data.unknown && data.types[static_cast<size_t>(*data.unknown)] != 4)
    data.types[static_cast<size_t>(*data.unknown)] = 2;

  const JsonNode node = root.at("model");
  if (data.merges.empty() && !data.scores.empty())
    describe_unigram(root, data);
  else
    describe_bpe(root, data);
  data.scores.resize(data.scores.empty() ? 0 : data.tokens.size(), 0.0f);

  const std::unique_ptr<Tokenizer> tokenizer = make_json_tokenizer(json, origin, settings);
  data.bos = tokenizer->bos();
  data.eos = tokenizer->eos();
  data.add_bos = tokenizer->adds_bos();
  data.add_eos = tokenizer->adds_eos();
  if (!settings.padding.empty()) data.padding = tokenizer->find(settings.padding);
  return data;
}

}  // namespace millrace::text
