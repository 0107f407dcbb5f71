// How each quantised format lies in a panel, as types that packers and kernels are instantiated with.
//
// A panel, 32 rows, is a run of groups of `kGroup` blocks (the last may be shorter), read strictly from its
// beginning to its end: only then do the hardware's prefetchers follow. A group begins with its scales, first
// those of rows 0 to 15 (a strip), then those of rows 16 to 31, in no more bytes than the file has. Then come
// its blocks. A block is 32 columns as codes, the vectors of one strip taking turns with those of the other.
// A strip's codes are eight steps of four columns, a step's code for row r and column c at byte 4 r + c of a
// vector of 64 bytes. Codes of few bits share bytes:
//
//   kLow 8: eight vectors, step by step.   kLow 4: vector i holds step 2i in its low and 2i+1 in its high
//   nibbles. kLow 2: vector h holds steps 4h to 4h+3, two bits each.   kHigh 1, 2: further bits of each code
//   behind those, in one vector (bit j: step j) or two (as kLow 2).
//
// A value is
//   scale * (code - 2^kZeroShift)            without kOffset
//   scale * code + offset                    with it
// with one scale (and offset) for 32 columns, or two when kHalves is 2. kTable maps codes to bytes first.
//
// Only constants here: this header is included by files that are compiled for different instruction sets.
#pragma once

#include <cstdint>
#include <type_traits>

namespace millrace::kernels {

enum class ScaleKind {
  kHalf,          // fp16
  kHalfOffset,    // fp16 scale, fp16 offset
  kSuperHalf,     // one fp16 for 256
  kExponent,      // 8-bit power of two
  kE4m3,          // unsigned 8-bit float for 16
  kPair6,         // 6-bit scale and offset for 32, fp16 pair for 256
  kPair4,         // 4-bit scale and offset for 16, fp16 pair for 256
  kSigned8,       // int8 for 16, fp16 for 256
  kBiased6For16,  // 6-bit biased by 32 for 16, fp16 for 256
  kBiased6,       // 6-bit biased by 32 for 32, fp16 for 256
};
enum class CodeTable { kNone, kIq4, kE2m1 };

template <int Low, int High, CodeTable Table, int ZeroShift, bool Offset, int Halves, int Group,
          ScaleKind Scale>
struct Format {
  static constexpr int kLow = Low, kHigh = High, kZeroShift = ZeroShift, kHalves = Halves, kGroup = Group;
  static constexpr CodeTable kTable = Table;
  static constexpr bool kOffset = Offset;
  static constexpr ScaleKind kScale = Scale;
  static constexpr int kBlockBytes = 64 * (Low + High);  ///< of a strip
  /// Groups are the file's super-blocks of 256: their activations have one scale for as many columns.
  static constexpr bool kSuper = Group == 8;
  /// Codes that need all eight bits: products of two do not fit 16 bits.
  static constexpr bool kWide = Low == 8 || Table == CodeTable::kIq4;
  /// Bytes of scales of a strip behind `blocks` blocks.
  static constexpr int64_t scale_bytes(int64_t blocks) {
    switch (Scale) {
      case ScaleKind::kHalf:
        return blocks * 32;
      case ScaleKind::kHalfOffset:
        return blocks * 64;
      case ScaleKind::kSuperHalf:
        return 32;
      case ScaleKind::kExponent:
        return blocks * 16;
      case ScaleKind::kE4m3:
        return blocks * 32;
      case ScaleKind::kPair6:
        return 192 + 64;
      case ScaleKind::kPair4:
        return 256 + 64;
      case ScaleKind::kSigned8:
        return 256 + 32;
      case ScaleKind::kBiased6For16:
        return 192 + 32;
      case ScaleKind::kBiased6:
        return 96 + 32;
    }
    return 0;
  }
  static constexpr int64_t panel_bytes(int64_t cols) {
    const int64_t blocks = cols / 32, rest = blocks % Group;
    return 2 * (blocks * kBlockBytes + blocks / Group * scale_bytes(Group) + (rest ? scale_bytes(rest) : 0));
  }
};

using FormatQ4_0 = Format<4, 0, CodeTable::kNone, 3, false, 1, 2, ScaleKind::kHalf>;
using FormatQ4_1 = Format<4, 0, CodeTable::kNone, 0, true, 1, 1, ScaleKind::kHalfOffset>;
using FormatQ5_0 = Format<4, 1, CodeTable::kNone, 4, false, 1, 2, ScaleKind::kHalf>;
using FormatQ5_1 = Format<4, 1, CodeTable::kNone, 0, true, 1, 1, ScaleKind::kHalfOffset>;
using FormatQ8_0 = Format<8, 0, CodeTable::kNone, 7, false, 1, 2, ScaleKind::kHalf>;
using FormatQ2_K = Format<2, 0, CodeTable::kNone, 0, true, 2, 8, ScaleKind::kPair4>;
using FormatQ3_K = Format<2, 1, CodeTable::kNone, 2, false, 2, 8, ScaleKind::kBiased6For16>;
using FormatQ4_K = Format<4, 0, CodeTable::kNone, 0, true, 1, 8, ScaleKind::kPair6>;
using FormatQ5_K = Format<4, 1, CodeTable::kNone, 0, true, 1, 8, ScaleKind::kPair6>;
using FormatQ6_K = Format<4, 2, CodeTable::kNone, 5, false, 2, 8, ScaleKind::kSigned8>;
using FormatIQ4_NL = Format<4, 0, CodeTable::kIq4, 7, false, 1, 2, ScaleKind::kHalf>;
using FormatIQ4_XS = Format<4, 0, CodeTable::kIq4, 7, false, 1, 8, ScaleKind::kBiased6>;
using FormatMXFP4 = Format<4, 0, CodeTable::kE2m1, 4, false, 1, 4, ScaleKind::kExponent>;
using FormatNVFP4 = Format<4, 0, CodeTable::kE2m1, 4, false, 2, 2, ScaleKind::kE4m3>;
using FormatTQ2_0 = Format<2, 0, CodeTable::kNone, 0, false, 1, 8, ScaleKind::kSuperHalf>;

// As many bytes as the file's blocks have.
static_assert(FormatQ4_0::panel_bytes(64) == 32 * 2 * 18 && FormatQ8_0::panel_bytes(32) == 32 * 34);
static_assert(FormatQ5_0::panel_bytes(64) == 32 * 2 * 22 && FormatQ5_1::panel_bytes(32) == 32 * 24);
static_assert(FormatQ2_K::panel_bytes(256) == 32 * 84 && FormatQ3_K::panel_bytes(256) == 32 * 110);
static_assert(FormatQ4_K::panel_bytes(256) == 32 * 144 && FormatQ5_K::panel_bytes(256) == 32 * 176);
static_assert(FormatQ6_K::panel_bytes(256) == 32 * 210 && FormatIQ4_XS::panel_bytes(256) == 32 * 136);
static_assert(FormatMXFP4::panel_bytes(128) == 32 * 4 * 17 && FormatNVFP4::panel_bytes(64) == 32 * 36);
static_assert(FormatTQ2_0::panel_bytes(256) == 32 * 66 && FormatQ4_1::panel_bytes(32) == 32 * 20);

}  // namespace millrace::kernels
