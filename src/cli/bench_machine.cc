#include "cli/bench_machine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "kernels/matmul.h"

namespace millrace::cli {
namespace {

constexpr size_t kSampleBytes = size_t{96}
                                << 20;  // 3 ms at 30 GB/s: much more than starting the threads takes

/// More than the caches hold: of a buffer of 384 MiB, which is more than the caches of common machines, one
/// server with 480 MiB of cache read a fifth faster than memory brings it.
size_t buffer_bytes() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const size_t wanted = std::max(size_t{384} << 20, 2 * static_cast<size_t>(std::max(cache, 0L)));
  return std::min(wanted, size_t{1} << 30) / kSampleBytes * kSampleBytes;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Operations a second of all threads, for about a millisecond.
double peak(ThreadPool& pool, double (*kernel)(int64_t)) {
  if (!kernel) return 0;
  std::vector<double> operations(static_cast<size_t>(pool.num_threads()));
  const double begin = now();
  pool.run([&](int thread) { operations[static_cast<size_t>(thread)] = kernel(200'000); });
  double sum = 0;
  for (double o : operations) sum += o;
  return sum / (now() - begin);
}

double read_rate(ThreadPool& pool, std::span<const std::byte> buffer) {
  const double begin = now();
  const auto threads = static_cast<size_t>(pool.num_threads());
  const size_t share = buffer.size() / threads;
  pool.run(
      [&](int thread) { kernels::read_stream(buffer.data() + share * static_cast<size_t>(thread), share); });
  return static_cast<double>(share * threads) / (now() - begin);
}

}  // namespace

void Work::add(std::string_view name, double read, double operations, IsaLevel isa) {
  const bool products = name.starts_with("matmul ") || name.starts_with("experts ");
  if (name.starts_with("matmul") || name.starts_with("experts") ||
      name.find("attention") != std::string_view::npos)
    bytes += read;
  if (!products) return;
  const auto type = dtype_from_name(name.substr(name.rfind(' ') + 1));
  const kernels::MatmulLayout* layout = type ? kernels::matmul_layout(*type, isa) : nullptr;
  if (!layout) return;
  switch (layout->few.input) {
    case kernels::MatmulInput::kInt8:
    case kernels::MatmulInput::kInt8Super:
      int8_ops += operations;
      return;
    case kernels::MatmulInput::kBF16:
      bf16_ops += operations;
      return;
    case kernels::MatmulInput::kF32:
      f32_ops += operations;
      return;
    case kernels::MatmulInput::kF16:  // read by rounded kernels only
      return;
  }
}

double Work::compute_seconds(const MachineRates& rates) const {
  double seconds = f32_ops / rates.f32_ops + bf16_ops / std::max(rates.bf16_ops, rates.f32_ops);
  if (int8_ops > 0) seconds += int8_ops / rates.int8_ops;
  return seconds;
}

double Work::tile_seconds(const MachineRates& rates) const {
  return rates.tile_bf16_ops == 0 ? 0 : (int8_ops + bf16_ops + f32_ops) / rates.tile_bf16_ops;
}

double Work::limit_seconds(const MachineRates& rates) const {
  return std::max(memory_seconds(rates), compute_seconds(rates));
}

MachineLimits::MachineLimits(ThreadPool& pool, IsaLevel isa)
    : pool_(pool), isa_(isa), buffer_(buffer_bytes()) {
  std::memset(buffer_.data(), 1, buffer_.size());
  for (int sample = 0; sample < 20; ++sample) measure();
}

MachineRates MachineLimits::measure() {
  const kernels::MatmulPeaks peaks = kernels::matmul_peaks(isa_);
  const std::span<const std::byte> part(reinterpret_cast<const std::byte*>(buffer_.data()) + at_,
                                        kSampleBytes);
  at_ = (at_ + kSampleBytes) % buffer_.size();
  const MachineRates now = {read_rate(pool_, part),       peak(pool_, peaks.int8),
                            peak(pool_, peaks.bf16),      peak(pool_, peaks.f32),
                            peak(pool_, peaks.tile_int8), peak(pool_, peaks.tile_bf16)};
  for (double MachineRates::*rate :
       {&MachineRates::read_bytes, &MachineRates::int8_ops, &MachineRates::bf16_ops, &MachineRates::f32_ops,
        &MachineRates::tile_int8_ops, &MachineRates::tile_bf16_ops})
    best_.*rate = std::max(best_.*rate, now.*rate);
  return now;
}

}  // namespace millrace::cli
