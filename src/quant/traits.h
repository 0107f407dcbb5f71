// What each storage type looks like: how many elements make a block, how many bytes a block has, and the
// plain reference codec. Formats are ggml's (block structs in quant/blocks.h); decoding is bit for bit that
// of the `gguf` Python package.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"

namespace millrace::quant {

struct Traits {
  DType type;
  int block_elements;  ///< elements in a block; 1 for plain types
  int block_bytes;     ///< bytes of a block

  /// Decodes `count` elements (a multiple of block_elements). Null for types that hold no weights (integers).
  void (*decode)(const void* source, float* destination, int64_t count);

  /// Encodes `count` elements (a multiple of block_elements). `importance`, when not null, has one weight per
  /// element (an importance matrix row) that the rounding minimises the error under. Null where there is no
  /// encoder.
  void (*encode)(const float* source, void* destination, int64_t count, const float* importance);
};

const Traits& traits(DType type);

/// Bytes of a row of `elements`; nullopt when it is not a whole number of blocks or the size overflows.
std::optional<uint64_t> row_bytes(DType type, uint64_t elements);

/// True for types decode() exists for and that are blocks (not F32/F16/BF16/FP8).
bool is_quantized(DType type);

}  // namespace millrace::quant
