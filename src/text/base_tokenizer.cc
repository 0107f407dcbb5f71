#include "text/base_tokenizer.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "text/end_names.h"

namespace millrace::text {
namespace {

/// Tokens of a conversation's frame that must reach the reader of the stream (the parser of gpt-oss answers).
constexpr std::string_view kVisibleFrames[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// Value of "<0x41>", or -1.
int parse_byte_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

TokenKind kind_of(int32_t type) {
  switch (type) {
    case 2:
      return TokenKind::kUnknown;
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 5:
      return TokenKind::kUnused;
    case 6:
      return TokenKind::kByte;
    default:
      return TokenKind::kNormal;
  }
}

}  // namespace

BaseTokenizer::BaseTokenizer(VocabularyData data, const Defaults& defaults) : data_(std::move(data)) {
  const size_t count = data_.tokens.size();
  const std::string& origin = data_.origin;
  require(count > 0, ErrorCode::kInvalidFile, "{}: the tokenizer has no tokens", origin);
  require(count <= INT32_MAX, ErrorCode::kInvalidFile, "{}: {} tokens, expected at most 2^31 - 1", origin,
          count);
  require(data_.scores.empty() || data_.scores.size() >= count, ErrorCode::kInvalidFile,
          "{}: {} token scores for {} tokens", origin, data_.scores.size(), count);
  require(data_.types.empty() || data_.types.size() >= count, ErrorCode::kInvalidFile,
          "{}: {} token types for {} tokens", origin, data_.types.size(), count);
  kinds_.resize(count, TokenKind::kNormal);
  for (size_t i = 0; i < count && !data_.types.empty(); ++i) kinds_[i] = kind_of(data_.types[i]);

  ids_.reserve(count);
  for (size_t i = 0; i < count; ++i)
    if (!data_.tokens[i].empty()) ids_.insert(data_.tokens[i], static_cast<TokenId>(i));

  // A special id beyond the vocabulary means "none" (files of fine-tuned models hold -1 or an id that was cut
  // off).
  const auto settle = [&](std::optional<TokenId>& id, const std::optional<TokenId>& fallback) {
    if (id && !in_range(*id)) id.reset();
    if (!id && fallback && in_range(*fallback)) id = fallback;
  };
  settle(data_.bos, defaults.bos);
  settle(data_.eos, defaults.eos);
  settle(data_.unknown, defaults.unknown);
  settle(data_.separator, defaults.separator);
  settle(data_.padding, defaults.padding);
  for (std::optional<TokenId>* id : {&data_.eot, &data_.eom, &data_.mask, &data_.cls})
    settle(*id, std::nullopt);

  add_bos_ = data_.add_bos.value_or(defaults.add_bos && data_.bos.has_value());
  add_eos_ = data_.add_eos.value_or(defaults.add_eos && data_.eos.has_value());
  require(!add_bos_ || data_.bos, ErrorCode::kInvalidFile,
          "{}: the tokenizer adds a BOS token, but names none within its {} tokens", origin, count);
  require(!add_eos_ || data_.eos, ErrorCode::kInvalidFile,
          "{}: the tokenizer adds an EOS token, but names none within its {} tokens", origin, count);

  std::fill(std::begin(byte_tokens_), std::end(byte_tokens_), -1);
  for (size_t i = 0; i < count; ++i) {
    const int value = parse_byte_token(data_.tokens[i]);
    if (value < 0) continue;
    const bool typed = kinds_[i] == TokenKind::kByte;
    if (typed || (data_.types.empty() && data_.model == "llama")) {
      kinds_[i] = TokenKind::kByte;
      if (byte_tokens_[value] < 0) byte_tokens_[value] = static_cast<TokenId>(i);
    }
  }
  for (size_t i = 0; i < count; ++i)
    require(kinds_[i] != TokenKind::kByte || parse_byte_token(data_.tokens[i]) >= 0, ErrorCode::kInvalidFile,
            "{}: token {} (\"{}\") has the type of a byte, expected the form \"<0x41>\"", origin, i,
            data_.tokens[i]);
  find_end_of_generation();
  build_added_tokens();
}

void BaseTokenizer::find_end_of_generation() {
  std::set<TokenId> ends;
  for (size_t i = 0; i < data_.tokens.size(); ++i) {
    if (!is_end_name(data_.tokens[i])) continue;
    ends.insert(static_cast<TokenId>(i));
    kinds_[i] = TokenKind::kControl;
  }
  for (const std::string_view name : kVisibleFrames) {
    const TokenId id = ids_.find(name);
    if (id >= 0) kinds_[static_cast<size_t>(id)] = TokenKind::kUserDefined;
  }
  for (const std::optional<TokenId>& id : {data_.eos, data_.eot, data_.eom})
    if (id) ends.insert(*id);

  // In the vocabularies that have "<|call|>" and "<|return|>", "<|end|>" only ends one message of several.
  const auto has = [&](std::string_view name) {
    const TokenId id = ids_.find(name);
    return id >= 0 && ends.count(id) != 0;
  };
  const bool calls = has("<|call|>") || has("<|calls|>");
  if (calls && (has("<|return|>") || has("<|flush|>")) && has("<|end|>")) {
    const TokenId id = ids_.find("<|end|>");
    ends.erase(id);
    kinds_[static_cast<size_t>(id)] = TokenKind::kUserDefined;
  }
  if (has("<|tool_response>") && has("</s>") && data_.eos != ids_.find("</s>")) {
    const TokenId id = ids_.find("</s>");
    ends.erase(id);
    kinds_[static_cast<size_t>(id)] = TokenKind::kNormal;
  }
  end_of_generation_.assign(ends.begin(), ends.end());
}

void BaseTokenizer::build_added_tokens() {
  const auto contains = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  // Files do not say which tokens take the whitespace beside them; these models are known to.
  std::string name = data_.name;
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const bool strip_right = contains(name, "phi-3") || contains(name, "phi3");
  const bool mask_strips_left = contains(data_.pre, "jina-v2-de") || contains(data_.pre, "jina-v2-es") ||
                                contains(data_.pre, "jina-v2-code") ||
                                contains(data_.architecture, "nomic-bert-moe") ||
                                contains(data_.architecture, "jina-bert-v3");
  const bool bracket_mask_strips_left = contains(name, "modern-bert");
  std::vector<AddedToken> added;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const TokenKind kind = kinds_[i];
    if (kind != TokenKind::kControl && kind != TokenKind::kUserDefined && kind != TokenKind::kUnknown)
      continue;
    if (kind == TokenKind::kUserDefined && data_.sentence_piece_rules) continue;
    AddedToken token;
    token.text = data_.tokens[i];
    token.id = static_cast<TokenId>(i);
    token.special = kind != TokenKind::kUserDefined;
    token.strip_right =
        strip_right && token.text != "<unk>" && token.text != "<s>" && token.text != "<|endoftext|>";
    token.strip_left =
        (mask_strips_left && token.text == "<mask>") || (bracket_mask_strips_left && token.text == "[MASK]");
    added.push_back(std::move(token));
  }
  added_ = AddedTokenMatcher(std::move(added));
}

int BaseTokenizer::byte_value(TokenId id) const {
  return kind(id) == TokenKind::kByte ? parse_byte_token(data_.tokens[static_cast<size_t>(id)]) : -1;
}

TokenKind BaseTokenizer::kind(TokenId id) const {
  return in_range(id) ? kinds_[static_cast<size_t>(id)] : TokenKind::kUnused;
}

const std::string& BaseTokenizer::raw(TokenId id) const {
  static const std::string empty;
  return in_range(id) ? data_.tokens[static_cast<size_t>(id)] : empty;
}

std::optional<TokenId> BaseTokenizer::find(std::string_view raw_token) const {
  const TokenId id = ids_.find(raw_token);
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

std::vector<TokenId> BaseTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  require(text.size() < (size_t{1} << 31), ErrorCode::kLimitExceeded,
          "a text of {} bytes cannot be tokenised at once, expected less than 2 GiB", text.size());
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 4);
  if (options.add_special && add_bos_) out.push_back(*data_.bos);
  std::vector<Fragment> fragments;
  added_.split(text, options.parse_special, fragments);
  bool after_token = true;
  for (const Fragment& fragment : fragments) {
    if (fragment.id >= 0)
      out.push_back(fragment.id);
    else
      encode_text(fragment.text, after_token, out);
    after_token = fragment.id >= 0;
  }
  if (options.add_special && add_eos_) {
    if (const std::optional<TokenId> closing = closing_token()) out.push_back(*closing);
  }
  return out;
}

std::string BaseTokenizer::piece(TokenId id, bool keep_special) const {
  switch (kind(id)) {
    case TokenKind::kUnknown:
    case TokenKind::kControl:
      return keep_special ? raw(id) : std::string();
    case TokenKind::kUserDefined:
      return raw(id);
    case TokenKind::kByte:
      return std::string(1, static_cast<char>(byte_value(id)));
    default:
      return in_range(id) ? decode_normal(id) : std::string();
  }
}

std::string BaseTokenizer::decode(const std::vector<TokenId>& ids, bool keep_special) const {
  std::string out;
  bool at_start = strips_leading_space();
  for (const TokenId id : ids) {
    std::string part = piece(id, keep_special);
    if (part.empty()) continue;
    const bool strip = at_start && part[0] == ' ';
    out.append(part, strip ? 1 : 0);
    // A control token that is shown does not use up the start of the text: encode() puts the dummy prefix
    // after it.
    const TokenKind k = kind(id);
    if (k != TokenKind::kControl && k != TokenKind::kUnknown) at_start = false;
  }
  return out;
}

}  // namespace millrace::text
