// The codec functions that quant/traits.cc puts into its table; one .cc file a family defines them. Inside
// quant only.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace millrace::quant {

using DecodeFunction = void (*)(const void*, float*, int64_t);
using EncodeFunction = void (*)(const float*, void*, int64_t, const float*);

struct Codec {
  int block_elements;
  int block_bytes;
  DecodeFunction decode;
  EncodeFunction encode;
};

// Each returns the codec of a type of its family; nullptr decode for a type that is not its own.
Codec plain_codec(DType type);    // plain.cc: F32 F16 BF16 F64 F8, integers
Codec legacy_codec(DType type);   // legacy.cc: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_1
Codec k_codec(DType type);        // k_quants.cc: Q2_K to Q8_K
Codec iq_codec(DType type);       // iq.cc: IQ1 to IQ4
Codec ternary_codec(DType type);  // ternary.cc: TQ1_0 TQ2_0
Codec fp4_codec(DType type);      // fp4.cc: MXFP4 NVFP4

/// Encoder of an i-quant (iq_encode.cc).
EncodeFunction iq_encoder(DType type);

/// A decoder over whole blocks from one for a single block.
template <typename Block, int kElements, void (*kDecode)(const Block&, float*)>
void decode_blocks(const void* source, float* destination, int64_t count) {
  const auto* block = static_cast<const Block*>(source);
  for (int64_t i = 0; i < count / kElements; ++i) kDecode(block[i], destination + i * kElements);
}

/// The same for an encoder; `importance` stays null when there is none.
template <typename Block, int kElements, void (*kEncode)(const float*, Block&, const float*)>
void encode_blocks(const float* source, void* destination, int64_t count, const float* importance) {
  auto* block = static_cast<Block*>(destination);
  for (int64_t i = 0; i < count / kElements; ++i)
    kEncode(source + i * kElements, block[i], importance ? importance + i * kElements : nullptr);
}

}  // namespace millrace::quant
