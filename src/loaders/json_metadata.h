// JSON files of a checkpoint, read once into flat key-value metadata.
#pragma once

#include <filesystem>
#include <string_view>

#include "loaders/metadata.h"

namespace millrace::loaders {

/// Adds every value of the JSON object in `text` to `out` under `prefix` + its path (objects join keys with
/// '.', arrays of objects with the index; null is left out; an array of scalars is one value).
/// Error(kInvalidFile) naming `file` for malformed JSON, a key that stands twice in one object, nesting
/// beyond 64, or a text that is no object.
void add_json(Metadata& out, std::string_view text, const std::filesystem::path& file,
              std::string_view prefix = "");

}  // namespace millrace::loaders
