// What few rows' products make of the memory: stretches of packed weights pass through a kernel, and between
// them as much memory is read with nothing else done. Each stretch is set against the two readings beside it,
// since what memory gives moves from one second to the next: the ratios' median is good to a hundredth where
// rates are not good to a third.
//
//   stream_bench [TYPE,...] [COLS,...] [TOKENS,...] [THREADS] [ISA] [ROUNDS]
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench.h"
#include "core/arena.h"
#include "core/cpu.h"
#include "core/error.h"
#include "kernels/matmul.h"
#include "ops/matmul.h"

namespace millrace {
namespace {

using bench::now;
using bench::split;

constexpr int64_t kStretchBytes = int64_t{36} << 20;
constexpr size_t kAllBytes = size_t{1} << 30;  // more than the caches of common servers
constexpr int64_t kUnitPanels = 4;

/// Weights as far as their kernel is concerned: bytes, of which no scale is a number that slows it down.
class Weights {
 public:
  explicit Weights(ThreadPool& pool) : pool_(pool), bytes_(kAllBytes) {
    std::memset(bytes_.data(), 0x11, bytes_.size());
  }
  const std::byte* next(int64_t bytes) {
    if (at_ + bytes > static_cast<int64_t>(bytes_.size())) at_ = 0;
    at_ += bytes;
    return bytes_.data() + at_ - bytes;
  }
  /// Bytes a second.
  double read(int64_t bytes) {
    const std::byte* from = next(bytes);
    const int64_t share = bytes / pool_.num_threads();
    const double begin = now();
    pool_.run([&](int thread) { kernels::read_stream(from + share * thread, static_cast<size_t>(share)); });
    return static_cast<double>(bytes) / (now() - begin);
  }

 private:
  ThreadPool& pool_;
  AlignedBuffer bytes_;
  int64_t at_ = 0;
};

struct Rig {
  ThreadPool& pool;
  Weights& weights;
  IsaLevel isa;
  int rounds;
  Arena arena;
  std::vector<AlignedBuffer> scratch;
};

void measure(Rig& rig, DType type, int64_t cols, int64_t tokens) {
  const kernels::MatmulLayout* layout = kernels::matmul_layout(type, rig.isa);
  require(layout != nullptr, ErrorCode::kInvalidArgument, "'{}' has no kernel", dtype_name(type));
  const int threads = rig.pool.num_threads();
  const int64_t panel_bytes = layout->panel_bytes(cols),
                panels = kStretchBytes / panel_bytes / threads * threads;
  require(panels > 0, ErrorCode::kInvalidArgument, "{} columns are too many", cols);
  const int64_t bytes = panels * panel_bytes;
  const kernels::MatmulKernel& kernel = layout->kernel(tokens, cols);
  rig.arena.reset();
  const ops::Context context{rig.pool, kernels::table(rig.isa), rig.arena};
  const std::vector<float> x(static_cast<size_t>(tokens * cols), 1.0f);
  ops::MatmulInput input = ops::make_input(x.data(), tokens, cols);
  const auto form = static_cast<ops::InputForm>(kernel.input);
  ops::prepare_rows(context, input, form, 0, tokens);
  const std::byte* rows = form == ops::InputForm::kF32 ? reinterpret_cast<const std::byte*>(x.data())
                                                       : input.prepared[static_cast<size_t>(form)].rows;
  std::vector<std::vector<float>> out(
      static_cast<size_t>(threads),
      std::vector<float>(static_cast<size_t>(kernels::kMatmulRows * kUnitPanels * tokens)));
  uint64_t call = 0;
  const auto multiply = [&] {
    const std::byte* from = rig.weights.next(bytes);
    ++call;
    const double begin = now();
    rig.pool.run([&](int thread) {
      kernels::MatmulTask task{};
      task.panel_bytes = panel_bytes;
      task.cols = cols;
      task.input = rows;
      task.input_stride = ops::prepared_stride(form, input);
      task.tokens = tokens;
      task.out = out[static_cast<size_t>(thread)].data();
      task.out_stride = kernels::kMatmulRows * kUnitPanels;
      task.scratch = rig.scratch[static_cast<size_t>(thread)].data();
      task.call = call;
      const int64_t end = panels * (thread + 1) / threads;
      for (int64_t panel = panels * thread / threads; panel < end; panel += kUnitPanels) {
        task.num_panels = std::min(kUnitPanels, end - panel);
        task.panels = from + panel * panel_bytes;
        kernel.run(task);
      }
    });
    return static_cast<double>(bytes) / (now() - begin);
  };
  std::vector<double> rates, reads, ratios;
  double before = rig.weights.read(bytes);
  for (int round = 0; round < rig.rounds; ++round) {
    rates.push_back(multiply());
    const double after = rig.weights.read(bytes);
    reads.push_back(after);
    ratios.push_back(2 * rates.back() / (before + after));
    before = after;
  }
  const auto quarter = [](std::vector<double>& values, size_t which) {
    std::sort(values.begin(), values.end());
    return values[values.size() * which / 4];
  };
  fmt::print(
      "{:8} {:>6} columns {:>3} tokens  {:5.1f} GB/s, reading {:5.1f}: {:.3f} of it ({:.3f} to {:.3f})\n",
      dtype_name(type), cols, tokens, quarter(rates, 2) / 1e9, quarter(reads, 2) / 1e9, quarter(ratios, 2),
      quarter(ratios, 1), quarter(ratios, 3));
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const auto text = [&](int i, const char* standard) { return argc > i ? argv[i] : standard; };
  ThreadPool pool(std::stoi(text(4, "0")));
  Weights weights(pool);
  Rig rig{pool, weights, parse_isa(text(5, "auto")), std::max(4, std::stoi(text(6, "80"))), {}, {}};
  for (int t = 0; t < pool.num_threads(); ++t) rig.scratch.emplace_back(kernels::kMatmulScratchBytes);
  for (const std::string& name : split(text(1, "q4_0,q4_k,q8_0,bf16"))) {
    const auto type = dtype_from_name(name);
    require(type.has_value(), ErrorCode::kInvalidArgument, "'{}' is no storage type", name);
    for (const std::string& cols : split(text(2, "2048,8192")))
      for (const std::string& tokens : split(text(3, "1")))
        measure(rig, *type, std::stoll(cols), std::stoll(tokens));
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  return millrace::bench::guarded("stream_bench", millrace::run, argc, argv);
}
