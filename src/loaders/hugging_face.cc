// Hugging Face directories: config.json, generation_config.json, and safetensors in one file or in shards
// with an index.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "core/error.h"
#include "loaders/checkpoint.h"
#include "loaders/json_metadata.h"
#include "loaders/safetensors.h"

namespace millrace::loaders {
namespace {

// Larger than any index or configuration seen; a device or a runaway file is not read into memory.
constexpr uintmax_t kMaxJsonBytes = 64u << 20;

std::string read_text(const std::filesystem::path& path) {
  std::error_code ec;
  const uintmax_t size = std::filesystem::file_size(path, ec);
  require(!ec, ErrorCode::kNotFound, "cannot read {}: {}", path.string(), ec.message());
  require(size <= kMaxJsonBytes, ErrorCode::kInvalidFile, "{} has {} bytes: expected at most {}",
          path.string(), size, kMaxJsonBytes);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  require(in.good(), ErrorCode::kIo, "cannot read {}", path.string());
  return std::move(text).str();
}

void read_shards(const std::filesystem::path& folder, const std::filesystem::path& index_path,
                 Checkpoint& out) {
  Metadata index(index_path.string());
  add_json(index, read_text(index_path), index_path);
  constexpr std::string_view kMap = "weight_map.";
  std::map<std::string, std::string> shard_of;
  std::set<std::string> shards;
  for (const auto& [key, value] : index.entries()) {
    if (key.compare(0, kMap.size(), kMap) != 0) continue;
    const auto* name = std::get_if<std::string>(&value);
    require(name && !name->empty() && name->find('/') == std::string::npos, ErrorCode::kInvalidFile,
            "{}: '{}' is not the name of a file beside it", index_path.string(), key);
    shard_of[key.substr(kMap.size())] = *name;
    shards.insert(*name);
  }
  require(!shards.empty(), ErrorCode::kInvalidFile,
          "{}: 'weight_map' is missing or empty: expected tensor names and files", index_path.string());
  std::map<std::string, std::string> found_in;
  for (const std::string& shard : shards) {
    require(std::filesystem::exists(folder / shard), ErrorCode::kNotFound,
            "{}: shard '{}' is missing: {} names it", folder.string(), shard, index_path.filename().string());
    const size_t first = out.tensors.size();
    read_safetensors(folder / shard, out.tensors);
    for (size_t i = first; i < out.tensors.size(); ++i) found_in.emplace(out.tensors[i].name, shard);
  }
  for (const auto& [tensor, shard] : shard_of) {
    const auto at = found_in.find(tensor);
    require(at != found_in.end() && at->second == shard, ErrorCode::kInvalidFile,
            "{}: tensor '{}' is not in '{}' where the index says it is", index_path.string(), tensor, shard);
  }
}

}  // namespace

Checkpoint open_hugging_face(const std::filesystem::path& path) {
  Checkpoint out;
  out.format = Format::kHuggingFace;
  out.path = path;
  const auto config = path / "config.json";
  require(std::filesystem::exists(config), ErrorCode::kNotFound,
          "{} has no config.json: expected a GGUF file or a Hugging Face model directory", path.string());
  out.metadata = Metadata(config.string());
  add_json(out.metadata, read_text(config), config);
  const auto generation = path / "generation_config.json";
  if (std::filesystem::exists(generation))
    add_json(out.metadata, read_text(generation), generation, "generation.");
  const auto index = path / "model.safetensors.index.json", single = path / "model.safetensors";
  if (std::filesystem::exists(index)) {
    read_shards(path, index, out);
  } else if (std::filesystem::exists(single)) {
    read_safetensors(single, out.tensors);
  } else {
    bool others = false;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      const auto extension = entry.path().extension();
      others = others || extension == ".bin" || extension == ".pt" || extension == ".pth";
    }
    fail(ErrorCode::kNotFound,
         "{} has no model.safetensors{}: expected it, or shards with model.safetensors.index.json",
         path.string(), others ? " (only PyTorch pickles, which can run code and are not read)" : "");
  }
  out.build_index();
  return out;
}

}  // namespace millrace::loaders
