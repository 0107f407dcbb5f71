// Packers: thirty-two rows of a file's blocks to a panel (matmul_formats.h). Four codes at a time, as the
// bytes of a word.
#include "kernels/matmul_pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/matmul.h"
#include "kernels/matmul_formats.h"
#include "quant/blocks.h"

namespace millrace::kernels {
namespace {

using quant::BlockIQ4_NL;
using quant::BlockIQ4_XS;
using quant::BlockMXFP4;
using quant::BlockNVFP4;
using quant::BlockQ2_K;
using quant::BlockQ3_K;
using quant::BlockQ4_0;
using quant::BlockQ4_1;
using quant::BlockQ4_K;
using quant::BlockQ5_0;
using quant::BlockQ5_1;
using quant::BlockQ5_K;
using quant::BlockQ6_K;
using quant::BlockQ8_0;
using quant::BlockTQ2_0;

uint32_t word(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

constexpr uint32_t kNibbles = 0x0f0f0f0fu, kPairs = 0x03030303u, kBits = 0x01010101u;

/// Bit i of `bits` (four of them) to byte i.
uint32_t spread_bits(uint32_t bits) { return ((bits & 15) * 0x00204081u) & kBits; }

// codes(block, sub, w): the 32 codes of sub-block `sub` as eight words of four bytes.

void nibble_codes(const uint8_t* qs, uint32_t* w) {
  for (int i = 0; i < 4; ++i) {
    w[i] = word(qs + 4 * i) & kNibbles;
    w[i + 4] = word(qs + 4 * i) >> 4 & kNibbles;
  }
}
void fifth_bits(const uint8_t* qh, uint32_t* w) {
  for (int i = 0; i < 8; ++i) w[i] |= spread_bits(word(qh) >> 4 * i) << 4;
}

void codes(const BlockQ4_0& b, int, uint32_t* w) { nibble_codes(b.qs, w); }
void codes(const BlockQ4_1& b, int, uint32_t* w) { nibble_codes(b.qs, w); }
void codes(const BlockMXFP4& b, int, uint32_t* w) { nibble_codes(b.qs, w); }
void codes(const BlockQ5_0& b, int, uint32_t* w) {
  nibble_codes(b.qs, w);
  fifth_bits(b.qh, w);
}
void codes(const BlockQ5_1& b, int, uint32_t* w) {
  nibble_codes(b.qs, w);
  fifth_bits(b.qh, w);
}
void codes(const BlockIQ4_NL& b, int, uint32_t* w) { nibble_codes(b.qs, w); }
void codes(const BlockIQ4_XS& b, int sub, uint32_t* w) { nibble_codes(b.qs + 16 * sub, w); }
void codes(const BlockQ8_0& b, int, uint32_t* w) {
  for (int i = 0; i < 8; ++i) w[i] = word(reinterpret_cast<const uint8_t*>(b.qs) + 4 * i) ^ 0x80808080u;
}
void codes(const BlockQ4_K& b, int sub, uint32_t* w) {
  for (int i = 0; i < 8; ++i) w[i] = word(b.qs + sub / 2 * 32 + 4 * i) >> (sub & 1) * 4 & kNibbles;
}
void codes(const BlockQ5_K& b, int sub, uint32_t* w) {
  for (int i = 0; i < 8; ++i)
    w[i] = (word(b.qs + sub / 2 * 32 + 4 * i) >> (sub & 1) * 4 & kNibbles) |
           (word(b.qh + 4 * i) >> sub & kBits) << 4;
}
void codes(const BlockQ6_K& b, int sub, uint32_t* w) {
  const int half = sub / 4, quarter = sub % 4;
  for (int i = 0; i < 8; ++i)
    w[i] = (word(b.ql + half * 64 + (quarter & 1) * 32 + 4 * i) >> (quarter >> 1) * 4 & kNibbles) |
           (word(b.qh + half * 32 + 4 * i) >> 2 * quarter & kPairs) << 4;
}
void codes(const BlockQ3_K& b, int sub, uint32_t* w) {
  for (int i = 0; i < 8; ++i)
    w[i] = (word(b.qs + sub / 4 * 32 + 4 * i) >> 2 * (sub % 4) & kPairs) |
           (word(b.hmask + 4 * i) >> sub & kBits) << 2;
}
void codes(const BlockQ2_K& b, int sub, uint32_t* w) {
  for (int i = 0; i < 8; ++i) w[i] = word(b.qs + sub / 4 * 32 + 4 * i) >> 2 * (sub % 4) & kPairs;
}
void codes(const BlockTQ2_0& b, int sub, uint32_t* w) {
  for (int i = 0; i < 8; ++i) w[i] = word(b.qs + sub / 4 * 32 + 4 * i) >> 2 * (sub % 4) & kPairs;
}
void codes(const BlockNVFP4& b, int sub, uint32_t* w) {
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      const uint32_t q = word(b.qs + (2 * sub + half) * 8 + 4 * i);
      w[half * 4 + i] = q & kNibbles;
      w[half * 4 + 2 + i] = q >> 4 & kNibbles;
    }
  }
}

/// Writes eight words of codes of one row (word 32 k is the row's in vector k of its strip).
template <class F>
void store_codes(const uint32_t* w, uint32_t* out) {
  int vector = 0;
  if constexpr (F::kLow == 8) {
    for (int i = 0; i < 8; ++i) out[32 * vector++] = w[i];
  } else if constexpr (F::kLow == 4) {
    for (int i = 0; i < 4; ++i) out[32 * vector++] = (w[2 * i] & kNibbles) | (w[2 * i + 1] & kNibbles) << 4;
  } else {
    for (int h = 0; h < 2; ++h) {
      uint32_t v = 0;
      for (int f = 0; f < 4; ++f) v |= (w[4 * h + f] & kPairs) << 2 * f;
      out[32 * vector++] = v;
    }
  }
  if constexpr (F::kHigh == 1) {
    uint32_t v = 0;
    for (int j = 0; j < 8; ++j) v |= (w[j] >> F::kLow & kBits) << j;
    out[32 * vector++] = v;
  } else if constexpr (F::kHigh == 2) {
    for (int h = 0; h < 2; ++h) {
      uint32_t v = 0;
      for (int f = 0; f < 4; ++f) v |= (w[4 * h + f] >> F::kLow & kPairs) << 2 * f;
      out[32 * vector++] = v;
    }
  }
}

// scales(block, index of the block's first sub-block in the group, row, area, blocks in the group)

void put_half(std::byte* area, int64_t index, fp16_t value) { std::memcpy(area + 2 * index, &value, 2); }
void put_byte(std::byte* area, int64_t index, int value) { area[index] = static_cast<std::byte>(value); }
void or_byte(std::byte* area, int64_t index, int value) { area[index] |= static_cast<std::byte>(value); }

template <class Block>
void half_scale(const Block& b, int64_t at, int row, std::byte* area) {
  put_half(area, at * 16 + row, b.d);
}
void scales(const BlockQ4_0& b, int64_t at, int row, std::byte* area) { half_scale(b, at, row, area); }
void scales(const BlockQ5_0& b, int64_t at, int row, std::byte* area) { half_scale(b, at, row, area); }
void scales(const BlockQ8_0& b, int64_t at, int row, std::byte* area) { half_scale(b, at, row, area); }
void scales(const BlockIQ4_NL& b, int64_t at, int row, std::byte* area) { half_scale(b, at, row, area); }
void scales(const BlockTQ2_0& b, int64_t, int row, std::byte* area) { half_scale(b, 0, row, area); }
template <class Block>
void half_and_offset(const Block& b, int row, std::byte* area) {
  put_half(area, row, b.d);
  put_half(area, 16 + row, b.m);
}
void scales(const BlockQ4_1& b, int64_t, int row, std::byte* area) { half_and_offset(b, row, area); }
void scales(const BlockQ5_1& b, int64_t, int row, std::byte* area) { half_and_offset(b, row, area); }
void scales(const BlockMXFP4& b, int64_t at, int row, std::byte* area) { put_byte(area, at * 16 + row, b.e); }
void scales(const BlockNVFP4& b, int64_t, int row, std::byte* area) {
  for (int j = 0; j < 4; ++j) put_byte(area, j * 16 + row, b.d[j] == 0x7f ? 0 : b.d[j]);
}

/// 64 bytes of low nibbles for sub-blocks 0-3 (scale | offset << 4), 64 for 4-7, 64 of the high bit pairs.
template <class Block>
void pair6(const Block& b, int row, std::byte* area) {
  for (int j = 0; j < 8; ++j) {
    int scale, offset;
    quant::k4_scale_min(b.scales, j, scale, offset);
    put_byte(area, j * 16 + row, (scale & 15) | (offset & 15) << 4);
    const int high = (scale >> 4 | (offset >> 4) << 2) << (j < 4 ? 0 : 4);
    if (j < 4)
      put_byte(area, 128 + j * 16 + row, high);
    else
      or_byte(area, 128 + (j - 4) * 16 + row, high);
  }
  put_half(area + 192, row, b.d);
  put_half(area + 192, 16 + row, b.dmin);
}
void scales(const BlockQ4_K& b, int64_t, int row, std::byte* area) { pair6(b, row, area); }
void scales(const BlockQ5_K& b, int64_t, int row, std::byte* area) { pair6(b, row, area); }
void scales(const BlockQ2_K& b, int64_t, int row, std::byte* area) {
  for (int j = 0; j < 16; ++j) put_byte(area, j * 16 + row, b.scales[j]);
  put_half(area + 256, row, b.d);
  put_half(area + 256, 16 + row, b.dmin);
}
void scales(const BlockQ6_K& b, int64_t, int row, std::byte* area) {
  for (int j = 0; j < 16; ++j) put_byte(area, j * 16 + row, b.scales[j]);
  put_half(area + 256, row, b.d);
}
/// Byte 16 (j % 8) holds the low nibbles of scales j and j + 8, byte 128 + 16 (j % 4) the high bit pairs of
/// four.
void scales(const BlockQ3_K& b, int64_t, int row, std::byte* area) {
  for (int j = 0; j < 8; ++j) put_byte(area, j * 16 + row, b.scales[j]);
  for (int j = 0; j < 4; ++j) put_byte(area, 128 + j * 16 + row, b.scales[8 + j]);
  put_half(area + 192, row, b.d);
}
/// Byte 16 (j % 4) holds the low nibbles of scales j and j + 4, byte 64 + 16 (j / 4) the high bit pairs of
/// four.
void scales(const BlockIQ4_XS& b, int64_t, int row, std::byte* area) {
  int low[8];
  for (int j = 0; j < 8; ++j) low[j] = b.scales_l[j / 2] >> 4 * (j % 2) & 15;
  for (int j = 0; j < 4; ++j) put_byte(area, j * 16 + row, low[j] | low[j + 4] << 4);
  put_byte(area, 64 + row, b.scales_h & 255);
  put_byte(area, 80 + row, b.scales_h >> 8);
  put_half(area + 96, row, b.d);
}

template <class F, class Block, int kElements>
void pack_blocks(const std::byte* const* rows, int64_t cols, std::byte* panel) {
  constexpr int kSubs = kElements / kBlockCols;  // blocks of 32 in a block of the file
  static_assert(F::kGroup % kSubs == 0);
  const int64_t blocks = cols / kBlockCols;
  for (int64_t first = 0; first < blocks; first += F::kGroup) {
    const int64_t count = std::min<int64_t>(F::kGroup, blocks - first);
    std::byte* area = panel;
    panel += kStrips * F::scale_bytes(count);
    for (int row = 0; row < kMatmulRows; ++row) {
      const int strip = row / 16, lane = row % 16;
      const auto* source = reinterpret_cast<const Block*>(rows[row]) + first / kSubs;
      for (int64_t i = 0; i < count; ++i) {
        Block block;  // the map may be unaligned
        std::memcpy(&block, source + i / kSubs, sizeof(Block));
        uint32_t w[8];
        codes(block, static_cast<int>(i % kSubs), w);
        store_codes<F>(w, reinterpret_cast<uint32_t*>(panel + i * kStrips * F::kBlockBytes) + row);
        if (i % kSubs == 0) scales(block, i, lane, area + strip * F::scale_bytes(count));
      }
    }
    panel += count * kStrips * F::kBlockBytes;
  }
}

template <int kBytes, int kTogether>
void interleave(const std::byte* const* rows, int64_t cols, std::byte* panel) {
  for (int64_t c = 0; c < cols; c += kTogether) {
    const int64_t count = std::min<int64_t>(kTogether, cols - c);
    for (int row = 0; row < kMatmulRows; ++row) {
      std::memset(panel, 0, kBytes * kTogether);
      std::memcpy(panel, rows[row] + c * kBytes, static_cast<size_t>(count) * kBytes);
      panel += kBytes * kTogether;
    }
  }
}

}  // namespace

PackFunction matmul_packer(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return pack_blocks<FormatQ4_0, BlockQ4_0, 32>;
    case DType::kQ4_1:
      return pack_blocks<FormatQ4_1, BlockQ4_1, 32>;
    case DType::kQ5_0:
      return pack_blocks<FormatQ5_0, BlockQ5_0, 32>;
    case DType::kQ5_1:
      return pack_blocks<FormatQ5_1, BlockQ5_1, 32>;
    case DType::kQ8_0:
      return pack_blocks<FormatQ8_0, BlockQ8_0, 32>;
    case DType::kQ2_K:
      return pack_blocks<FormatQ2_K, BlockQ2_K, 256>;
    case DType::kQ3_K:
      return pack_blocks<FormatQ3_K, BlockQ3_K, 256>;
    case DType::kQ4_K:
      return pack_blocks<FormatQ4_K, BlockQ4_K, 256>;
    case DType::kQ5_K:
      return pack_blocks<FormatQ5_K, BlockQ5_K, 256>;
    case DType::kQ6_K:
      return pack_blocks<FormatQ6_K, BlockQ6_K, 256>;
    case DType::kIQ4_NL:
      return pack_blocks<FormatIQ4_NL, BlockIQ4_NL, 32>;
    case DType::kIQ4_XS:
      return pack_blocks<FormatIQ4_XS, BlockIQ4_XS, 256>;
    case DType::kMXFP4:
      return pack_blocks<FormatMXFP4, BlockMXFP4, 32>;
    case DType::kNVFP4:
      return pack_blocks<FormatNVFP4, BlockNVFP4, 64>;
    case DType::kTQ2_0:
      return pack_blocks<FormatTQ2_0, BlockTQ2_0, 256>;
    case DType::kF32:
      return interleave<4, 1>;
    case DType::kF16:
      return interleave<2, 1>;
    case DType::kBF16:
      return interleave<2, 2>;
    default:
      return nullptr;
  }
}

}  // namespace millrace::kernels
