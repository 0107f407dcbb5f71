// Times the matmul core alone, with no model around it: for each storage type and number of tokens, the rate
// as a share of the machine's peak of that arithmetic, or of its read bandwidth, whichever bounds it. Weights
// are random and more than the last cache holds.
//
// From 64 on tokens are a prompt's, whose products may be made by another kernel (ops/matmul.h).
//
//   matmul_bench [TYPE,...] [ROWSxCOLS,...] [TOKENS,...] [THREADS] [ISA]
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench.h"
#include "core/cpu.h"
#include "core/error.h"
#include "ops/matmul.h"
#include "quant/traits.h"

namespace millrace {
namespace {

using bench::now;
using bench::peak;
using bench::split;

/// So many tokens or more are taken for a prompt's.
constexpr int64_t kPrompt = 64;

double read_bandwidth(ThreadPool& pool) {
  const AlignedBuffer buffer(size_t{1} << 30);
  std::memset(const_cast<std::byte*>(buffer.data()), 1, buffer.size());
  double best = 0;
  for (int round = 0; round < 6; ++round) {
    const double begin = now();
    pool.run([&](int thread) {
      const size_t share = buffer.size() / static_cast<size_t>(pool.num_threads());
      kernels::read_stream(buffer.data() + share * static_cast<size_t>(thread), share);
    });
    best = std::max(best, static_cast<double>(buffer.size()) / (now() - begin));
  }
  return best;
}

int run(int argc, char** argv) {
  const auto types = split(argc > 1 ? argv[1] : "q4_0,q4_k,q8_0,bf16");
  const auto shapes = split(argc > 2 ? argv[2] : "2048x2048,2048x8192");
  const auto tokens = split(argc > 3 ? argv[3] : "1,4,8,16,32,512");
  const int threads = argc > 4 ? std::stoi(argv[4]) : 0;
  const IsaLevel isa = parse_isa(argc > 5 ? argv[5] : "auto");
  ThreadPool pool(threads);
  Arena arena;
  const kernels::MatmulPeaks kernels_of = kernels::matmul_peaks(isa);
  const double int8 = peak(pool, kernels_of.int8), bf16 = peak(pool, kernels_of.bf16),
               f32 = peak(pool, kernels_of.f32);
  const double bandwidth = read_bandwidth(pool);
  fmt::print("{} threads, {}: int8 {:.0f} Gop/s, bf16 {:.0f}, f32 {:.0f}, read {:.1f} GB/s\n",
             pool.num_threads(), isa_name(isa), int8 / 1e9, bf16 / 1e9, f32 / 1e9, bandwidth / 1e9);
  const ops::Context context{pool, kernels::table(isa), arena, nullptr};
  std::mt19937 random(1);
  for (const std::string& type_text : types) {
    const auto type = dtype_from_name(type_text);
    require(type.has_value(), ErrorCode::kInvalidArgument, "'{}' is no storage type", type_text);
    for (const std::string& shape : shapes) {
      const int64_t rows = std::stoll(shape), cols = std::stoll(shape.substr(shape.find('x') + 1));
      const auto row_bytes = *quant::row_bytes(*type, static_cast<uint64_t>(cols));
      // As many copies as the caches cannot hold, used in turn: 160 MiB, as it was, lie in the third cache of
      // some servers.
      const size_t copies =
          std::max<size_t>(1, (size_t{768} << 20) / (static_cast<size_t>(rows) * row_bytes));
      std::vector<uint8_t> source(static_cast<size_t>(rows) * row_bytes);
      for (auto& b : source) b = static_cast<uint8_t>(random() & 0x3b);  // no fp16 or bf16 of these is huge
      std::vector<ops::PackedMatrix> w;
      const ops::MatrixSource part[] = {{{source.data(), *type, {rows, cols}}, {}}};
      const double pack_begin = now();
      for (size_t i = 0; i < copies; ++i) w.push_back(ops::pack_matrix(part, isa, pool));
      const double packed = static_cast<double>(w[0].bytes()) * static_cast<double>(copies);
      fmt::print("{:8} {:>10}  pack {:5.2f} GB/s ", dtype_name(*type), shape,
                 packed / (now() - pack_begin) / 1e9);
      for (const std::string& count : tokens) {
        const int64_t n = std::stoll(count);
        std::vector<float> x(static_cast<size_t>(n * cols)), y(static_cast<size_t>(n * rows));
        for (auto& v : x) v = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
        const double operations = 2.0 * static_cast<double>(rows * cols * n);
        const ops::InputForm form = w[0].input_form();
        const bool reads_int8 = form == ops::InputForm::kInt8 || form == ops::InputForm::kInt8Super;
        const double peak_rate = reads_int8                      ? int8
                                 : form == ops::InputForm::kBF16 ? std::max(bf16, f32)
                                                                 : f32;
        double best = 1e9;
        size_t next = 0;
        const double stop = now() + 0.25;
        do {
          arena.reset();
          ops::MatmulInput input = ops::make_input(x.data(), n, cols, 0, n >= kPrompt ? n : 0);
          const double begin = now();
          const int repeats = n < 64 ? 4 : 1;
          for (int i = 0; i < repeats; ++i) ops::matmul(context, w[next++ % copies], input, y.data(), rows);
          best = std::min(best, (now() - begin) / repeats);
        } while (now() < stop);
        const double compute = operations / peak_rate, memory = static_cast<double>(w[0].bytes()) / bandwidth;
        fmt::print("| {:>3}: {:5.1f} Gop/s {:3.0f}% of {} ", n, operations / best / 1e9,
                   100 * std::max(compute, memory) / best, compute > memory ? "ops " : "read");
        std::fflush(stdout);
      }
      fmt::print("\n");
    }
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  return millrace::bench::guarded("matmul_bench", millrace::run, argc, argv);
}
