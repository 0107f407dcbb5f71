#include "cli/model_template.h"

#include <fstream>
#include <sstream>

#include "core/error.h"
#include "loaders/checkpoint.h"

namespace millrace::cli {

text::TemplateSource template_from_metadata(const loaders::Metadata& metadata) {
  text::TemplateSource out;
  constexpr std::string_view kKey = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.entries()) {
    if (std::string_view(key).substr(0, kKey.size()) != kKey) continue;
    const auto* source = std::get_if<std::string>(&value);
    if (source == nullptr) continue;
    if (key.size() == kKey.size()) {
      out.templates.emplace_back("default", *source);
    } else if (key[kKey.size()] == '.') {
      out.templates.emplace_back(key.substr(kKey.size() + 1), *source);
    }
  }
  const std::vector<std::string>* tokens = metadata.find_strings("tokenizer.ggml.tokens");
  constexpr std::pair<const char*, const char*> kTokens[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},     {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"}, {"sep_token", "tokenizer.ggml.seperator_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"}, {"cls_token", "tokenizer.ggml.cls_token_id"},
      {"mask_token", "tokenizer.ggml.mask_token_id"}};
  for (const auto& [name, key] : kTokens) {
    const auto id = metadata.find_int(key);
    if (tokens == nullptr || !id || *id < 0 || *id >= static_cast<int64_t>(tokens->size())) continue;
    out.special_tokens.emplace_back(name, (*tokens)[static_cast<size_t>(*id)]);
  }
  return out;
}

text::TemplateSource open_template_source(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return text::template_from_directory(path);
  require(std::filesystem::exists(path), ErrorCode::kNotFound,
          "{} does not exist: expected a GGUF file, a model's directory or a .jinja file", path.string());
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {};
  in.read(magic, sizeof magic);
  if (in.gcount() == 4 && std::string_view(magic, 4) == "GGUF")
    return template_from_metadata(loaders::open_checkpoint(path).metadata);
  const std::string extension = path.extension().string();
  require(extension != ".gguf", ErrorCode::kInvalidFile, "{} does not begin with 'GGUF'", path.string());
  // Pipes cannot be read twice: what was looked at stays in front.
  std::ostringstream source;
  source << std::string_view(magic, static_cast<size_t>(in.gcount()));
  if (in.gcount() == 4) source << in.rdbuf();
  require(in.good() || in.eof(), ErrorCode::kIo, "cannot read {}", path.string());
  text::TemplateSource out;
  out.templates.emplace_back("default", std::move(source).str());
  return out;
}

}  // namespace millrace::cli
