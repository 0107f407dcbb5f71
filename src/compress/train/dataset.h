// Tokenised documents for training, and how they are dealt out to steps.
//
// The file, little-endian: "MRTOKENS" (8 bytes), u32 version (1), u32 vocabulary size, u32 documents, u32
// reserved; then u32 lengths of the documents; then all tokens as u16; then for every token a u8, 1 where it
// is the model's to say (an answer, a story), 0 where it belongs to a prompt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace millrace::train {

struct Segment {
  int begin;   ///< first row
  int length;  ///< rows
};

/// Packed documents of one forward pass. Row r predicts targets[r] from the rows of its own segment up to r.
/// Rows are padded to a multiple of 16 with rows of weight 0 that belong to a segment of their own.
struct MicroBatch {
  std::vector<int> tokens, targets, positions;
  std::vector<float> weights;
  std::vector<Segment> segments;
  double total_weight = 0;  ///< sum of weights
  int64_t predictions = 0;  ///< rows of real documents

  int rows() const { return static_cast<int>(tokens.size()); }
  void clear();
  /// Adds a document: `count` tokens, of which all but the last are rows. `answer` marks as in the file.
  void add(const uint16_t* document, const uint8_t* answer, int count, float prompt_weight);
  void pad();
};

class Dataset {
 public:
  /// Error(kInvalidFile) with what is wrong with the file.
  explicit Dataset(const std::filesystem::path& path);

  int vocab_size() const { return vocab_size_; }
  int64_t num_documents() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t num_tokens() const { return offsets_.back(); }
  const uint16_t* tokens(int64_t document) const { return tokens_.data() + offsets_[document]; }
  const uint8_t* answers(int64_t document) const { return answers_.data() + offsets_[document]; }
  int length(int64_t document) const { return static_cast<int>(offsets_[document + 1] - offsets_[document]); }

 private:
  int vocab_size_ = 0;
  std::vector<int64_t> offsets_;
  std::vector<uint16_t> tokens_;
  std::vector<uint8_t> answers_;
};

/// Walks a dataset in an order shuffled anew for every epoch; the whole state is one number.
class Sampler {
 public:
  Sampler(const Dataset& dataset, uint64_t seed, int context, float prompt_weight);

  /// Fills `batch` with documents until the next one would pass `max_rows`.
  void next(MicroBatch& batch, int max_rows);

  int64_t position() const { return position_; }  ///< documents dealt so far
  void seek(int64_t position);

 private:
  void shuffle(int64_t epoch);

  const Dataset& dataset_;
  uint64_t seed_;
  int context_;
  float prompt_weight_;
  int64_t position_ = 0;
  int64_t epoch_ = -1;
  std::vector<int32_t> order_;
};

}  // namespace millrace::train
