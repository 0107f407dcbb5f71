#include "compress/train/dataset.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace millrace::train {

void MicroBatch::clear() {
  tokens.clear();
  targets.clear();
  positions.clear();
  weights.clear();
  segments.clear();
  total_weight = 0;
  predictions = 0;
}

void MicroBatch::add(const uint16_t* document, const uint8_t* answer, int count, float prompt_weight) {
  if (count < 2) return;
  segments.push_back({rows(), count - 1});
  for (int i = 0; i + 1 < count; ++i) {
    tokens.push_back(document[i]);
    targets.push_back(document[i + 1]);
    positions.push_back(i);
    const float weight = answer[i + 1] ? 1.0f : prompt_weight;
    weights.push_back(weight);
    total_weight += weight;
  }
  predictions += count - 1;
}

void MicroBatch::pad() {
  const int missing = (16 - rows() % 16) % 16;
  if (missing) segments.push_back({rows(), missing});
  for (int i = 0; i < missing; ++i) {
    tokens.push_back(0);
    targets.push_back(0);
    positions.push_back(i);
    weights.push_back(0.0f);
  }
}

Dataset::Dataset(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ErrorCode::kNotFound, "token file '{}' cannot be opened", path.string());
  const uint64_t size = std::filesystem::file_size(path);
  char magic[8];
  uint32_t header[4];
  in.read(magic, 8);
  in.read(reinterpret_cast<char*>(header), sizeof header);
  require(in.good() && std::memcmp(magic, "MRTOKENS", 8) == 0 && header[0] == 1, ErrorCode::kInvalidFile,
          "'{}' is not a token file of version 1", path.string());
  const uint64_t documents = header[2];
  require(header[1] > 0 && header[1] <= 65536, ErrorCode::kInvalidFile,
          "token file '{}': vocabulary of {} tokens, expected 1 to 65536", path.string(), header[1]);
  require(documents > 0 && documents <= (size - 24) / 4, ErrorCode::kInvalidFile,
          "token file '{}': says {} documents, but has only {} bytes", path.string(), documents, size);
  std::vector<uint32_t> lengths(documents);
  in.read(reinterpret_cast<char*>(lengths.data()), static_cast<std::streamsize>(documents * 4));
  offsets_.resize(documents + 1);
  for (size_t i = 0; i < documents; ++i) offsets_[i + 1] = offsets_[i] + lengths[i];
  const auto total = static_cast<uint64_t>(offsets_.back());
  require(size == 24 + documents * 4 + total * 3, ErrorCode::kInvalidFile,
          "token file '{}' has {} bytes, expected {} for {} tokens", path.string(), size,
          24 + documents * 4 + total * 3, total);
  tokens_.resize(total);
  answers_.resize(total);
  in.read(reinterpret_cast<char*>(tokens_.data()), static_cast<std::streamsize>(total * 2));
  in.read(reinterpret_cast<char*>(answers_.data()), static_cast<std::streamsize>(total));
  require(in.good(), ErrorCode::kIo, "token file '{}' could not be read to its end", path.string());
  vocab_size_ = static_cast<int>(header[1]);
  for (const uint16_t token : tokens_)
    require(token < header[1], ErrorCode::kInvalidFile,
            "token file '{}': token {} is beyond the vocabulary of {}", path.string(), token, header[1]);
}

Sampler::Sampler(const Dataset& dataset, uint64_t seed, int context, float prompt_weight)
    : dataset_(dataset), seed_(seed), context_(context), prompt_weight_(prompt_weight) {}

void Sampler::seek(int64_t position) { position_ = position; }

void Sampler::shuffle(int64_t epoch) {
  order_.resize(static_cast<size_t>(dataset_.num_documents()));
  std::iota(order_.begin(), order_.end(), 0);
  Random random(seed_, 1000 + static_cast<uint64_t>(epoch));
  for (size_t i = order_.size() - 1; i > 0; --i)
    std::swap(order_[i], order_[random.below(static_cast<uint32_t>(i + 1))]);
  epoch_ = epoch;
}

void Sampler::next(MicroBatch& batch, int max_rows) {
  batch.clear();
  for (;;) {
    const int64_t epoch = position_ / dataset_.num_documents();
    if (epoch != epoch_) shuffle(epoch);
    const int64_t document = order_[static_cast<size_t>(position_ % dataset_.num_documents())];
    const int count = std::min(dataset_.length(document), context_ + 1);
    if (batch.rows() > 0 && batch.rows() + count - 1 > max_rows) break;
    batch.add(dataset_.tokens(document), dataset_.answers(document), count, prompt_weight_);
    ++position_;
    if (batch.rows() >= max_rows) break;
  }
  batch.pad();
}

}  // namespace millrace::train
