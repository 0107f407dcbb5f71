// What this machine can do, measured now: the limits that a benchmark's figures are shares of.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/arena.h"
#include "core/cpu.h"
#include "core/thread_pool.h"

namespace millrace::cli {

/// All threads of the pool together. Rates only grow: each measure() takes a few short samples and keeps the
/// best, so that limits taken between the tests are not spoiled by a neighbour's burst.
class MachineLimits {
 public:
  MachineLimits(ThreadPool& pool, IsaLevel isa);
  /// About 60 ms.
  void measure();

  double read_bytes = 0;  ///< bytes a second
  double int8_ops = 0;    ///< multiply and add counted as two, a second
  double bf16_ops = 0;    ///< 0 where there is no such instruction
  double f32_ops = 0;
  double tile_int8_ops = 0;  ///< of the matrix unit; 0 where there is none
  double tile_bf16_ops = 0;

  /// Seconds that an operation of this name (ops::Profiler) needs at least on either side. Matrix products
  /// count with the arithmetic of their weights' type; everything else counts bytes only, which leaves the
  /// limits a little high.
  double memory_seconds(double bytes) const { return bytes / read_bytes; }
  double compute_seconds(std::string_view name, double operations) const;
  /// The same at the matrix unit's peak; 0 where there is none.
  double tile_seconds(std::string_view name, double operations) const;

 private:
  ThreadPool& pool_;
  IsaLevel isa_;
  AlignedBuffer buffer_;
};

}  // namespace millrace::cli
