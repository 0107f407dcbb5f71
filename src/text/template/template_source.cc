#include "text/template/template_source.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"

namespace millrace::text {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr uintmax_t kMaxBytes = 64u << 20;

std::string read_text(const fs::path& path) {
  std::error_code ec;
  const uintmax_t size = fs::file_size(path, ec);
  require(!ec, ErrorCode::kIo, "cannot read {}: {}", path.string(), ec.message());
  require(size <= kMaxBytes, ErrorCode::kInvalidFile, "{} has {} bytes: expected at most {}", path.string(),
          size, kMaxBytes);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  require(in.good(), ErrorCode::kIo, "cannot read {}", path.string());
  return std::move(text).str();
}

Json read_object(const fs::path& path) {
  Json json;
  try {
    json = Json::parse(read_text(path));
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kInvalidFile, "{} is not valid JSON: {}", path.string(), e.what());
  }
  require(json.is_object(), ErrorCode::kInvalidFile, "{}: expected a JSON object", path.string());
  return json;
}

void add(TemplateSource& out, const std::string& name, std::string source) {
  for (const auto& [known, old] : out.templates)
    if (known == name) return;  // the one found first is preferred
  out.templates.emplace_back(name, std::move(source));
}

/// "chat_template": one text, or a list of {"name", "template"}.
void add_member(TemplateSource& out, const Json& json, const fs::path& path) {
  const auto at = json.find("chat_template");
  if (at == json.end() || at->is_null()) return;
  if (at->is_string()) {
    add(out, "default", at->get<std::string>());
    return;
  }
  require(at->is_array(), ErrorCode::kInvalidFile,
          "{}: 'chat_template' must be a text or a list of named texts", path.string());
  for (const Json& entry : *at) {
    const bool good = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                      entry.contains("template") && entry["template"].is_string();
    require(good, ErrorCode::kInvalidFile,
            "{}: every entry of 'chat_template' needs the texts 'name' and 'template'", path.string());
    add(out, entry["name"].get<std::string>(), entry["template"].get<std::string>());
  }
}

void add_special_tokens(TemplateSource& out, const Json& json) {
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto at = json.find(name);
    if (at == json.end()) continue;
    if (at->is_string()) out.special_tokens.emplace_back(name, at->get<std::string>());
    if (at->is_object() && at->contains("content") && at->at("content").is_string())
      out.special_tokens.emplace_back(name, at->at("content").get<std::string>());
  }
}

}  // namespace

const std::string* TemplateSource::choose(bool has_tools) const {
  const std::string* chosen = nullptr;
  for (const auto& [name, source] : templates) {
    if (has_tools && name == "tool_use") return &source;
    if (name == "default") chosen = &source;
  }
  if (chosen == nullptr && templates.size() == 1) chosen = &templates[0].second;
  return chosen;
}

TemplateSource template_from_directory(const fs::path& folder) {
  TemplateSource out;
  if (fs::is_regular_file(folder / "chat_template.jinja"))
    add(out, "default", read_text(folder / "chat_template.jinja"));
  const fs::path more = folder / "additional_chat_templates";
  if (fs::is_directory(more)) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(more))
      if (entry.path().extension() == ".jinja" && entry.is_regular_file()) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) add(out, path.stem().string(), read_text(path));
  }
  const fs::path legacy = folder / "chat_template.json";
  if (fs::is_regular_file(legacy)) add_member(out, read_object(legacy), legacy);
  const fs::path config = folder / "tokenizer_config.json";
  if (fs::is_regular_file(config)) {
    const Json json = read_object(config);
    add_member(out, json, config);
    add_special_tokens(out, json);
  }
  return out;
}

}  // namespace millrace::text
