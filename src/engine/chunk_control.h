// How many prompt tokens may be computed beside decodes, so that a step takes at most so many times as long
// as without them. Learned as it runs: what steps without prompts take, by how many decode; what rows of
// prompts add, a part however few they are (their products may be made by kernels that unpack the weights
// again) and a part each; and by how much that is more lately, since it grows with the depth of a prompt.
// (One line fitted to all steps would not do: while a long prompt is computed every step has some of it, and
// what they take would be believed to be the decodes' own.)
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
    follow(lately_, added / added_.step(chunk_rows), 0.3);
  }

  /// Rows of prompts beside so many decodes, at least `least`; -1: not known yet.
  int32_t rows(int64_t decodes, double factor, int32_t least) const {
    const double alone = decode_seconds(decodes);
    if (alone == 0 || !added_.known()) return -1;
    const double room = ((factor - 1) * alone / lately_ - added_.fixed()) / added_.per_row();
    return std::max(least, static_cast<int32_t>(std::min(std::max(room, worth_having()), 1e6)));
  }

 private:
  /// With fewer rows almost all that they add is what any rows add: the prompt would take longer, and those
  /// who decode would hardly wait less.
  double worth_having() const {
    constexpr double kMost = 64;  // wherever the line may have been fitted
    return std::min(0.5 * added_.fixed() / added_.per_row(), kMost);
  }
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
    mean = mean == 0 ? value : (1 - weight) * mean + weight * std::clamp(value, mean / 2, 2 * mean);
  }

  std::array<double, 32> decode_seconds_{};  // [bits of the number of decodes]
  CostModel added_;                          // by prompts' rows to a step
  double lately_ = 0;                        // measured over what the line says
};

}  // namespace millrace::engine
