#include "text/vocabulary_data.h"

#include "core/error.h"

namespace millrace::text {

bool has_vocabulary(const MetadataReader& metadata) {
  return metadata.find_string("tokenizer.ggml.model") != nullptr &&
         metadata.find_strings("tokenizer.ggml.tokens") != nullptr;
}

VocabularyData vocabulary_from(const MetadataReader& metadata) {
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  const auto string = [&](const std::string& full) {
    const std::string* value = metadata.find_string(full);
    return value != nullptr ? *value : std::string();
  };
  VocabularyData data;
  data.origin = metadata.origin;
  data.model = string(key("model"));
  require(!data.model.empty(), ErrorCode::kInvalidFile,
          "{}: no tokenizer here (the key tokenizer.ggml.model is missing)", metadata.origin);
  data.pre = string(key("pre"));
  data.name = string("general.name");
  data.architecture = string("general.architecture");
  if (const auto* tokens = metadata.find_strings(key("tokens"))) data.tokens = *tokens;
  if (const auto* merges = metadata.find_strings(key("merges"))) data.merges = *merges;
  if (auto scores = metadata.find_floats(key("scores"))) data.scores = std::move(*scores);
  if (const auto types = metadata.find_ints(key("token_type"))) {
    data.types.reserve(types->size());
    for (const int64_t type : *types)
      data.types.push_back(type >= 0 && type <= 6 ? static_cast<int32_t>(type) : 1);
  }
  if (const auto charsmap = metadata.find_ints(key("precompiled_charsmap"))) {
    data.precompiled_charsmap.reserve(charsmap->size());
    for (const int64_t byte : *charsmap) {
      require(byte >= -128 && byte <= 255, ErrorCode::kInvalidFile, "{}: {} holds {}, expected bytes",
              metadata.origin, key("precompiled_charsmap"), byte);
      data.precompiled_charsmap.push_back(static_cast<uint8_t>(byte));
    }
  }

  // Ids are unsigned in the file, and all bits set means none; what lies beyond the vocabulary is dropped
  // later.
  const auto id = [&](const char* name) -> std::optional<TokenId> {
    const std::optional<int64_t> value = metadata.find_int(key(name));
    if (!value || *value < 0 || *value > INT32_MAX) return std::nullopt;
    return static_cast<TokenId>(*value);
  };
  data.bos = id("bos_token_id");
  data.eos = id("eos_token_id");
  data.eot = id("eot_token_id");
  data.eom = id("eom_token_id");
  data.unknown = id("unknown_token_id");
  data.separator = id("seperator_token_id");  // misspelt so in the format
  data.padding = id("padding_token_id");
  data.mask = id("mask_token_id");
  data.cls = id("cls_token_id");
  data.add_bos = metadata.find_bool(key("add_bos_token"));
  data.add_eos = metadata.find_bool(key("add_eos_token"));
  data.add_space_prefix = metadata.find_bool(key("add_space_prefix"));
  data.remove_extra_whitespaces = metadata.find_bool(key("remove_extra_whitespaces"));
  data.whitespace_as_suffix = metadata.find_bool(key("treat_whitespace_as_suffix"));
  data.lowercase = metadata.find_bool(key("normalizer.lowercase"));
  data.strip_accents = metadata.find_bool(key("normalizer.strip_accents"));
  return data;
}

}  // namespace millrace::text
