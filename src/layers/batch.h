// The packed, ragged step as a model sees it. No padding anywhere. Lives in layers (DESIGN has it in models)
// because attention and state-space layers read it, and the link order lets models see layers, not the other
// way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::layers {

struct BatchSequence {
  int32_t query_begin = 0;     ///< first row of this sequence in the batch
  int32_t query_length = 0;    ///< rows: 1 for a decode, more for a prefill chunk or draft tokens
  int32_t context_length = 0;  ///< tokens in the cache after this step: computed so far + query_length
  /// One table per cache group: block_tables[g][i] is the block with tokens [i * block_size, (i+1) *
  /// block_size) of the sequence, or -1 where a window has let it go. For a recurrent group the table has one
  /// entry, the state's slot.
  std::span<const std::span<const int32_t>> block_tables;
  /// Tokens known so far, those of later chunks included: rotations that depend on the text's length go by
  /// it, so that a prompt in chunks rotates as one at once. 0: context_length.
  int32_t text_length = 0;
};

struct Batch {
  std::span<const int32_t> tokens;     ///< [rows]
  std::span<const int32_t> positions;  ///< [rows], position of each row in its sequence
  std::span<const BatchSequence> sequences;
  std::span<const int32_t> logit_rows;  ///< rows whose logits are wanted, ascending
  /// The first rows, so many, are of prompts. Their products may be made by other kernels than an answer's
  /// (ops/matmul.h), so whoever builds a batch says it by a row's place in its text, never by what else the
  /// batch has: then company changes no result.
  int64_t prompt_rows = 0;
  int64_t num_rows() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace millrace::layers
