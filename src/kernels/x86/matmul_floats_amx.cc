// BF16 weights and what is decoded row by row, on AMX tiles.
#include "kernels/matmul_runs.h"
#include "kernels/x86/intrinsics.h"
#include "quant/traits.h"

namespace millrace::kernels::amx {
namespace {
#include "kernels/x86/simd_avx512.inc"
}  // namespace
namespace {
#include "kernels/x86/matmul_tiles.inc"

/// BF16 weights lie as the tiles want them.
class Bf16Columns : public Bf16Dots {
 public:
  static constexpr bool kInPlace = true;
  static constexpr int64_t kChunk = int64_t{1} << 40;  // a panel in one go
  struct Scratch {};
  Bf16Columns(const MatmulTask& task, Scratch&) : task_(task) {}
  const uint8_t* columns(int64_t panel, int64_t begin, int64_t, Coming&) const {
    return packed(panel, begin);
  }
  const uint8_t* packed(int64_t panel, int64_t begin) const {
    return reinterpret_cast<const uint8_t*>(task_.panels) + panel * task_.panel_bytes +
           begin / 2 * kPairBytes;
  }

 private:
  const MatmulTask& task_;
};

/// Two columns of sixteen rows as bfloat16 pairs: the even one's in the low halves.
ALWAYS_INLINE I pair_columns(F even, F odd) {
  const I mixed = (I)_mm512_cvtne2ps_pbh(odd, even);
  const I order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                   21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, mixed);
}

/// Rows kept as in the file, decoded and rounded to bfloat16 a chunk at a time.
template <DType kType>
class DecodedColumns : public Bf16Dots {
 public:
  static constexpr bool kInPlace = false;
  static constexpr int64_t kChunk = kChunkCols;
  struct alignas(64) Scratch {
    uint8_t pairs[kChunk / 2 * kPairBytes];
    float rows[16][kChunk];
  };
  DecodedColumns(const MatmulTask& task, Scratch& scratch) : task_(task), scratch_(scratch) {}

  /// Rows lie apart here; the decoder reads them in order.
  const uint8_t* packed(int64_t, int64_t) const { return reinterpret_cast<const uint8_t*>(task_.panels); }
  const uint8_t* columns(int64_t panel, int64_t begin, int64_t count, Coming&) {
    const quant::Traits& traits = quant::traits(kType);
    const int64_t row_bytes = task_.cols / traits.block_elements * traits.block_bytes;
    const auto* q = reinterpret_cast<const uint8_t*>(task_.panels) + panel * task_.panel_bytes +
                    begin / traits.block_elements * traits.block_bytes;
    const I step = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                      _mm512_set1_epi32(kChunk));
    for (int p = 0; p < kStrips; ++p) {
      for (int row = 0; row < 16; ++row) {
        if (count % 2) scratch_.rows[row][count] = 0;  // the last pair's partner
        traits.decode(q + (16 * p + row) * row_bytes, scratch_.rows[row], count);
      }
      for (int64_t i = 0; i < count; i += 2)
        b_store(scratch_.pairs + i / 2 * kPairBytes + 64 * p,
                pair_columns(_mm512_i32gather_ps(step, &scratch_.rows[0][i], 4),
                             _mm512_i32gather_ps(step, &scratch_.rows[0][i + 1], 4)));
    }
    return scratch_.pairs;
  }

 private:
  const MatmulTask& task_;
  Scratch& scratch_;
};

template <DType kType>
void run_decoded_tiles(const MatmulTask& task) {
  run_tiles<DecodedColumns<kType>>(task);
}

}  // namespace

MatmulRun run_floats(DType type) {
  switch (type) {
    case DType::kBF16:
      return run_tiles<Bf16Columns>;
    case DType::kF8E4M3:
      return run_decoded_tiles<DType::kF8E4M3>;
    case DType::kF8E5M2:
      return run_decoded_tiles<DType::kF8E5M2>;
    case DType::kQ8_1:
      return run_decoded_tiles<DType::kQ8_1>;
    case DType::kQ8_K:
      return run_decoded_tiles<DType::kQ8_K>;
    case DType::kIQ2_XXS:
      return run_decoded_tiles<DType::kIQ2_XXS>;
    case DType::kIQ2_XS:
      return run_decoded_tiles<DType::kIQ2_XS>;
    case DType::kIQ2_S:
      return run_decoded_tiles<DType::kIQ2_S>;
    case DType::kIQ3_XXS:
      return run_decoded_tiles<DType::kIQ3_XXS>;
    case DType::kIQ3_S:
      return run_decoded_tiles<DType::kIQ3_S>;
    case DType::kIQ1_S:
      return run_decoded_tiles<DType::kIQ1_S>;
    case DType::kIQ1_M:
      return run_decoded_tiles<DType::kIQ1_M>;
    case DType::kTQ1_0:
      return run_decoded_tiles<DType::kTQ1_0>;
    default:
      return nullptr;  // F32 and what holds more than bfloat16: the vector kernels
  }
}

/// Four sums in turn, enough to keep the unit busy; a tile product takes some eight times as long as a
/// vector's.
template <class Round>
double tile_peak(int64_t iterations, double operations, const Round& round) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kTileRows, 64);
  const TileScope scope(shapes);
  tile_zero<4>(), tile_zero<5>(), tile_zero<6>(), tile_zero<7>();
  const int64_t rounds = iterations / 8;
  for (int64_t i = 0; i < rounds; ++i) round();
  return static_cast<double>(rounds) * 4 * operations;
}
double peak_tile_int8(int64_t iterations) {
  return tile_peak(iterations, 2.0 * 16 * 16 * 64, [] {
    tile_dot_int8<0, 4, 6>(), tile_dot_int8<1, 4, 7>(), tile_dot_int8<2, 5, 6>(), tile_dot_int8<3, 5, 7>();
  });
}
double peak_tile_bf16(int64_t iterations) {
  return tile_peak(iterations, 2.0 * 16 * 16 * 32, [] {
    tile_dot_bf16<0, 4, 6>(), tile_dot_bf16<1, 4, 7>(), tile_dot_bf16<2, 5, 6>(), tile_dot_bf16<3, 5, 7>();
  });
}

}  // namespace millrace::kernels::amx
