#include "cli/bench_machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "core/dtype.h"
#include "kernels/matmul.h"

namespace millrace::cli {
namespace {

constexpr size_t kBufferBytes = size_t{384} << 20;  // more than the caches of common machines

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Operations a second of all threads, the best of a few samples of about a millisecond.
double peak(ThreadPool& pool, double (*kernel)(int64_t)) {
  if (!kernel) return 0;
  double best = 0;
  std::vector<double> operations(static_cast<size_t>(pool.num_threads()));
  for (int sample = 0; sample < 10; ++sample) {
    const double begin = now();
    pool.run([&](int thread) { operations[static_cast<size_t>(thread)] = kernel(200'000); });
    double sum = 0;
    for (double o : operations) sum += o;
    best = std::max(best, sum / (now() - begin));
  }
  return best;
}

double read_rate(ThreadPool& pool, const AlignedBuffer& buffer) {
  const double begin = now();
  const auto threads = static_cast<size_t>(pool.num_threads());
  const size_t share = buffer.size() / threads;
  pool.run(
      [&](int thread) { kernels::read_stream(buffer.data() + share * static_cast<size_t>(thread), share); });
  return static_cast<double>(share * threads) / (now() - begin);
}

}  // namespace

MachineLimits::MachineLimits(ThreadPool& pool, IsaLevel isa) : pool_(pool), isa_(isa), buffer_(kBufferBytes) {
  std::memset(buffer_.data(), 1, buffer_.size());
  for (int round = 0; round < 3; ++round) measure();
}

void MachineLimits::measure() {
  const kernels::MatmulPeaks peaks = kernels::matmul_peaks(isa_);
  int8_ops = std::max(int8_ops, peak(pool_, peaks.int8));
  bf16_ops = std::max(bf16_ops, peak(pool_, peaks.bf16));
  f32_ops = std::max(f32_ops, peak(pool_, peaks.f32));
  tile_int8_ops = std::max(tile_int8_ops, peak(pool_, peaks.tile_int8));
  tile_bf16_ops = std::max(tile_bf16_ops, peak(pool_, peaks.tile_bf16));
  for (int pass = 0; pass < 2; ++pass) read_bytes = std::max(read_bytes, read_rate(pool_, buffer_));
}

double MachineLimits::tile_seconds(std::string_view name, double operations) const {
  if (tile_bf16_ops == 0 || (!name.starts_with("matmul ") && !name.starts_with("experts "))) return 0;
  return operations / tile_bf16_ops;
}

double MachineLimits::compute_seconds(std::string_view name, double operations) const {
  const size_t space = name.rfind(' ');
  if (!name.starts_with("matmul ") && !name.starts_with("experts ")) return 0;
  const auto type = dtype_from_name(name.substr(space + 1));
  const kernels::MatmulLayout* layout = type ? kernels::matmul_layout(*type, isa_) : nullptr;
  if (!layout) return 0;
  switch (layout->few.input) {
    case kernels::MatmulInput::kInt8:
      return operations / int8_ops;
    case kernels::MatmulInput::kBF16:
      return operations / std::max(bf16_ops, f32_ops);
    case kernels::MatmulInput::kF32:
      return operations / f32_ops;
  }
  return 0;
}

}  // namespace millrace::cli
