// Opens the tokenizer of a Hugging Face directory, whichever of its forms is there.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/hugging_face/json_node.h"
#include "text/hugging_face/json_tokenizer.h"
#include "text/hugging_face/sentence_piece.h"
#include "text/tokenizer.h"

namespace millrace::text {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ErrorCode::kIo, "{}: the file cannot be opened", path.string());
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  require(!in.bad(), ErrorCode::kIo, "{}: the file cannot be read", path.string());
  return bytes;
}

nlohmann::json read_json(const fs::path& path) {
  try {
    return nlohmann::json::parse(read_all(path));
  } catch (const nlohmann::json::parse_error& e) {
    fail(ErrorCode::kInvalidFile, "{}: no valid JSON at byte {}", path.string(), e.byte);
  }
}

std::optional<nlohmann::json> read_json_if_there(const fs::path& path) {
  if (!fs::is_regular_file(path)) return std::nullopt;
  return read_json(path);
}

/// A token in a settings file: its text, or an object with "content".
std::string token_text(const JsonNode& node, const char* key) {
  const std::optional<JsonNode> found = node.find(key);
  if (!found) return "";
  return found->is_object() ? found->at("content").string() : found->string();
}

void read_end_ids(const JsonNode& node, std::vector<TokenId>& ids) {
  const std::optional<JsonNode> found = node.find("eos_token_id");
  if (!found) return;
  if (!found->is_array()) {
    ids.push_back(found->id());
    return;
  }
  for (const JsonNode& id : found->items()) ids.push_back(id.id());
}

TokenizerSettings read_settings(const fs::path& directory) {
  TokenizerSettings settings;
  const auto with = [&](const char* name, const auto& read) {
    const fs::path path = directory / name;
    const std::optional<nlohmann::json> json = read_json_if_there(path);
    if (!json) return;
    const JsonNode node(*json, path.string(), "");
    if (!node.is_object()) node.bad("is not an object");
    read(node);
  };
  const auto tokens = [&](const JsonNode& node) {
    if (settings.bos.empty()) settings.bos = token_text(node, "bos_token");
    if (settings.eos.empty()) settings.eos = token_text(node, "eos_token");
    if (settings.unknown.empty()) settings.unknown = token_text(node, "unk_token");
    if (settings.padding.empty()) settings.padding = token_text(node, "pad_token");
  };
  with("tokenizer_config.json", [&](const JsonNode& node) {
    tokens(node);
    if (const auto add = node.find("add_bos_token")) settings.add_bos = add->boolean();
    if (const auto add = node.find("add_eos_token")) settings.add_eos = add->boolean();
  });
  with("special_tokens_map.json", tokens);
  with("generation_config.json", [&](const JsonNode& node) { read_end_ids(node, settings.end_ids); });
  with("config.json", [&](const JsonNode& node) { read_end_ids(node, settings.end_ids); });
  return settings;
}

/// A vocabulary of GPT-2's time: tokens in one file, merges in the other.
nlohmann::json gpt2_files(const fs::path& directory) {
  nlohmann::json merges = nlohmann::json::array();
  std::istringstream lines(read_all(directory / "merges.txt"));
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line.compare(0, 9, "#version:") != 0) merges.push_back(line);
  return {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"}, {"vocab", read_json(directory / "vocab.json")}, {"merges", std::move(merges)}}}};
}

/// A SentencePiece file with what the settings say about it.
VocabularyData sentence_piece_vocabulary(const fs::path& path, const TokenizerSettings& settings) {
  VocabularyData data = parse_sentence_piece(read_all(path), path.string());
  const auto place = [&](const std::string& token, std::optional<TokenId>& id) {
    const auto it = std::find(data.tokens.begin(), data.tokens.end(), token);
    if (!token.empty() && it != data.tokens.end()) id = static_cast<TokenId>(it - data.tokens.begin());
  };
  place(settings.bos, data.bos);
  place(settings.eos, data.eos);
  data.add_bos = settings.add_bos;
  data.add_eos = settings.add_eos;
  return data;
}

enum class Form { kJson, kSentencePiece, kGpt2Files };

Form find_form(const fs::path& directory) {
  require(fs::is_directory(directory), ErrorCode::kNotFound, "{}: no such directory", directory.string());
  if (fs::is_regular_file(directory / "tokenizer.json")) return Form::kJson;
  if (fs::is_regular_file(directory / "tokenizer.model")) return Form::kSentencePiece;
  if (fs::is_regular_file(directory / "vocab.json") && fs::is_regular_file(directory / "merges.txt"))
    return Form::kGpt2Files;
  fail(ErrorCode::kNotFound, "{}: no tokenizer here, expected tokenizer.json or tokenizer.model",
       directory.string());
}

}  // namespace

std::unique_ptr<Tokenizer> open_hugging_face_tokenizer(const std::string& directory) {
  const fs::path path = directory;
  const Form form = find_form(path);
  const TokenizerSettings settings = read_settings(path);
  if (form == Form::kSentencePiece)
    return make_tokenizer(sentence_piece_vocabulary(path / "tokenizer.model", settings));
  if (form == Form::kGpt2Files)
    return make_json_tokenizer(gpt2_files(path), (path / "vocab.json").string(), settings);
  const fs::path file = path / "tokenizer.json";
  return make_json_tokenizer(read_json(file), file.string(), settings);
}

VocabularyData hugging_face_vocabulary(const std::string& directory) {
  const fs::path path = directory;
  const Form form = find_form(path);
  const TokenizerSettings settings = read_settings(path);
  if (form == Form::kSentencePiece) return sentence_piece_vocabulary(path / "tokenizer.model", settings);
  if (form == Form::kGpt2Files)
    return describe_json_tokenizer(gpt2_files(path), (path / "vocab.json").string(), settings);
  const fs::path file = path / "tokenizer.json";
  return describe_json_tokenizer(read_json(file), file.string(), settings);
}

std::optional<std::string> hugging_face_chat_template(const std::string& directory) {
  const fs::path path = directory;
  if (fs::is_regular_file(path / "chat_template.jinja")) return read_all(path / "chat_template.jinja");
  const auto from = [](const JsonNode& node) -> std::optional<std::string> {
    const std::optional<JsonNode> found = node.is_object() ? node.find("chat_template") : std::nullopt;
    if (!found) return std::nullopt;
    if (found->is_string()) return found->string();
    // Several with names: the one called "default", else the first.
    std::optional<std::string> first;
    for (const JsonNode& item : found->items()) {
      const std::string& source = item.at("template").string();
      if (item.text("name") == "default") return source;
      if (!first) first = source;
    }
    return first;
  };
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const std::optional<nlohmann::json> json = read_json_if_there(path / name);
    if (!json) continue;
    if (auto source = from(JsonNode(*json, (path / name).string(), ""))) return source;
  }
  return std::nullopt;
}

}  // namespace millrace::text
