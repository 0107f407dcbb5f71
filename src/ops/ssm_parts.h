// What the state-space operations share; for their sources only.
#pragma once

#include <span>

#include "ops/ssm.h"

namespace millrace::ops {

/// body(sequence, unit, thread) for `units` pieces of every sequence.
template <typename Body>
void over_sequences(const Context& context, std::span<const StateSequence> sequences, int64_t units,
                    Body&& body) {
  const int64_t total = static_cast<int64_t>(sequences.size()) * units;
  context.pool.parallel_for(total, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      const StateSequence& s = sequences[static_cast<size_t>(i / units)];
      if (s.length > 0) body(s, i % units, thread);
    }
  });
}

inline double rows_of(std::span<const StateSequence> sequences) {
  double rows = 0;
  for (const StateSequence& s : sequences) rows += s.length;
  return rows;
}

}  // namespace millrace::ops
