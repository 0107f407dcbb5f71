#include "core/utf8.h"
#include "text/tokenizer.h"

namespace millrace::text {

std::string StreamDecoder::push(TokenId id) {
  std::string part = tokenizer_->piece(id, keep_special_);
  if (part.empty()) return {};
  if (at_start_) {
    if (part[0] == ' ' && tokenizer_->strips_leading_space()) part.erase(0, 1);
    const TokenKind kind = tokenizer_->kind(id);
    if (kind != TokenKind::kControl && kind != TokenKind::kUnknown) at_start_ = false;
  }
  pending_ += part;
  const size_t complete = utf8::complete_prefix(pending_);
  std::string out = utf8::replace_invalid(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  // The bytes left are the beginning of one character: one mark for all of them.
  if (!pending_.empty()) out = "\xef\xbf\xbd";
  pending_.clear();
  return out;
}

}  // namespace millrace::text
