// What this machine can do, measured now: the limits that a benchmark's figures are shares of.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/arena.h"
#include "core/cpu.h"
#include "core/thread_pool.h"

namespace millrace::cli {

/// Rates of all threads of the pool together, a second.
struct MachineRates {
  double read_bytes = 0;
  double int8_ops = 0;  ///< multiply and add counted as two
  double bf16_ops = 0;  ///< 0 where there is no such instruction
  double f32_ops = 0;
  double tile_int8_ops = 0;  ///< of the matrix unit; 0 where there is none
  double tile_bf16_ops = 0;
};

/// What a step has to read and to multiply.
struct Work {
  double bytes = 0;
  double int8_ops = 0, bf16_ops = 0,
         f32_ops = 0;  ///< matrix products, by the arithmetic of their weights' type

  /// Adds an operation of this name (ops::Profiler). Weights and cached keys and values must come from
  /// memory; what lies between two operations need not. Attention's own products are not counted, which
  /// leaves limits a little high.
  void add(std::string_view name, double bytes, double operations, IsaLevel isa);

  double memory_seconds(const MachineRates& rates) const { return bytes / rates.read_bytes; }
  double compute_seconds(const MachineRates& rates) const;
  /// The products at the peak of the matrix unit in BF16; 0 where there is none.
  double tile_seconds(const MachineRates& rates) const;
  double limit_seconds(const MachineRates& rates) const;  ///< the larger of the first two
};

/// The limits that a benchmark's figures are shares of.
class MachineLimits {
 public:
  MachineLimits(ThreadPool& pool, IsaLevel isa);
  /// A short sample of each rate, about 10 ms: what the machine gives now, which beside busy neighbours is
  /// not what it gave a second ago. The best of all samples is kept.
  MachineRates measure();
  const MachineRates& best() const { return best_; }
  IsaLevel isa() const { return isa_; }

 private:
  ThreadPool& pool_;
  IsaLevel isa_;
  AlignedBuffer buffer_;
  size_t at_ = 0;  // where the next sample reads
  MachineRates best_;
};

}  // namespace millrace::cli
