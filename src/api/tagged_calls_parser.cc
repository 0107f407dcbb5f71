// Tool calls that write every argument in tags of its own: Qwen3-Coder, GLM 4.5, MiniMax, Seed. The arguments
// become JSON here, with the types that the tool's schema gives; strings stream as they come.
#include <nlohmann/json.hpp>

#include "api/json_scanner.h"
#include "api/parser_base.h"

namespace millrace::api {

namespace {

constexpr size_t kMaxName = 256;

struct TagStyle {
  std::vector<std::string> outer;  ///< around calls
  std::vector<std::string> outer_end;
  std::string begin;                  ///< before the name; empty: the outer marker is it
  std::vector<std::string> name_end;  ///< the first of these ends the name
  std::string end;                    ///< of a call
  std::string key_begin, key_end;
  std::string value_begin;  ///< between key and value; empty: the key's end is it
  std::string value_end;
  bool newline_around_values = false;  ///< one line end inside each end of a value is layout
};

TagStyle tag_style_of(ToolFormat format) {
  TagStyle s;
  switch (format) {
    case ToolFormat::kGlm:
      s.outer = {"<tool_call>"};
      s.name_end = {"\n", "<arg_key>", "</tool_call>"};
      s.end = "</tool_call>";
      s.key_begin = "<arg_key>";
      s.key_end = "</arg_key>";
      s.value_begin = "<arg_value>";
      s.value_end = "</arg_value>";
      return s;
    case ToolFormat::kMiniMax:
      s.outer = {"<minimax:tool_call>"};
      s.outer_end = {"</minimax:tool_call>"};
      s.begin = "<invoke name=\"";
      s.name_end = {"\">"};
      s.end = "</invoke>";
      s.key_begin = "<parameter name=\"";
      s.key_end = "\">";
      s.value_end = "</parameter>";
      return s;
    default:
      s.outer = {format == ToolFormat::kSeed ? "<seed:tool_call>" : "<tool_call>"};
      s.outer_end = {format == ToolFormat::kSeed ? "</seed:tool_call>" : "</tool_call>"};
      s.begin = "<function=";
      s.name_end = {">"};
      s.end = "</function>";
      s.key_begin = "<parameter=";
      s.key_end = ">";
      s.value_end = "</parameter>";
      s.newline_around_values = true;
      return s;
  }
}

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \n\r\t");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \n\r\t") - first + 1));
}

enum class ValueType { kString, kOther, kUnknown };

/// What the schema of a tool says about one argument.
ValueType type_of(const Tool* tool, const std::string& key) {
  if (tool == nullptr || tool->parameters.empty()) return ValueType::kUnknown;
  const auto schema = nlohmann::json::parse(tool->parameters, nullptr, false);
  if (!schema.is_object() || !schema.contains("properties") || !schema["properties"].is_object())
    return ValueType::kUnknown;
  const auto& properties = schema["properties"];
  if (!properties.contains(key) || !properties[key].is_object()) return ValueType::kUnknown;
  const auto& property = properties[key];
  if (property.contains("type")) {
    if (property["type"] == "string") return ValueType::kString;
    return property["type"].is_string() ? ValueType::kOther : ValueType::kUnknown;
  }
  if (property.contains("enum") && property["enum"].is_array()) {
    for (const auto& choice : property["enum"])
      if (!choice.is_string()) return ValueType::kUnknown;
    return ValueType::kString;
  }
  return ValueType::kUnknown;
}

/// JSON of a value that is not known to be a string.
std::string value_json(const std::string& text, ValueType type) {
  if (type == ValueType::kString) return encode_json_string(text);
  const std::string plain = trimmed(text);
  if (plain == "True") return "true";
  if (plain == "False") return "false";
  if (plain == "None") return "null";
  return is_json(plain) ? plain : encode_json_string(text);
}

class TaggedCallsParser : public TextParser {
 public:
  TaggedCallsParser(OutputFormat format, ParserOptions options)
      : TextParser(std::move(format), std::move(options)), style_(tag_style_of(format_.tools)) {}

 protected:
  std::vector<std::string> tool_markers() override {
    std::vector<std::string> markers = style_.outer;
    if (!style_.begin.empty()) markers.push_back(style_.begin);
    return markers;
  }

  void enter_tools(size_t which) override {
    made_calls_ = false;
    if (which < style_.outer.size()) {
      take(style_.outer[which].size());
      begin(style_.begin.empty() ? State::kName : State::kBetween);
    } else {
      take(style_.begin.size());
      begin(State::kName);
    }
  }

  bool tool_step() override {
    if (rest().empty()) return false;
    switch (state_) {
      case State::kBetween:
        return between();
      case State::kName:
        return name();
      case State::kParameters:
        return parameters();
      case State::kKey:
        return key();
      case State::kBeforeValue:
        return before_value();
      case State::kValue:
        return value();
    }
    return false;
  }

  void tool_close() override {
    if (!call_open()) return;
    if (state_ == State::kValue) end_value();
    open_arguments();
    arguments("}");
  }

 private:
  enum class State { kBetween, kName, kParameters, kKey, kBeforeValue, kValue };

  void begin(State state) {
    state_ = state;
    text_.clear();
  }

  bool blank() {
    if (!is_blank(rest()[0])) return false;
    take(1);
    if (made_calls_ || call_open()) commit();
    return true;
  }

  bool between() {
    if (blank()) return true;
    std::vector<std::string> markers = style_.outer_end;
    const size_t ends = markers.size();
    if (!style_.begin.empty()) markers.push_back(style_.begin);
    if (markers.empty()) {
      leave();
      return true;
    }
    size_t which = 0;
    switch (begins_with(markers, which)) {
      case Here::kUndecided:
        return false;
      case Here::kNo:
        leave();
        return true;
      case Here::kYes:
        break;
    }
    take(markers[which].size());
    if (which >= ends) {
      begin(State::kName);
    } else if (made_calls_) {
      commit();
      leave();
    }
    return true;
  }

  void leave() {
    if (made_calls_) {
      at_marker();
      if (raw_.empty()) {
        leave_tools();
        return;
      }
    }
    abandon();
  }

  bool name() {
    const Found found = find(style_.name_end);
    const size_t plain = std::min(found.at, found.safe);
    if (plain > 0) {
      text_ += rest().substr(0, plain);
      take(plain);
    }
    if (text_.size() > kMaxName) {
      leave();
      return true;
    }
    if (found.at == kNowhere) return plain > 0;
    const std::string& mark = style_.name_end[found.which];
    const std::string name = trimmed(text_);
    if (name.empty() && mark == "\n") {
      text_.clear();
      take(1);
      return true;
    }
    if (name.empty() || name.find_first_of(" \n\t{}\"<>") != std::string::npos) {
      leave();
      return true;
    }
    // What also begins an argument or ends the call is read again as that.
    if (mark != style_.key_begin && mark != style_.end) take(mark.size());
    begin_call(name, "");
    commit();
    tool_ = find_tool(name);
    first_argument_ = true;
    begin(State::kParameters);
    return true;
  }

  bool parameters() {
    if (is_blank(rest()[0])) {
      consume(1);
      return true;
    }
    const std::vector<std::string> markers = {style_.key_begin, style_.end};
    size_t which = 0;
    switch (begins_with(markers, which)) {
      case Here::kUndecided:
        return false;
      case Here::kNo:
        break_off();
        return true;
      case Here::kYes:
        break;
    }
    consume(markers[which].size());
    if (which == 0) {
      begin(State::kKey);
      return true;
    }
    open_arguments();
    arguments("}");
    end_call();
    made_calls_ = true;
    begin(State::kBetween);
    return true;
  }

  void open_arguments() {
    if (std::exchange(first_argument_, false)) arguments("{");
  }

  bool key() {
    const Found found = find({style_.key_end});
    const size_t plain = std::min(found.at, found.safe);
    text_ += rest().substr(0, plain);
    consume(plain);
    if (text_.size() > kMaxName) {
      break_off();
      return true;
    }
    if (found.at == kNowhere) return plain > 0;
    consume(style_.key_end.size());
    key_ = trimmed(text_);
    begin(style_.value_begin.empty() ? State::kValue : State::kBeforeValue);
    if (state_ == State::kValue) begin_value();
    return true;
  }

  bool before_value() {
    if (is_blank(rest()[0])) {
      consume(1);
      return true;
    }
    size_t which = 0;
    switch (begins_with({style_.value_begin}, which)) {
      case Here::kUndecided:
        return false;
      case Here::kNo:
        break_off();
        return true;
      case Here::kYes:
        break;
    }
    consume(style_.value_begin.size());
    begin(State::kValue);
    begin_value();
    return true;
  }

  void begin_value() {
    type_ = type_of(tool_, key_);
    arguments(first_argument_ ? "{" : ", ");
    first_argument_ = false;
    arguments(encode_json_string(key_) + ": ");
    if (type_ == ValueType::kString) arguments("\"");
    at_value_start_ = style_.newline_around_values;
    newline_held_ = false;
  }

  bool value() {
    const Found found = find({style_.value_end});
    const size_t plain = std::min(found.at, found.safe);
    if (plain > 0) {
      value_text(rest().substr(0, plain));
      consume(plain);
      return true;
    }
    if (found.at == kNowhere) return false;
    consume(style_.value_end.size());
    newline_held_ = false;  // layout
    end_value();
    begin(State::kParameters);
    return true;
  }

  /// Drops the layout's line ends and streams strings.
  void value_text(std::string_view text) {
    if (at_value_start_) {
      at_value_start_ = false;
      if (text[0] == '\n') text.remove_prefix(1);
    }
    if (text.empty()) return;
    std::string out;
    if (newline_held_) out = "\n";
    newline_held_ = style_.newline_around_values && text.back() == '\n';
    out += text.substr(0, text.size() - newline_held_);
    if (type_ == ValueType::kString) {
      arguments(escape_partial(out));
    } else {
      text_ += out;
    }
  }

  /// Escapes; a character that is cut off by the end of the piece waits for the rest.
  std::string escape_partial(const std::string& text) {
    partial_ += text;
    size_t whole = partial_.size();
    for (size_t back = 1; back <= std::min<size_t>(3, partial_.size()); ++back) {
      const auto byte = static_cast<unsigned char>(partial_[partial_.size() - back]);
      if ((byte & 0xc0) == 0x80) continue;
      const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
      if (length > back) whole = partial_.size() - back;
      break;
    }
    std::string out = escape_json_text(std::string_view(partial_).substr(0, whole));
    partial_.erase(0, whole);
    return out;
  }

  void end_value() {
    if (type_ == ValueType::kString) {
      arguments(escape_json_text(std::exchange(partial_, {})));
      arguments("\"");
    } else {
      arguments(value_json(text_, type_));
    }
    text_.clear();
  }

  /// Something else where an argument or the end was expected: the call ends with what it has.
  void break_off() {
    open_arguments();
    arguments("}");
    end_call();
    commit();
    const std::string lost = state_ == State::kKey           ? style_.key_begin + text_
                             : state_ == State::kBeforeValue ? style_.key_begin + key_ + style_.key_end
                                                             : "";
    leave_tools();
    content(lost);
  }

  TagStyle style_;
  State state_ = State::kBetween;
  bool made_calls_ = false;
  bool first_argument_ = true;
  bool at_value_start_ = false;
  bool newline_held_ = false;
  ValueType type_ = ValueType::kUnknown;
  const Tool* tool_ = nullptr;
  std::string text_, key_, partial_;
};

}  // namespace

std::unique_ptr<OutputParser> make_tagged_calls_parser(const OutputFormat& format, ParserOptions options) {
  return std::make_unique<TaggedCallsParser>(format, std::move(options));
}

}  // namespace millrace::api
