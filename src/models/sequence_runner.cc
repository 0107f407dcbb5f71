#include "models/sequence_runner.h"

#include <algorithm>
#include <numeric>

#include "core/checked.h"
#include "core/error.h"

namespace millrace::models {
namespace {

std::vector<int64_t> block_counts(const layers::CacheLayout& layout, int32_t max_tokens) {
  std::vector<int64_t> counts;
  for (const auto& group : layout.groups)
    counts.push_back(
        group.spec.kind == layers::CacheSpec::Kind::kRecurrent ? 1 : ceil_div(max_tokens, layout.block_size));
  return counts;
}

}  // namespace

SequenceRunner::SequenceRunner(Model& model, ThreadPool& pool, IsaLevel isa, layers::KvType kv_type,
                               int32_t max_tokens, int32_t block_size)
    : model_(model),
      pool_(pool),
      isa_(isa),
      cache_(layers::make_cache_layout(model.cache_specs(), block_size, kv_type),
             block_counts(layers::make_cache_layout(model.cache_specs(), block_size, kv_type), max_tokens)),
      lookahead_(pool),
      max_tokens_(max_tokens) {
  for (size_t g = 0; g < cache_.layout().groups.size(); ++g) {
    std::vector<int32_t> table(static_cast<size_t>(cache_.num_blocks(static_cast<int>(g))));
    std::iota(table.begin(), table.end(), 0);
    tables_.push_back(std::move(table));
  }
  reset();
}

void SequenceRunner::reset() {
  length_ = 0;
  history_.clear();
  for (size_t g = 0; g < cache_.layout().groups.size(); ++g)
    if (cache_.layout().groups[g].spec.kind == layers::CacheSpec::Kind::kRecurrent)
      cache_.zero_block(static_cast<int>(g), 0);
}

const float* SequenceRunner::append(std::span<const int32_t> tokens, const LogitsVisitor* all_logits,
                                    int32_t chunk) {
  require(!tokens.empty(), ErrorCode::kInvalidArgument, "no tokens to append");
  require(static_cast<int64_t>(tokens.size()) + length_ <= max_tokens_, ErrorCode::kLimitExceeded,
          "{} tokens are more than the {} there is room for", tokens.size() + static_cast<size_t>(length_),
          max_tokens_);
  const int32_t vocab = model_.info().vocab_size;
  for (const int32_t id : tokens)
    require(id >= 0 && id < vocab, ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}",
            id, vocab);
  // As in service: a token that comes by itself was answered, others are a prompt.
  const bool answer = length_ > 0 && tokens.size() == 1;
  const int32_t old_length = length_, grown = length_ + static_cast<int32_t>(tokens.size());
  std::vector<int32_t> again;
  const int32_t border = model_.info().rope_switch;
  if (border > 0) {
    again = history_;
    again.insert(again.end(), tokens.begin(), tokens.end());
    if (length_ > 0 && length_ <= border && grown > border && !model_.info().rope_by_length) {
      // Beyond the border the whole text rotates otherwise: the keys so far are of no use.
      reset();
      tokens = again;
    }
    history_ = again;
  }
  const ops::Context context{pool_, kernels::table(isa_), arena_, profiler, &lookahead_};
  std::vector<std::span<const int32_t>> tables(tables_.begin(), tables_.end());
  const auto total = static_cast<int32_t>(tokens.size());
  for (int32_t begin = 0; begin < total; begin += chunk) {
    const int32_t rows = std::min(chunk, total - begin);
    const bool last = begin + rows == total;
    std::vector<int32_t> positions(static_cast<size_t>(rows)), wanted;
    std::iota(positions.begin(), positions.end(), length_);
    if (all_logits) {
      wanted.resize(static_cast<size_t>(rows));
      std::iota(wanted.begin(), wanted.end(), 0);
    } else if (last) {
      wanted = {rows - 1};
    }
    const layers::BatchSequence sequence{0, rows, length_ + rows, tables, length_ + total - begin};
    const layers::Batch batch{tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
                              positions,
                              {&sequence, 1},
                              wanted,
                              answer ? 0 : rows};
    logits_.resize(std::max<size_t>(1, wanted.size()) * static_cast<size_t>(vocab));
    arena_.reset();
    lookahead_.begin_step();
    model_.forward(context, batch, cache_, {wanted.empty() ? nullptr : logits_.data(), nullptr});
    // Rows computed again have been shown before.
    const int32_t shown = std::clamp(old_length - length_, 0, rows);
    if (all_logits && shown < rows)
      (*all_logits)(length_ + shown, rows - shown, logits_.data() + int64_t{shown} * vocab);
    length_ += rows;
  }
  return logits_.data() + logits_.size() - static_cast<size_t>(vocab);
}

}  // namespace millrace::models
