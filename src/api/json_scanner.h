// JSON read byte by byte, for tool calls that arrive in pieces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::api {

inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

enum class ScanStatus {
  kMore,        ///< the byte belongs to the value, which goes on
  kDone,        ///< the byte completes the value
  kDoneBefore,  ///< the value ended before this byte (numbers)
  kBad,         ///< no JSON value has this byte here
};

/// Checks one JSON value. Values nested deeper than 128 are bad.
class JsonScanner {
 public:
  ScanStatus feed(char c);
  bool started() const { return state_ != State::kValue || !open_.empty(); }

 private:
  enum class State {
    kValue,
    kFirstValue,  ///< after '[': a value or ']'
    kFirstKey,    ///< after '{': a key or '}'
    kKey,
    kColon,
    kAfterValue,
    kString,
    kEscape,
    kHex,
    kNumber,
    kLiteral,
  };
  ScanStatus begin_value(char c);
  ScanStatus end_value();
  ScanStatus in_string(char c);

  State state_ = State::kValue;
  std::vector<char> open_;
  bool string_is_key_ = false;
  int hex_left_ = 0;
  std::string number_;
  std::string_view literal_;
};

/// A tool call as a JSON object with its members in any order: name ("name", "tool_name", "function"),
/// arguments
/// ("arguments", "parameters"), id ("id", "tool_call_id"); {"type": "function", "function": {...}} as well.
class JsonCallScanner {
 public:
  enum class Members { kAny, kOnlyKnown };
  /// kOnlyKnown: an unknown member makes the object bad (for formats without a marker before calls).
  explicit JsonCallScanner(Members members) : members_(members) {}

  ScanStatus feed(char c);
  bool has_name() const { return has_name_; }
  bool has_arguments() const { return has_arguments_; }
  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }
  /// Bytes of the arguments read since the last call.
  std::string take_arguments() { return std::exchange(arguments_, {}); }

 private:
  enum class State { kStart, kFirstKey, kKey, kInKey, kColon, kValue, kAfterValue };
  enum class Role { kName, kArguments, kId, kFunction, kOther };
  ScanStatus begin_value(char c);
  ScanStatus take_value(char c);
  ScanStatus end_value();
  bool role_of_key();

  Members members_;
  State state_ = State::kStart;
  Role role_ = Role::kOther;
  int nested_ = 0;
  bool streaming_ = false;  ///< arguments that are an object or array go out at once
  JsonScanner scanner_;
  std::string text_;
  std::string name_, id_, arguments_;
  bool has_name_ = false, has_arguments_ = false;
};

/// Text of a JSON string literal; nullopt-like empty on failure is told apart by `ok`.
std::string decode_json_string(std::string_view literal, bool& ok);
/// A JSON string literal of the text.
std::string encode_json_string(std::string_view text);
/// The text without its outermost quotes, escaped for the inside of a JSON string.
std::string escape_json_text(std::string_view text);
bool is_json(std::string_view text);

}  // namespace millrace::api
