// Decoders of the i-quants: indices into code books (quant/iq_grids.h), with signs kept apart and a small
// odd-multiple scale for every 16 or 32 elements under one fp16 scale; and IQ4, whose 16 values lie unevenly.
// Encoders are in quant/iq_encode.cc.
#include <cstring>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/iq_grids.h"

namespace millrace::quant {
namespace {

/// Writes `n` grid values times `scale`, negated where `signs` has a bit.
template <typename Word>
void put_point(Word point, uint8_t signs, float scale, float* y) {
  for (unsigned i = 0; i < sizeof(Word); ++i) {
    const float value = scale * static_cast<float>(point >> (8 * i) & 0xff);
    y[i] = signs >> i & 1 ? -value : value;
  }
}

uint32_t load_u32(const void* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, 4);
  return word;
}

float quarter_scale(float d, unsigned s) { return d * (0.5f + static_cast<float>(s)) * 0.25f; }

void decode_iq2_xxs(const BlockIQ2_XXS& b, float* y) {
  const auto grid = iq2xxs_grid();
  const float d = fp16_to_float(b.d);
  for (int group = 0; group < 8; ++group) {
    const uint32_t indices = load_u32(b.qs + group * 4), rest = load_u32(b.qs + group * 4 + 2);
    const float scale = quarter_scale(d, rest >> 28);
    for (int j = 0; j < 4; ++j, y += 8)
      put_point(grid[indices >> (8 * j) & 0xff], iq_signs(rest >> (7 * j) & 127), scale, y);
  }
}

void decode_iq2_xs(const BlockIQ2_XS& b, float* y) {
  const auto grid = iq2xs_grid();
  const float d = fp16_to_float(b.d);
  for (int p = 0; p < 32; ++p, y += 8) {
    const float scale = quarter_scale(d, b.scales[p / 4] >> (p / 2 % 2 * 4) & 15);
    put_point(grid[b.qs[p] & 511], iq_signs(b.qs[p] >> 9), scale, y);
  }
}

void decode_iq2_s(const BlockIQ2_S& b, float* y) {
  const auto grid = iq2s_grid();
  const float d = fp16_to_float(b.d);
  for (int p = 0; p < 32; ++p, y += 8) {
    const float scale = quarter_scale(d, b.scales[p / 4] >> (p / 2 % 2 * 4) & 15);
    const int index = b.qs[p] | (b.qh[p / 4] >> (p % 4 * 2) & 3) << 8;
    put_point(grid[static_cast<size_t>(index)], b.signs[p], scale, y);
  }
}

void decode_iq3_xxs(const BlockIQ3_XXS& b, float* y) {
  const auto grid = iq3xxs_grid();
  const float d = fp16_to_float(b.d);
  for (int group = 0; group < 8; ++group) {
    const uint32_t rest = load_u32(b.scales_and_signs + group * 4);
    const float scale = d * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
    for (int j = 0; j < 4; ++j, y += 8) {
      const uint8_t signs = iq_signs(rest >> (7 * j) & 127);
      put_point(grid[b.qs[group * 8 + j * 2]], signs & 15, scale, y);
      put_point(grid[b.qs[group * 8 + j * 2 + 1]], signs >> 4, scale, y + 4);
    }
  }
}

void decode_iq3_s(const BlockIQ3_S& b, float* y) {
  const auto grid = iq3s_grid();
  const float d = fp16_to_float(b.d);
  for (int p = 0; p < 64; ++p, y += 4) {
    const float scale = d * static_cast<float>(1 + 2 * (b.scales[p / 16] >> (p / 8 % 2 * 4) & 15));
    const int index = b.qs[p] | (b.qh[p / 8] >> (p % 8) & 1) << 8;
    put_point(grid[static_cast<size_t>(index)], b.signs[p / 2] >> (p % 2 * 4) & 15, scale, y);
  }
}

void put_ternary(uint64_t point, float delta, float scale, float* y) {
  for (int i = 0; i < 8; ++i)
    y[i] = scale * (static_cast<float>(static_cast<int8_t>(point >> (8 * i) & 0xff)) + delta);
}

void decode_iq1_s(const BlockIQ1_S& b, float* y) {
  const auto grid = iq1s_grid();
  const float d = fp16_to_float(b.d);
  for (int p = 0; p < 32; ++p, y += 8) {
    const uint16_t high = b.qh[p / 4];
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    const int index = b.qs[p] | (high >> (p % 4 * 3) & 7) << 8;
    put_ternary(grid[static_cast<size_t>(index)], high & 0x8000 ? -kIq1Delta : kIq1Delta, scale, y);
  }
}

void decode_iq1_m(const BlockIQ1_M& b, float* y) {
  const auto grid = iq1s_grid();
  uint16_t scales[4];
  std::memcpy(scales, b.scales, sizeof scales);
  const int bits =
      scales[0] >> 12 | (scales[1] >> 12) << 4 | (scales[2] >> 12) << 8 | (scales[3] >> 12) << 12;
  const float d = fp16_to_float(static_cast<fp16_t>(bits));
  for (int p = 0; p < 32; ++p, y += 8) {
    const float scale = d * static_cast<float>(2 * (scales[p / 8] >> (p / 2 % 4 * 3) & 7) + 1);
    const int high = b.qh[p / 2] >> (p % 2 * 4);
    const int index = b.qs[p] | (high & 7) << 8;
    put_ternary(grid[static_cast<size_t>(index)], high & 8 ? -kIq1Delta : kIq1Delta, scale, y);
  }
}

/// Sixteen bytes of nibbles: low ones are elements 0-15, high ones 16-31.
void put_iq4(const uint8_t* qs, float scale, float* y) {
  for (int i = 0; i < 16; ++i) {
    y[i] = scale * static_cast<float>(kIq4Values[qs[i] & 15]);
    y[i + 16] = scale * static_cast<float>(kIq4Values[qs[i] >> 4]);
  }
}

void decode_iq4_nl(const BlockIQ4_NL& b, float* y) { put_iq4(b.qs, fp16_to_float(b.d), y); }

void decode_iq4_xs(const BlockIQ4_XS& b, float* y) {
  const float d = fp16_to_float(b.d);
  for (int group = 0; group < 8; ++group) {
    const int scale = (b.scales_l[group / 2] >> (group % 2 * 4) & 15) | (b.scales_h >> (group * 2) & 3) << 4;
    put_iq4(b.qs + group * 16, d * static_cast<float>(scale - 32), y + group * 32);
  }
}

template <typename Block, int kElements, void (*kDecode)(const Block&, float*)>
Codec codec(EncodeFunction encode) {
  return {kElements, static_cast<int>(sizeof(Block)), decode_blocks<Block, kElements, kDecode>, encode};
}

}  // namespace

Codec iq_codec(DType type) {
  switch (type) {
    case DType::kIQ2_XXS:
      return codec<BlockIQ2_XXS, kSuperBlock, decode_iq2_xxs>(iq_encoder(type));
    case DType::kIQ2_XS:
      return codec<BlockIQ2_XS, kSuperBlock, decode_iq2_xs>(iq_encoder(type));
    case DType::kIQ2_S:
      return codec<BlockIQ2_S, kSuperBlock, decode_iq2_s>(iq_encoder(type));
    case DType::kIQ3_XXS:
      return codec<BlockIQ3_XXS, kSuperBlock, decode_iq3_xxs>(iq_encoder(type));
    case DType::kIQ3_S:
      return codec<BlockIQ3_S, kSuperBlock, decode_iq3_s>(iq_encoder(type));
    case DType::kIQ1_S:
      return codec<BlockIQ1_S, kSuperBlock, decode_iq1_s>(iq_encoder(type));
    case DType::kIQ1_M:
      return codec<BlockIQ1_M, kSuperBlock, decode_iq1_m>(iq_encoder(type));
    case DType::kIQ4_NL:
      return codec<BlockIQ4_NL, 32, decode_iq4_nl>(iq_encoder(type));
    case DType::kIQ4_XS:
      return codec<BlockIQ4_XS, kSuperBlock, decode_iq4_xs>(iq_encoder(type));
    default:
      return {};
  }
}

}  // namespace millrace::quant
