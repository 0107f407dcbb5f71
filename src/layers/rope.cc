#include "layers/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace millrace::layers {

ops::RopeTable Rope::table(const Step& step) const {
  const ops::Context& context = step.context();
  const ops::RopeTable base = ops::make_rope_table(context, frequencies, step.batch().positions);
  if (original_context == 0 || (!long_frequencies && dynamic_factor <= 0)) return base;
  const int64_t half = dim / 2;
  for (const BatchSequence& s : step.batch().sequences) {
    const int32_t text = std::max(s.context_length, s.text_length);
    if (text <= original_context) continue;
    const auto positions = step.batch().positions.subspan(static_cast<size_t>(s.query_begin),
                                                          static_cast<size_t>(s.query_length));
    ops::RopeTable own;
    if (long_frequencies) {
      own = ops::make_rope_table(context, *long_frequencies, positions);
    } else {
      // Dynamic NTK: the base grows with the length reached (transformers' _compute_dynamic_ntk_parameters).
      const double length = text, original = original_context;
      const double grown = dynamic_factor * length / original - (dynamic_factor - 1);
      own = ops::make_rope_table(context, ops::rope_ntk(dim, dynamic_base, grown), positions);
    }
    const auto bytes = static_cast<size_t>(half) * static_cast<size_t>(s.query_length) * sizeof(float);
    std::memcpy(const_cast<float*>(base.cosine) + s.query_begin * half, own.cosine, bytes);
    std::memcpy(const_cast<float*>(base.sine) + s.query_begin * half, own.sine, bytes);
  }
  return base;
}

}  // namespace millrace::layers
