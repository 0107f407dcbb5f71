#include "cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <span>

#include "core/checked.h"
#include "core/error.h"

namespace millrace::cli {
namespace {

constexpr int32_t kBlockSize = 16;

layers::CacheLayout layout_of(const models::Model& model, layers::KvType kv_type) {
  return layers::make_cache_layout(model.cache_specs(), kBlockSize, kv_type);
}

bool is_state(const layers::CacheGroup& group) {
  return group.spec.kind == layers::CacheSpec::Kind::kRecurrent;
}

std::vector<int64_t> block_counts(const layers::CacheLayout& layout, int32_t sequences, int32_t capacity) {
  std::vector<int64_t> counts;
  for (const auto& group : layout.groups)
    counts.push_back(is_state(group) ? sequences : int64_t{sequences} * ceil_div(capacity, kBlockSize));
  return counts;
}

}  // namespace

BenchSequences::BenchSequences(models::Model& model, ThreadPool& pool, IsaLevel isa, layers::KvType kv_type,
                               int32_t sequences, int32_t depth, int32_t new_tokens)
    : model_(model),
      pool_(pool),
      isa_(isa),
      cache_(layout_of(model, kv_type),
             block_counts(layout_of(model, kv_type), sequences, depth + new_tokens)),
      sequences_(sequences),
      depth_(depth),
      length_(depth),
      capacity_(depth + new_tokens),
      lookahead_(pool) {
  const layers::CacheLayout& layout = cache_.layout();
  // Touched, since pages that were never written are all one page of zeros, and that lies in the first cache.
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    std::vector<std::byte> block(static_cast<size_t>(layout.block_bytes(static_cast<int>(g))),
                                 std::byte{0x11});
    for (int64_t b = 0; b < cache_.num_blocks(static_cast<int>(g)); ++b) {
      if (is_state(layout.groups[g]))
        cache_.zero_block(static_cast<int>(g), static_cast<int32_t>(b));
      else
        cache_.write_block(static_cast<int>(g), static_cast<int32_t>(b), block.data());
    }
  }
  const auto blocks = static_cast<int32_t>(ceil_div(capacity_, kBlockSize));
  for (int32_t s = 0; s < sequences; ++s) {
    auto& tables = tables_.emplace_back();
    for (const auto& group : layout.groups) {
      std::vector<int32_t> table(is_state(group) ? 1 : static_cast<size_t>(blocks));
      std::iota(table.begin(), table.end(), is_state(group) ? s : s * blocks);
      tables.push_back(std::move(table));
    }
  }
  logits_.resize(static_cast<size_t>(sequences) * static_cast<size_t>(model.info().vocab_size));
}

double BenchSequences::step(int32_t tokens, ops::Profiler* profiler, int32_t following) {
  check(length_ + tokens <= capacity_, "a benchmark of {} tokens has room for {}", length_ + tokens,
        capacity_);
  const auto rows = static_cast<size_t>(tokens) * static_cast<size_t>(sequences_);
  std::vector<int32_t> ids(rows), positions(rows), wanted;
  std::vector<layers::BatchSequence> batch_sequences;
  std::vector<std::vector<std::span<const int32_t>>> tables(tables_.size());
  for (int32_t s = 0; s < sequences_; ++s) {
    const auto index = static_cast<size_t>(s);
    tables[index].assign(tables_[index].begin(), tables_[index].end());
    for (int32_t i = 0; i < tokens; ++i) {
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      ids[static_cast<size_t>(s * tokens + i)] =
          static_cast<int32_t>((random_ >> 33) % static_cast<uint64_t>(model_.info().vocab_size));
      positions[static_cast<size_t>(s * tokens + i)] = length_ + i;
    }
    batch_sequences.push_back(
        {s * tokens, tokens, length_ + tokens, tables[index], length_ + tokens + following});
    wanted.push_back((s + 1) * tokens - 1);
  }
  const layers::Batch batch{ids, positions, batch_sequences, wanted, tokens > 1 ? tokens * sequences_ : 0};
  const ops::Context context{pool_, kernels::table(isa_), arena_, profiler, &lookahead_};
  const auto begin = std::chrono::steady_clock::now();
  arena_.reset();
  lookahead_.begin_step();
  model_.forward(context, batch, cache_, {logits_.data(), nullptr});
  const int64_t vocab = model_.info().vocab_size;
  for (int32_t s = 0; s < sequences_; ++s) context.kernels.argmax(logits_.data() + s * vocab, vocab);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  length_ += tokens;
  return seconds;
}

}  // namespace millrace::cli
