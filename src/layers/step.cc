#include "layers/step.h"

#include <new>

namespace millrace::layers {

Step::Step(const ops::Context& context, const Batch& batch, KvCache& cache)
    : context_(context), batch_(batch), cache_(cache) {
  const auto num_groups = static_cast<int64_t>(cache.layout().groups.size());
  const auto num_sequences = static_cast<int64_t>(batch.sequences.size());
  by_group_ =
      context.arena.allocate<ops::AttentionSequence>(std::max<int64_t>(1, num_groups * num_sequences));
  for (int64_t g = 0; g < num_groups; ++g) {
    for (int64_t i = 0; i < num_sequences; ++i) {
      const BatchSequence& s = batch.sequences[static_cast<size_t>(i)];
      new (&by_group_[g * num_sequences + i]) ops::AttentionSequence{
          s.query_begin, s.query_length, s.context_length, s.block_tables[static_cast<size_t>(g)]};
    }
  }
}

std::span<const ops::AttentionSequence> Step::sequences(int layer) const {
  const int32_t group = cache_.layout().group_of_layer[static_cast<size_t>(layer)];
  const size_t n = batch_.sequences.size();
  return {by_group_ + static_cast<size_t>(group) * n, n};
}

}  // namespace millrace::layers
