// From a checkpoint's metadata to its tokenizer: the one place where loaders and text meet.
#pragma once

#include "loaders/metadata.h"
#include "text/vocabulary_data.h"

namespace millrace::cli {

/// Error(kInvalidFile) when the metadata have no tokenizer.
inline text::VocabularyData vocabulary_from(const loaders::Metadata& metadata) {
  return text::vocabulary_from(text::metadata_reader(metadata));
}

inline bool has_vocabulary(const loaders::Metadata& metadata) {
  return text::has_vocabulary(text::metadata_reader(metadata));
}

}  // namespace millrace::cli
