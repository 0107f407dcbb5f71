#include "engine/runner.h"

#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "engine/kv/siphash.h"
#include "kernels/table.h"

namespace millrace::engine {

Runner::Runner(std::unique_ptr<models::Model> model, std::shared_ptr<ThreadPool> pool, IsaLevel isa,
               layers::CacheLayout layout, std::vector<int64_t> blocks_per_group)
    : model_(std::move(model)),
      pool_(std::move(pool)),
      isa_(isa),
      cache_(std::move(layout), std::move(blocks_per_group)),
      lookahead_(*pool_) {
  for (const layers::CacheGroup& group : cache_.layout().groups) {
    int64_t bytes = 0;
    for (const int32_t layer : group.layers) bytes += cache_.layer_block_bytes(layer);
    block_bytes_.push_back(bytes);
  }
}

void Runner::copy(std::span<const BlockCopy> copies) {
  for (const BlockCopy& c : copies) cache_.copy_block(c.group, c.from, c.to);
}

void Runner::zero(std::span<const std::pair<int32_t, int32_t>> states) {
  for (const auto& [group, slot] : states) cache_.zero_block(group, slot);
}

int64_t Runner::swap_bytes(const BlockTable& table) const {
  int64_t bytes = 0;
  for (size_t g = 0; g < table.blocks.size(); ++g)
    for (const int32_t block : table.blocks[g]) bytes += block >= 0 ? block_bytes_[g] : 0;
  return bytes;
}

void Runner::swap_out(const BlockTable& table, SwappedBlocks& out) const {
  out.size = swap_bytes(table);
  out.bytes.reset(new std::byte[static_cast<size_t>(out.size)]);
  out.table = table;
  std::byte* to = out.bytes.get();
  for (size_t g = 0; g < table.blocks.size(); ++g)
    for (const int32_t block : table.blocks[g]) {
      if (block < 0) continue;
      cache_.read_block(static_cast<int>(g), block, to);
      to += block_bytes_[g];
    }
}

void Runner::swap_in(const SwappedBlocks& from, const BlockTable& table) {
  const std::byte* bytes = from.bytes.get();
  for (size_t g = 0; g < from.table.blocks.size(); ++g)
    for (size_t i = 0; i < from.table.blocks[g].size(); ++i) {
      if (from.table.blocks[g][i] < 0) continue;
      cache_.write_block(static_cast<int>(g), table.blocks[g][i], bytes);
      bytes += block_bytes_[g];
    }
}

uint64_t Runner::fingerprint() {
  const layers::CacheLayout& layout = cache_.layout();
  const models::ModelInfo& info = model_->info();
  Sequence s;
  int64_t count = info.context_length > 0 ? std::min(64, info.context_length) : 64;
  for (size_t g = 0; g < layout.groups.size(); ++g)
    if (layout.groups[g].spec.kind != layers::CacheSpec::Kind::kRecurrent)
      count = std::min(count, cache_.num_blocks(static_cast<int>(g)) * layout.block_size);
  for (int64_t i = 0; i < count; ++i)
    s.tokens.push_back(static_cast<TokenId>(static_cast<uint64_t>(i) * 2654435761u %
                                            static_cast<uint64_t>(info.vocab_size)));
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const bool state = layout.groups[g].spec.kind == layers::CacheSpec::Kind::kRecurrent;
    auto& blocks = s.table.blocks.emplace_back();
    for (int32_t b = 0; b < (state ? 1 : ceil_div(count, layout.block_size)); ++b) {
      cache_.zero_block(static_cast<int>(g), b);
      blocks.push_back(b);
    }
  }
  StepEntry entry{&s, static_cast<int32_t>(count), /*all_rows=*/true, /*outputs=*/true, 0};
  forward({&entry, 1}, /*hidden=*/false);

  constexpr SipKey kKey{0x66696e676572, 0x7072696e74};
  uint64_t hash = siphash(kKey, info.architecture.data(), info.architecture.size());
  const auto mix = [&](uint64_t value) {
    const uint64_t both[2] = {hash, value};
    hash = siphash(kKey, both, sizeof both);
  };
  for (const int64_t n : {static_cast<int64_t>(info.vocab_size), static_cast<int64_t>(info.context_length),
                          static_cast<int64_t>(info.num_parameters), static_cast<int64_t>(info.weight_bytes)})
    mix(static_cast<uint64_t>(n));
  mix(siphash(kKey, outputs_.data(), static_cast<size_t>(count * output_width_) * sizeof(float)));
  std::vector<std::byte> bytes;
  for (size_t g = 0; g < s.table.blocks.size(); ++g) {
    bytes.resize(static_cast<size_t>(block_bytes_[g]));
    for (const int32_t block : s.table.blocks[g]) {
      cache_.read_block(static_cast<int>(g), block, bytes.data());
      mix(siphash(kKey, bytes.data(), bytes.size()));
    }
  }
  return hash;
}

void Runner::forward(std::span<StepEntry> entries, bool hidden) {
  tokens_.clear();
  positions_.clear();
  output_rows_.clear();
  sequences_.clear();
  const size_t groups = cache_.layout().groups.size();
  tables_.resize(entries.size() * groups);
  const auto add = [&](size_t e) {
    StepEntry& entry = entries[e];
    const Sequence& s = *entry.sequence;
    const auto begin = static_cast<int32_t>(tokens_.size());
    for (int32_t i = 0; i < entry.tokens; ++i) {
      tokens_.push_back(s.tokens[static_cast<size_t>(s.computed + i)]);
      positions_.push_back(s.computed + i);
    }
    entry.first_output = static_cast<int32_t>(output_rows_.size());
    if (entry.outputs)
      for (int32_t i = entry.all_rows ? 0 : entry.tokens - 1; i < entry.tokens; ++i)
        output_rows_.push_back(begin + i);
    for (size_t g = 0; g < groups; ++g) tables_[e * groups + g] = s.table.blocks[g];
    sequences_.push_back({begin, entry.tokens, s.computed + entry.tokens,
                          std::span(tables_).subspan(e * groups, groups),
                          static_cast<int32_t>(s.tokens.size())});
  };
  // Rows of prompts first. Loop::chunk_border() keeps chunks from having both kinds.
  const auto of_prompt = [](const StepEntry& e) {
    return e.sequence->computed < e.sequence->prompt_length();
  };
  for (size_t e = 0; e < entries.size(); ++e)
    if (of_prompt(entries[e])) add(e);
  const auto prompt_rows = static_cast<int64_t>(tokens_.size());
  for (size_t e = 0; e < entries.size(); ++e)
    if (!of_prompt(entries[e])) add(e);
  const models::ModelInfo& info = model_->info();
  output_width_ = hidden ? info.hidden_size : info.vocab_size;
  const size_t bytes = output_rows_.size() * static_cast<size_t>(output_width_) * sizeof(float);
  if (outputs_.size() < bytes) outputs_ = AlignedBuffer(bytes + bytes / 2);
  models::Outputs outputs;
  if (!output_rows_.empty()) (hidden ? outputs.hidden : outputs.logits) = outputs_.as<float>();
  arena_.reset();
  lookahead_.begin_step();
  const ops::Context context{*pool_, kernels::table(isa_), arena_, nullptr, &lookahead_};
  model_->forward(context, {tokens_, positions_, sequences_, output_rows_, prompt_rows}, cache_, outputs);
}

std::span<float> Runner::output(int32_t row) {
  return {outputs_.as<float>() + static_cast<int64_t>(row) * output_width_,
          static_cast<size_t>(output_width_)};
}

}  // namespace millrace::engine
