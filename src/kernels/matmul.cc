#include "kernels/matmul.h"

#include <algorithm>
#include <array>

#include "kernels/matmul_formats.h"
#include "kernels/matmul_pack.h"
#include "kernels/matmul_runs.h"
#include "quant/traits.h"

namespace millrace::kernels {
namespace {

constexpr auto kTypes = static_cast<size_t>(DType::kCount);

using RunChooser = MatmulRun (*)(DType);

struct IsaKernels {
  RunChooser legacy, k_quants, four_bits, floats;
  MatmulInputKernels input;
  MatmulPeaks peaks;
};

IsaKernels isa_kernels(IsaLevel isa) {
#if defined(__x86_64__)
  if (isa >= IsaLevel::kAvx512) {
    IsaKernels k = {avx512::run_legacy, avx512::run_k_quants,    avx512::run_four_bits,
                    avx512::run_floats, avx512::input_kernels(), avx512::peaks()};
    if (cpu_features().avx512_bf16) k.peaks.bf16 = avx512bf16::peak_bf16;
    if (isa >= IsaLevel::kAmxInt8) {
      k.peaks.tile_int8 = amx::peak_tile_int8;
      k.peaks.tile_bf16 = amx::peak_tile_bf16;
    }
    return k;
  }
  if (isa == IsaLevel::kAvx2 && cpu_features().avx_vnni)
    return {avxvnni::run_legacy, avxvnni::run_k_quants,    avxvnni::run_four_bits,
            avxvnni::run_floats, avxvnni::input_kernels(), avxvnni::peaks()};
  if (isa == IsaLevel::kAvx2)
    return {avx2::run_legacy, avx2::run_k_quants,    avx2::run_four_bits,
            avx2::run_floats, avx2::input_kernels(), avx2::peaks()};
#endif
  return {portable::run_legacy, portable::run_k_quants,    portable::run_four_bits,
          portable::run_floats, portable::input_kernels(), portable::peaks()};
}

/// The rows as the file has them.
template <DType kType>
int64_t decoded_bytes(int64_t cols) {
  const quant::Traits& traits = quant::traits(kType);
  return kMatmulRows * (cols / traits.block_elements) * traits.block_bytes;
}
template <DType kType>
void keep_rows(const std::byte* const* rows, int64_t cols, std::byte* panel) {
  const auto row_bytes = static_cast<size_t>(decoded_bytes<kType>(cols) / kMatmulRows);
  for (int row = 0; row < kMatmulRows; ++row) __builtin_memcpy(panel + row_bytes * row, rows[row], row_bytes);
}

struct Shape {
  int64_t (*panel_bytes)(int64_t);
  PackFunction pack;
  MatmulInput int8 = MatmulInput::kInt8;  ///< what its kernels read if they read int8
};

template <class F>
Shape shape_of_format(PackFunction pack) {
  return {F::panel_bytes, pack, F::kSuper ? MatmulInput::kInt8Super : MatmulInput::kInt8};
}

/// Bytes and packer of the interleaved formats, and of those whose rows are kept.
Shape shape_of(DType type) {
  const PackFunction pack = matmul_packer(type);
  switch (type) {
    case DType::kQ4_0:
      return shape_of_format<FormatQ4_0>(pack);
    case DType::kQ4_1:
      return shape_of_format<FormatQ4_1>(pack);
    case DType::kQ5_0:
      return shape_of_format<FormatQ5_0>(pack);
    case DType::kQ5_1:
      return shape_of_format<FormatQ5_1>(pack);
    case DType::kQ8_0:
      return shape_of_format<FormatQ8_0>(pack);
    case DType::kQ2_K:
      return shape_of_format<FormatQ2_K>(pack);
    case DType::kQ3_K:
      return shape_of_format<FormatQ3_K>(pack);
    case DType::kQ4_K:
      return shape_of_format<FormatQ4_K>(pack);
    case DType::kQ5_K:
      return shape_of_format<FormatQ5_K>(pack);
    case DType::kQ6_K:
      return shape_of_format<FormatQ6_K>(pack);
    case DType::kIQ4_NL:
      return shape_of_format<FormatIQ4_NL>(pack);
    case DType::kIQ4_XS:
      return shape_of_format<FormatIQ4_XS>(pack);
    case DType::kMXFP4:
      return shape_of_format<FormatMXFP4>(pack);
    case DType::kNVFP4:
      return shape_of_format<FormatNVFP4>(pack);
    case DType::kTQ2_0:
      return shape_of_format<FormatTQ2_0>(pack);
    case DType::kF32:
      return {[](int64_t cols) { return cols * 128; }, pack};
    case DType::kF16:
      return {[](int64_t cols) { return cols * 64; }, pack};
    case DType::kBF16:
      return {[](int64_t cols) { return (cols + 1) / 2 * 128; }, pack};
    case DType::kF64:
      return {decoded_bytes<DType::kF64>, keep_rows<DType::kF64>};
    case DType::kF8E4M3:
      return {decoded_bytes<DType::kF8E4M3>, keep_rows<DType::kF8E4M3>};
    case DType::kF8E5M2:
      return {decoded_bytes<DType::kF8E5M2>, keep_rows<DType::kF8E5M2>};
    case DType::kQ8_1:
      return {decoded_bytes<DType::kQ8_1>, keep_rows<DType::kQ8_1>};
    case DType::kQ8_K:
      return {decoded_bytes<DType::kQ8_K>, keep_rows<DType::kQ8_K>};
    case DType::kIQ2_XXS:
      return {decoded_bytes<DType::kIQ2_XXS>, keep_rows<DType::kIQ2_XXS>};
    case DType::kIQ2_XS:
      return {decoded_bytes<DType::kIQ2_XS>, keep_rows<DType::kIQ2_XS>};
    case DType::kIQ2_S:
      return {decoded_bytes<DType::kIQ2_S>, keep_rows<DType::kIQ2_S>};
    case DType::kIQ3_XXS:
      return {decoded_bytes<DType::kIQ3_XXS>, keep_rows<DType::kIQ3_XXS>};
    case DType::kIQ3_S:
      return {decoded_bytes<DType::kIQ3_S>, keep_rows<DType::kIQ3_S>};
    case DType::kIQ1_S:
      return {decoded_bytes<DType::kIQ1_S>, keep_rows<DType::kIQ1_S>};
    case DType::kIQ1_M:
      return {decoded_bytes<DType::kIQ1_M>, keep_rows<DType::kIQ1_M>};
    case DType::kTQ1_0:
      return {decoded_bytes<DType::kTQ1_0>, keep_rows<DType::kTQ1_0>};
    default:
      return {nullptr, nullptr};
  }
}

constexpr int64_t kNever = INT64_MAX;

#if defined(__x86_64__)
/// Below, what the tiles' own loads and stores cost is not shared by enough tokens.
constexpr int64_t kExactTileTokens = 5;

void use_tiles(MatmulLayout& layout, IsaLevel isa) {
  // What the tiles multiply as fast as memory brings it, or what is slow in vectors, is theirs alone.
  if (MatmulRun run = amx::run_floats(layout.type)) {
    layout.few = layout.some = {MatmulInput::kBF16, run};
    layout.some_tokens = 0;
    return;
  }
  for (RunChooser choose : {amx::run_legacy_exact, amx::run_k_quants_exact, amx::run_four_bits_exact}) {
    const MatmulRun run = choose(layout.type);
    if (!run) continue;
    layout.some = {layout.few.input, run};
    layout.some_tokens = kExactTileTokens;
  }
  if (isa == IsaLevel::kAmxInt8) return;
  if (isa == IsaLevel::kAmxFp16) {
    for (RunChooser choose : {amxfp16::run_legacy, amxfp16::run_k_quants, amxfp16::run_four_bits})
      if (const MatmulRun run = choose(layout.type)) layout.rounded = {MatmulInput::kF16, run};
    return;
  }
  for (RunChooser choose : {amx::run_legacy, amx::run_k_quants, amx::run_four_bits}) {
    const MatmulRun run = choose(layout.type);
    if (run) layout.rounded = {MatmulInput::kBF16, run};
  }
}
#endif

using LayoutTable = std::array<MatmulLayout, kTypes>;

MatmulKernel vector_kernel(const IsaKernels& kernels, IsaLevel isa, DType type, MatmulInput int8) {
#if defined(__x86_64__)
  if (type == DType::kBF16 && isa == IsaLevel::kAvx512 && cpu_features().avx512_bf16)
    return {MatmulInput::kBF16, avx512bf16::run_bf16};
#endif
  for (RunChooser choose : {kernels.legacy, kernels.k_quants, kernels.four_bits})
    if (const MatmulRun run = choose(type)) return {int8, run};
  return {MatmulInput::kF32, kernels.floats(type)};
}

LayoutTable make_layouts(IsaLevel isa) {
  const IsaKernels kernels = isa_kernels(isa);
  LayoutTable table{};
  for (size_t i = 0; i < kTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const Shape shape = shape_of(type);
    const MatmulKernel kernel = vector_kernel(kernels, isa, type, shape.int8);
    table[i] = {type, shape.panel_bytes, shape.pack, kernel, kernel, kNever, {}};
#if defined(__x86_64__)
    if (isa >= IsaLevel::kAmxInt8 && kernel.run) use_tiles(table[i], isa);
#endif
  }
  return table;
}

}  // namespace

const MatmulLayout* matmul_layout(DType type, IsaLevel isa) {
  static const LayoutTable tables[] = {make_layouts(IsaLevel::kScalar), make_layouts(IsaLevel::kAvx2),
                                       make_layouts(IsaLevel::kAvx512), make_layouts(IsaLevel::kAmxInt8),
                                       make_layouts(IsaLevel::kAmx),    make_layouts(IsaLevel::kAmxFp16)};
  const auto index = static_cast<size_t>(type);
  if (index >= kTypes) return nullptr;
  const MatmulLayout& layout = tables[static_cast<size_t>(isa)][index];
  return layout.few.run ? &layout : nullptr;
}

int64_t matmul_token_tile(IsaLevel isa) {
  constexpr int64_t kTileRows = 16;
  return isa >= IsaLevel::kAmxInt8 ? kTileRows : 1;
}

MatmulInput rounded_input(IsaLevel isa) {
  return isa == IsaLevel::kAmxFp16 ? MatmulInput::kF16
         : isa == IsaLevel::kAmx   ? MatmulInput::kBF16
                                   : MatmulInput::kInt8;
}

const MatmulInputKernels& matmul_input_kernels(IsaLevel isa) {
  static const auto tables = [] {
    std::array<MatmulInputKernels, 4> made = {
        isa_kernels(IsaLevel::kScalar).input, isa_kernels(IsaLevel::kAvx2).input,
        isa_kernels(IsaLevel::kAvx512).input, isa_kernels(IsaLevel::kAvx512).input};
#if defined(__x86_64__)
    made[3].to_f16 = amxfp16::to_f16;
#endif
    return made;
  }();
  if (isa == IsaLevel::kAmxFp16) return tables[3];
  return tables[std::min(static_cast<size_t>(isa), static_cast<size_t>(IsaLevel::kAvx512))];
}

MatmulPeaks matmul_peaks(IsaLevel isa) { return isa_kernels(isa).peaks; }

uint64_t read_stream(const std::byte* data, size_t bytes) {
  uint64_t sum[4] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (size_t line = 0; line < 4; ++line) {
      uint64_t v;
      __builtin_memcpy(&v, data + i + 64 * line, 8);
      sum[line] += v;
      // Measured in turn on two cores: 29.0 GB/s with one at 2 KiB, 29.5 with both, 25.6 without.
      __builtin_prefetch(data + i + 64 * line + 4096, 0, 3);
      __builtin_prefetch(data + i + 64 * line + 8192, 0, 2);
    }
  }
  const uint64_t all = sum[0] + sum[1] + sum[2] + sum[3];
#if defined(__GNUC__)
  __asm__ volatile("" : : "r"(all) : "memory");
#endif
  return all;
}

}  // namespace millrace::kernels
