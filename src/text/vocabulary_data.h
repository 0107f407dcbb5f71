// Fills VocabularyData from the "tokenizer.ggml.*" keys of any key-value source. This folder knows no weight
// formats; the source comes as a few functions, or as any class with the same named reads
// (`metadata_reader`).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace millrace::text {

struct MetadataReader {
  std::string origin;  ///< file name for errors
  std::function<const std::string*(std::string_view key)> find_string;
  std::function<const std::vector<std::string>*(std::string_view key)> find_strings;
  std::function<std::optional<int64_t>(std::string_view key)> find_int;
  std::function<std::optional<bool>(std::string_view key)> find_bool;
  std::function<std::optional<std::vector<float>>(std::string_view key)> find_floats;
  std::function<std::optional<std::vector<int64_t>>(std::string_view key)> find_ints;
};

/// Error(kInvalidFile) when there is no tokenizer or a value does not fit.
VocabularyData vocabulary_from(const MetadataReader& metadata);

/// Whether the source describes a tokenizer at all.
bool has_vocabulary(const MetadataReader& metadata);

/// Reader over `metadata`, which must outlive it.
template <typename Metadata>
MetadataReader metadata_reader(const Metadata& metadata) {
  return {metadata.origin(),
          [&metadata](std::string_view key) { return metadata.find_string(key); },
          [&metadata](std::string_view key) { return metadata.find_strings(key); },
          [&metadata](std::string_view key) { return metadata.find_int(key); },
          [&metadata](std::string_view key) { return metadata.find_bool(key); },
          [&metadata](std::string_view key) { return metadata.find_floats(key); },
          [&metadata](std::string_view key) { return metadata.find_ints(key); }};
}

}  // namespace millrace::text
