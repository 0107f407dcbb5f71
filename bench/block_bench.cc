// Cycles that a block of 16 rows by 32 columns takes on one core, by each of a type's kernels that read int8:
// vectors and, where there is a matrix unit, the tiles that give the same bits. The kernels take turns, each
// with the next copy of the matrix; the median of a second counts. One copy of a small matrix stays in the
// second cache; as many as the third cannot hold come from
// memory.
//
//   block_bench [TYPE] [ROWSxCOLS] [TOKENS,...] [COPIES]
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench.h"
#include "core/arena.h"
#include "core/cpu.h"
#include "core/error.h"
#include "kernels/matmul.h"
#include "ops/matmul.h"
#include "quant/traits.h"

namespace millrace {
namespace {

using bench::now;

/// Seconds of a cycle: a chain of multiplications takes three each.
double cycle_seconds() {
  double best = 1;
  for (int round = 0; round < 50; ++round) {
    const double begin = now();
    uint64_t x = 3;
    for (int i = 0; i < 20'000; ++i) __asm__ volatile("imul %0, %0" : "+r"(x));
    best = std::min(best, now() - begin);
  }
  return best / 60'000;
}

int run(int argc, char** argv) {
  const auto type = dtype_from_name(argc > 1 ? argv[1] : "q4_0");
  require(type.has_value(), ErrorCode::kInvalidArgument, "'{}' is no storage type", argv[1]);
  const std::string shape = argc > 2 ? argv[2] : "512x2048";
  const int64_t rows = std::stoll(shape), cols = std::stoll(shape.substr(shape.find('x') + 1));
  const auto copies = static_cast<size_t>(argc > 4 ? std::stoi(argv[4]) : 1);
  const IsaLevel isa = best_isa();
  const kernels::MatmulLayout* layout = kernels::matmul_layout(*type, isa);
  const bool super = layout && layout->few.input == kernels::MatmulInput::kInt8Super;
  require(layout && (super || layout->few.input == kernels::MatmulInput::kInt8) &&
              rows % kernels::kMatmulRows == 0,
          ErrorCode::kInvalidArgument, "expected a type that reads int8, and a multiple of {} rows",
          kernels::kMatmulRows);
  const auto row_bytes = *quant::row_bytes(*type, static_cast<uint64_t>(cols));
  std::mt19937 random(1);
  std::vector<uint8_t> source(static_cast<size_t>(rows) * row_bytes);
  for (auto& b : source) b = static_cast<uint8_t>(random() & 0x3b);  // no fp16 of these is huge
  const ops::MatrixSource part[] = {{{source.data(), *type, {rows, cols}}, {}}};
  ThreadPool pool(1);
  std::vector<ops::PackedMatrix> weights;
  for (size_t i = 0; i < copies; ++i) weights.push_back(ops::pack_matrix(part, isa, pool));
  AlignedBuffer scratch(kernels::kMatmulScratchBytes);
  const double cycle = cycle_seconds();
  fmt::print("{} {} x {}, {:.2f} GHz, cycles a block:", dtype_name(*type), shape, copies, 1e-9 / cycle);
  for (const std::string& count : bench::split(argc > 3 ? argv[3] : "8,16,32,96")) {
    const int64_t tokens = std::stoll(count);
    const int64_t stride = (cols / kernels::kBlockCols | 1) * int64_t{sizeof(kernels::ActivationBlock)};
    std::vector<float> x(static_cast<size_t>(cols)), out(static_cast<size_t>(tokens * (rows + 16)));
    AlignedBuffer input(static_cast<size_t>(tokens * stride));
    for (int64_t t = 0; t < tokens; ++t) {
      for (auto& v : x) v = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
      const kernels::MatmulInputKernels& convert = kernels::matmul_input_kernels(isa);
      (super ? convert.quantize_super : convert.quantize)(
          x.data(), cols, reinterpret_cast<kernels::ActivationBlock*>(input.data() + t * stride));
    }
    const kernels::MatmulKernel* both[] = {&layout->few, &layout->some};
    std::vector<double> times[2];
    const double stop = now() + 1;
    // Each run takes the next copy: a kernel must not find what the other has just read.
    for (size_t round = 0; now() < stop || round < 2 * copies;) {
      for (auto& of_kernel : times) {
        const int i = &of_kernel == &times[1];
        const ops::PackedMatrix& w = weights[round++ % copies];
        const kernels::MatmulTask task = {w.data_.data(),
                                          w.panel_bytes_,
                                          rows / kernels::kMatmulRows,
                                          cols,
                                          input.data(),
                                          stride,
                                          tokens,
                                          out.data(),
                                          rows + 16,
                                          scratch.data(),
                                          0};
        const double begin = now();
        both[i]->run(task);
        of_kernel.push_back(now() - begin);
      }
    }
    const auto median = [](std::vector<double>& of) {
      std::nth_element(of.begin(), of.begin() + static_cast<int64_t>(of.size() / 2), of.end());
      return of[of.size() / 2];
    };
    const double blocks = static_cast<double>(rows * cols) / 512;
    fmt::print(" | {} tokens: vectors {:.1f}", tokens, median(times[0]) / cycle / blocks);
    if (layout->some.run != layout->few.run) fmt::print(", tiles {:.1f}", median(times[1]) / cycle / blocks);
    std::fflush(stdout);
  }
  fmt::print("\n");
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::bench::guarded("block_bench", millrace::run, argc, argv); }
