#include "api/json_scanner.h"

#include <cctype>
#include <nlohmann/json.hpp>

#include "core/utf8.h"

namespace millrace::api {

namespace {

constexpr size_t kMaxDepth = 128;

/// Whether `text` can be the beginning of a JSON number; `whole`: whether it is one.
bool number_prefix(std::string_view text, bool& whole) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i - start;
  };
  whole = false;
  if (i < text.size() && text[i] == '-') ++i;
  if (i == text.size()) return true;
  const bool zero = text[i] == '0';
  const size_t n = digits();
  if (n == 0 || (zero && n > 1)) return false;
  whole = true;
  if (i < text.size() && text[i] == '.') {
    ++i;
    whole = digits() > 0;
    if (!whole) return i == text.size();
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    whole = digits() > 0;
    if (!whole) return i == text.size();
  }
  whole = whole && i == text.size();
  return i == text.size();
}

}  // namespace

ScanStatus JsonScanner::end_value() {
  state_ = State::kAfterValue;
  return open_.empty() ? ScanStatus::kDone : ScanStatus::kMore;
}

ScanStatus JsonScanner::begin_value(char c) {
  if (is_blank(c)) return ScanStatus::kMore;
  switch (c) {
    case '{':
    case '[':
      if (open_.size() >= kMaxDepth) return ScanStatus::kBad;
      open_.push_back(c);
      state_ = c == '{' ? State::kFirstKey : State::kFirstValue;
      return ScanStatus::kMore;
    case '"':
      state_ = State::kString;
      string_is_key_ = false;
      return ScanStatus::kMore;
    case 't':
      literal_ = "rue";
      break;
    case 'f':
      literal_ = "alse";
      break;
    case 'n':
      literal_ = "ull";
      break;
    default: {
      number_.assign(1, c);
      bool whole = false;
      if (!number_prefix(number_, whole)) return ScanStatus::kBad;
      state_ = State::kNumber;
      return ScanStatus::kMore;
    }
  }
  state_ = State::kLiteral;
  return ScanStatus::kMore;
}

ScanStatus JsonScanner::in_string(char c) {
  switch (state_) {
    case State::kEscape:
      if (c == 'u') {
        hex_left_ = 4;
        state_ = State::kHex;
        return ScanStatus::kMore;
      }
      state_ = State::kString;
      return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos ? ScanStatus::kBad
                                                                              : ScanStatus::kMore;
    case State::kHex:
      if (!std::isxdigit(static_cast<unsigned char>(c))) return ScanStatus::kBad;
      if (--hex_left_ == 0) state_ = State::kString;
      return ScanStatus::kMore;
    default:
      break;
  }
  if (c == '\\') {
    state_ = State::kEscape;
  } else if (c == '"') {
    if (!string_is_key_) return end_value();
    state_ = State::kColon;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    return ScanStatus::kBad;
  }
  return ScanStatus::kMore;
}

ScanStatus JsonScanner::feed(char c) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return in_string(c);
    case State::kLiteral:
      if (literal_.empty() || c != literal_[0]) return ScanStatus::kBad;
      literal_.remove_prefix(1);
      return literal_.empty() ? end_value() : ScanStatus::kMore;
    case State::kNumber: {
      bool whole = false;
      number_.push_back(c);
      if (number_.size() < 64 && number_prefix(number_, whole)) return ScanStatus::kMore;
      number_.pop_back();
      number_prefix(number_, whole);
      if (!whole) return ScanStatus::kBad;
      state_ = State::kAfterValue;
      return open_.empty() ? ScanStatus::kDoneBefore : feed(c);
    }
    case State::kValue:
      return begin_value(c);
    case State::kFirstValue:
      if (c == ']') {
        open_.pop_back();
        return end_value();
      }
      return begin_value(c);
    case State::kFirstKey:
    case State::kKey:
      if (is_blank(c)) return ScanStatus::kMore;
      if (c == '}' && state_ == State::kFirstKey) {
        open_.pop_back();
        return end_value();
      }
      if (c != '"') return ScanStatus::kBad;
      string_is_key_ = true;
      state_ = State::kString;
      return ScanStatus::kMore;
    case State::kColon:
      if (is_blank(c)) return ScanStatus::kMore;
      if (c != ':') return ScanStatus::kBad;
      state_ = State::kValue;
      return ScanStatus::kMore;
    case State::kAfterValue:
      if (is_blank(c)) return ScanStatus::kMore;
      if (open_.empty()) return ScanStatus::kBad;
      if (c == ',') {
        state_ = open_.back() == '{' ? State::kKey : State::kValue;
        return ScanStatus::kMore;
      }
      if (c != (open_.back() == '{' ? '}' : ']')) return ScanStatus::kBad;
      open_.pop_back();
      return end_value();
  }
  return ScanStatus::kBad;
}

bool JsonCallScanner::role_of_key() {
  bool ok = true;
  const std::string key = decode_json_string(text_, ok);
  if (key == "name" || key == "tool_name") {
    role_ = Role::kName;
  } else if (key == "arguments" || key == "parameters") {
    role_ = Role::kArguments;
  } else if (key == "id" || key == "tool_call_id") {
    role_ = Role::kId;
  } else if (key == "function") {
    role_ = Role::kFunction;
  } else {
    role_ = Role::kOther;
    ok = ok && (members_ == Members::kAny || key == "type");
  }
  return ok;
}

ScanStatus JsonCallScanner::begin_value(char c) {
  if (is_blank(c)) return ScanStatus::kMore;
  if (role_ == Role::kFunction && c == '{') {
    if (++nested_ > 4) return ScanStatus::kBad;
    state_ = State::kFirstKey;
    return ScanStatus::kMore;
  }
  scanner_ = JsonScanner();
  text_.clear();
  streaming_ = role_ == Role::kArguments && (c == '{' || c == '[');
  if (role_ == Role::kArguments && has_arguments_) return ScanStatus::kBad;
  if (streaming_) has_arguments_ = true;
  state_ = State::kValue;
  return take_value(c);
}

ScanStatus JsonCallScanner::take_value(char c) {
  const ScanStatus status = scanner_.feed(c);
  if (status == ScanStatus::kBad) return status;
  if (status != ScanStatus::kDoneBefore) (streaming_ ? arguments_ : text_).push_back(c);
  if (status == ScanStatus::kMore) return status;
  const ScanStatus ended = end_value();
  if (ended == ScanStatus::kBad || status == ScanStatus::kDone) return ended;
  return feed(c);
}

ScanStatus JsonCallScanner::end_value() {
  state_ = State::kAfterValue;
  if (streaming_) {
    streaming_ = false;
    return ScanStatus::kMore;
  }
  bool ok = true;
  switch (role_) {
    case Role::kName:
    case Role::kFunction:
      if (text_.empty() || text_[0] != '"' || has_name_) return ScanStatus::kBad;
      name_ = decode_json_string(text_, ok);
      has_name_ = ok && !name_.empty();
      return has_name_ ? ScanStatus::kMore : ScanStatus::kBad;
    case Role::kId:
      id_ = text_[0] == '"' ? decode_json_string(text_, ok) : text_;
      return ok ? ScanStatus::kMore : ScanStatus::kBad;
    case Role::kArguments: {
      // Some models write the arguments as a string that holds JSON.
      const std::string inner = text_[0] == '"' ? decode_json_string(text_, ok) : "";
      has_arguments_ = true;
      arguments_ = text_ == "null" ? "{}" : !inner.empty() && is_json(inner) ? inner : text_;
      return ok ? ScanStatus::kMore : ScanStatus::kBad;
    }
    default:
      return ScanStatus::kMore;
  }
}

ScanStatus JsonCallScanner::feed(char c) {
  switch (state_) {
    case State::kStart:
      if (is_blank(c)) return ScanStatus::kMore;
      if (c != '{') return ScanStatus::kBad;
      state_ = State::kFirstKey;
      return ScanStatus::kMore;
    case State::kFirstKey:
    case State::kKey:
      if (is_blank(c)) return ScanStatus::kMore;
      if (c != '"') return ScanStatus::kBad;
      scanner_ = JsonScanner();
      scanner_.feed(c);
      text_.assign(1, c);
      state_ = State::kInKey;
      return ScanStatus::kMore;
    case State::kInKey: {
      const ScanStatus status = scanner_.feed(c);
      if (status == ScanStatus::kBad) return status;
      text_.push_back(c);
      if (status == ScanStatus::kMore) return status;
      state_ = State::kColon;
      return role_of_key() ? ScanStatus::kMore : ScanStatus::kBad;
    }
    case State::kColon:
      if (is_blank(c)) return ScanStatus::kMore;
      if (c != ':') return ScanStatus::kBad;
      state_ = State::kValue;
      scanner_ = JsonScanner();
      text_.clear();
      return ScanStatus::kMore;
    case State::kValue:
      return scanner_.started() ? take_value(c) : begin_value(c);
    case State::kAfterValue:
      if (is_blank(c)) return ScanStatus::kMore;
      if (c == ',') {
        state_ = State::kKey;
        return ScanStatus::kMore;
      }
      if (c != '}') return ScanStatus::kBad;
      if (nested_ > 0) {
        --nested_;
        return ScanStatus::kMore;
      }
      return has_name_ ? ScanStatus::kDone : ScanStatus::kBad;
  }
  return ScanStatus::kBad;
}

std::string decode_json_string(std::string_view literal, bool& ok) {
  const auto json = nlohmann::json::parse(literal, nullptr, false);
  ok = json.is_string();
  return ok ? json.get<std::string>() : std::string();
}

std::string encode_json_string(std::string_view text) {
  return nlohmann::json(utf8::replace_invalid(text)).dump();
}

std::string escape_json_text(std::string_view text) {
  const std::string literal = encode_json_string(text);
  return literal.substr(1, literal.size() - 2);
}

bool is_json(std::string_view text) { return nlohmann::json::accept(text); }

}  // namespace millrace::api
