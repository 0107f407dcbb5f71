#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace millrace::text {

/// Reads SentencePiece's model file (a protocol buffer, sentencepiece_model.proto). Error(kInvalidFile)
/// naming `origin` and the byte where it breaks its form, kUnsupported for model types other than BPE and
/// Unigram.
VocabularyData parse_sentence_piece(std::string_view bytes, const std::string& origin);

}  // namespace millrace::text
