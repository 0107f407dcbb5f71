// What the tokenizers made from VocabularyData have in common: the token list, special tokens, BOS and EOS,
// decoding.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/hash.h"
#include "text/tokenizer.h"

namespace millrace::text {

class BaseTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(const std::vector<TokenId>& ids, bool keep_special) const override;
  std::string piece(TokenId id, bool keep_special) const override;

  int32_t vocab_size() const override { return static_cast<int32_t>(data_.tokens.size()); }
  TokenKind kind(TokenId id) const override;
  const std::string& raw(TokenId id) const override;
  std::optional<TokenId> find(std::string_view raw_token) const override;
  std::optional<TokenId> bos() const override { return data_.bos; }
  std::optional<TokenId> eos() const override { return data_.eos; }
  const std::vector<TokenId>& end_of_generation() const override { return end_of_generation_; }
  bool adds_bos() const override { return add_bos_; }
  bool adds_eos() const override { return add_eos_; }
  bool strips_leading_space() const override { return false; }

 protected:
  /// What a vocabulary of one kind takes for granted where the file says nothing.
  struct Defaults {
    std::optional<TokenId> bos, eos, unknown, separator, padding;
    bool add_bos = false, add_eos = false;
  };

  BaseTokenizer(VocabularyData data, const Defaults& defaults);

  /// Ids of a text without special tokens, appended. `after_token` is false when other text stands before it.
  virtual void encode_text(std::string_view text, bool after_token, std::vector<TokenId>& out) const = 0;
  /// Bytes of a normal token in the middle of a text.
  virtual std::string decode_normal(TokenId id) const = 0;

  bool in_range(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < data_.tokens.size(); }
  /// Id of the byte token "<0x41>", or -1.
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }
  /// Value of a byte token, or -1.
  int byte_value(TokenId id) const;
  /// The token that closes a text where the vocabulary adds one (EOS, or BERT's separator).
  virtual std::optional<TokenId> closing_token() const { return data_.eos; }

  VocabularyData data_;
  std::vector<TokenKind> kinds_;
  TextMap ids_;
  AddedTokenMatcher added_;

 private:
  void find_end_of_generation();
  void build_added_tokens();

  TokenId byte_tokens_[256];
  std::vector<TokenId> end_of_generation_;
  bool add_bos_ = false, add_eos_ = false;
};

/// Objects that one encode() call borrows: caches and buffers that would be made anew for every call
/// otherwise. Any number of threads may encode at once; each gets an object of its own.
template <typename T>
class ScratchPool {
 public:
  class Lease {
   public:
    Lease(ScratchPool* pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    ~Lease() { pool_->give_back(std::move(object_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T& operator*() const { return *object_; }
    T* operator->() const { return object_.get(); }

   private:
    ScratchPool* pool_;
    std::unique_ptr<T> object_;
  };

  Lease take() {
    std::unique_ptr<T> object;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        object = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!object) object = std::make_unique<T>();
    return Lease(this, std::move(object));
  }

 private:
  void give_back(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMost) free_.push_back(std::move(object));
  }
  static constexpr size_t kMost = 16;
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

std::unique_ptr<Tokenizer> make_spm_tokenizer(VocabularyData data);
std::unique_ptr<Tokenizer> make_bpe_tokenizer(VocabularyData data);
std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(VocabularyData data);
std::unique_ptr<Tokenizer> make_unigram_tokenizer(VocabularyData data);
std::unique_ptr<Tokenizer> make_rwkv_tokenizer(VocabularyData data);

}  // namespace millrace::text
