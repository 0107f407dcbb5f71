#include "text/hugging_face/sentence_piece.h"

#include <bit>
#include <cstring>

#include "core/error.h"

namespace millrace::text {
namespace {

/// One message of a protocol buffer, read field by field (protobuf.dev/programming-guides/encoding).
class Message {
 public:
  Message(std::string_view bytes, size_t base, const std::string& origin)
      : bytes_(bytes), base_(base), origin_(&origin) {}

  /// Moves to the next field; false at the end.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    field_ = static_cast<uint32_t>(key >> 3);
    need(key >> 3 != 0 && key >> 3 < (uint64_t{1} << 29), "a field number");
    switch (key & 7) {
      case 0:
        value_ = varint();
        break;
      case 1:
        value_ = fixed(8);
        break;
      case 2: {
        const uint64_t size = varint();
        need(size <= bytes_.size() - at_, "a length within the message");
        data_ = bytes_.substr(at_, size);
        data_base_ = base_ + at_;
        at_ += size;
        break;
      }
      case 5:
        value_ = fixed(4);
        break;
      default:
        need(false, "a wire type of 0, 1, 2 or 5");
    }
    wire_ = static_cast<uint32_t>(key & 7);
    return true;
  }

  uint32_t field() const { return field_; }
  uint64_t integer() const {
    need(wire_ == 0, "an integer");
    return value_;
  }
  bool boolean() const { return integer() != 0; }
  float single() const {
    need(wire_ == 5, "a float");
    return std::bit_cast<float>(static_cast<uint32_t>(value_));
  }
  std::string_view data() const {
    need(wire_ == 2, "a string or message");
    return data_;
  }
  Message message() const { return Message(data(), data_base_, *origin_); }

 private:
  void need(bool condition, const char* expected) const {
    require(condition, ErrorCode::kInvalidFile, "{}: expected {} near byte {} of the SentencePiece model",
            *origin_, expected, base_ + at_);
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      need(at_ < bytes_.size(), "a whole number");
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    need(false, "a number of at most 64 bits");
    return 0;
  }
  uint64_t fixed(size_t size) {
    need(bytes_.size() - at_ >= size, "a whole number");
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i)
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[at_ + i])) << (8 * i);
    at_ += size;
    return value;
  }

  std::string_view bytes_;
  size_t at_ = 0, base_;
  const std::string* origin_;
  uint32_t field_ = 0, wire_ = 0;
  uint64_t value_ = 0;
  std::string_view data_;
  size_t data_base_ = 0;
};

void read_piece(Message message, VocabularyData& data) {
  std::string piece;
  float score = 0;
  int32_t type = 1;
  while (message.next()) {
    if (message.field() == 1)
      piece = std::string(message.data());
    else if (message.field() == 2)
      score = message.single();
    else if (message.field() == 3)
      type = static_cast<int32_t>(std::min<uint64_t>(message.integer(), 99));
  }
  require(type >= 1 && type <= 6, ErrorCode::kInvalidFile, "{}: piece {} has the type {}, expected 1 to 6",
          data.origin, data.tokens.size(), type);
  data.tokens.push_back(std::move(piece));
  data.scores.push_back(score);
  // The numbers are those of GGUF.
  data.types.push_back(type);
}

/// Ids that TrainerSpec names; -1 means none.
void read_trainer(Message message, VocabularyData& data, uint64_t& model_type) {
  const auto id = [&message]() -> std::optional<TokenId> {
    const auto value = static_cast<int64_t>(message.integer());
    if (value < 0 || value > INT32_MAX) return std::nullopt;
    return static_cast<TokenId>(value);
  };
  data.unknown = 0;
  data.bos = 1;
  data.eos = 2;
  while (message.next()) {
    switch (message.field()) {
      case 3:
        model_type = message.integer();
        break;
      case 24:
        data.whitespace_as_suffix = message.boolean();
        break;
      case 40:
        data.unknown = id();
        break;
      case 41:
        data.bos = id();
        break;
      case 42:
        data.eos = id();
        break;
      case 43:
        data.padding = id();
        break;
      default:
        break;
    }
  }
}

void read_normalizer(Message message, VocabularyData& data) {
  while (message.next()) {
    switch (message.field()) {
      case 2:
        data.precompiled_charsmap.assign(message.data().begin(), message.data().end());
        break;
      case 3:
        data.add_space_prefix = message.boolean();
        break;
      case 4:
        data.remove_extra_whitespaces = message.boolean();
        break;
      default:
        break;
    }
  }
}

}  // namespace

VocabularyData parse_sentence_piece(std::string_view bytes, const std::string& origin) {
  VocabularyData data;
  data.origin = origin;
  data.sentence_piece_rules = true;
  data.add_space_prefix = true;
  data.remove_extra_whitespaces = true;
  uint64_t model_type = 1;
  Message model(bytes, 0, origin);
  while (model.next()) {
    if (model.field() == 1)
      read_piece(model.message(), data);
    else if (model.field() == 2)
      read_trainer(model.message(), data, model_type);
    else if (model.field() == 3)
      read_normalizer(model.message(), data);
  }
  require(!data.tokens.empty(), ErrorCode::kInvalidFile, "{}: the SentencePiece model has no pieces", origin);
  require(model_type == 1 || model_type == 2, ErrorCode::kUnsupported,
          "{}: SentencePiece model type {} cannot be read, expected 1 (Unigram) or 2 (BPE)", origin,
          model_type);
  data.model = model_type == 2 ? "llama" : "t5";
  data.pre = "default";
  return data;
}

}  // namespace millrace::text
