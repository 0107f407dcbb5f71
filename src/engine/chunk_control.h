// How many prompt tokens may be computed beside decodes, so that a step takes at most so many times as long
// as without them. Learned as it runs: what steps without prompts take, by how many decode; what any rows of
// prompts add, however few (their products may be made by kernels that unpack the weights again); and what
// each row adds lately, which grows with the depth of the prompt. (One line fitted to all steps would not
// do: while a long prompt is computed every step has some of it, and what they take would be believed to be
// the decodes' own.)
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "engine/cost_model.h"

namespace millrace::engine {

class ChunkControl {
 public:
  /// One step: rows that decoded, rows of prompts, and what it took.
  void record(int64_t decodes, int64_t chunk_rows, double seconds) {
    if (chunk_rows == 0) {
      if (decodes > 0) follow(decode_seconds_[bucket(decodes)], seconds, 0.1);
      return;
    }
    const double alone = decodes > 0 ? decode_seconds(decodes) : 0;
    if (decodes > 0 && alone == 0) return;
    // At least a tenth of the step is the prompt's: what decodes take varies, too.
    const double added = std::max(seconds - alone, 0.1 * seconds);
    added_.record(chunk_rows, added);
    follow(row_seconds_, std::max(added - added_.fixed(), 0.1 * added) / static_cast<double>(chunk_rows),
           0.3);
  }

  /// Rows of prompts beside so many decodes, at least `least`; -1: not known yet.
  int32_t rows(int64_t decodes, double factor, int32_t least) const {
    const double alone = decode_seconds(decodes);
    if (alone == 0 || row_seconds_ == 0) return -1;
    const double room = ((factor - 1) * alone - added_.fixed()) / row_seconds_;
    // Fewer rows than cost as much as having any would take the prompt longer and those who decode no less.
    const double worth_it = added_.fixed() / row_seconds_;
    return std::max(least, static_cast<int32_t>(std::min(std::max(room, worth_it), 1e6)));
  }

 private:
  static size_t bucket(int64_t decodes) {
    return std::min<size_t>(std::bit_width(static_cast<uint64_t>(decodes)), 31);
  }
  /// Of the bucket, or of the nearest one below that is known, or above.
  double decode_seconds(int64_t decodes) const {
    const size_t own = bucket(decodes);
    for (size_t b = own + 1; b-- > 0;)
      if (decode_seconds_[b] > 0) return decode_seconds_[b];
    for (size_t b = own; b < decode_seconds_.size(); ++b)
      if (decode_seconds_[b] > 0) return decode_seconds_[b];
    return 0;
  }
  /// One disturbed step moves the mean only so far.
  static void follow(double& mean, double value, double weight) {
    mean = mean == 0 ? value : (1 - weight) * mean + weight * std::clamp(value, mean / 3, 3 * mean);
  }

  std::array<double, 32> decode_seconds_{};  // [bits of the number of decodes]
  CostModel added_;                          // by prompts' rows to a step
  double row_seconds_ = 0;
};

}  // namespace millrace::engine
