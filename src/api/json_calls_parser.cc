// Tool calls as JSON objects with a name: Hermes/Qwen, Llama 3, Mistral's array, Granite, Command-R,
// Phi-4-mini, Nemotron, generic JSON.
#include <nlohmann/json.hpp>

#include "api/json_scanner.h"
#include "api/parser_base.h"

namespace millrace::api {

namespace {

struct JsonStyle {
  std::vector<std::string> begin;  ///< a marker before a call or a list of calls
  std::vector<std::string> end;    ///< dropped behind and between calls
  bool bare = false;               ///< the output may also begin with a call and no marker
};

JsonStyle json_style_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return {{"<tool_call>"}, {"</tool_call>"}, false};
    case ToolFormat::kGranite:
      return {{"<|tool_call|>", "<tool_call>"}, {"</tool_call>"}, false};
    case ToolFormat::kMistralArray:
    case ToolFormat::kMistralNamed:
      return {{"[TOOL_CALLS]"}, {"</s>"}, false};
    case ToolFormat::kCommandR7B:
      return {{"<|START_ACTION|>"}, {"<|END_ACTION|>"}, false};
    case ToolFormat::kCommandR:
      return {{"Action:"}, {"```json", "```"}, false};
    case ToolFormat::kPhi4Mini:
      return {{"<|tool_call|>", "functools"}, {"<|/tool_call|>"}, false};
    case ToolFormat::kNemotron:
      return {{"<TOOLCALL>"}, {"</TOOLCALL>"}, false};
    case ToolFormat::kLlama3Json:
      return {{"<|python_tag|>"}, {"<|eom_id|>", "<|eot_id|>", "<|python_end|>"}, true};
    default:
      return {{}, {}, true};
  }
}

class JsonCallsParser : public TextParser {
 public:
  JsonCallsParser(OutputFormat format, ParserOptions options)
      : TextParser(std::move(format), std::move(options)), style_(json_style_of(format_.tools)) {
    if (style_.bare && tools_enabled() && !in_reasoning_) begin_bare();
  }

 protected:
  std::vector<std::string> tool_markers() override { return style_.begin; }

  void enter_tools(size_t which) override {
    take(style_.begin[which].size());
    state_ = State::kBetween;
    bare_ = false;
    in_list_ = false;
    made_calls_ = false;
    header_.clear();
    is_code_tag_ = style_.begin[which] == "<|python_tag|>";
  }

  bool tool_step() override {
    switch (state_) {
      case State::kBareStart:
        return bare_start();
      case State::kBetween:
        return between();
      case State::kCall:
        return call();
      case State::kCode:
        return code();
      case State::kNamedHeader:
        return named_header();
      case State::kNamedArguments:
        return named_arguments();
    }
    return false;
  }

  void tool_close() override {
    if (state_ == State::kCode) run_code();
  }

  void reasoning_ended() override {
    if (style_.bare && tools_enabled() && calls() == 0) begin_bare();
  }

 private:
  enum class State { kBareStart, kBetween, kCall, kCode, kNamedHeader, kNamedArguments };

  /// The output may begin with a call: its white space waits for what follows.
  void begin_bare() {
    in_tools_ = true;
    bare_ = true;
    made_calls_ = false;
    in_list_ = false;
    state_ = State::kBareStart;
  }

  bool bare_start() {
    if (rest().empty()) return false;
    const char c = rest()[0];
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
      take(1);
    } else if (c == '{' || c == '[') {
      state_ = State::kBetween;
    } else {
      abandon();
    }
    return true;
  }

  /// Between calls: brackets, separators, end markers; anything else is content again.
  bool between() {
    if (rest().empty()) return false;
    size_t which = 0;
    switch (begins_with(style_.end, which)) {
      case Here::kUndecided:
        return false;
      case Here::kYes:
        take(style_.end[which].size());
        return settle();
      case Here::kNo:
        break;
    }
    const char c = rest()[0];
    const bool blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (blank || (c == ']' && in_list_) || (c == ',' && in_list_ && made_calls_) ||
        (c == ';' && made_calls_ && style_.bare)) {
      if (c == ']') in_list_ = false;
      take(1);
      return settle();
    }
    if (c == '[' && !in_list_ && !made_calls_) {
      in_list_ = true;
      take(1);
      return true;
    }
    // Behind a finished list or call, a further object is one more call only where the format has such.
    if (c == '{' && (!made_calls_ || in_list_ || style_.bare || format_.tools == ToolFormat::kHermes)) {
      scanner_ =
          JsonCallScanner(bare_ ? JsonCallScanner::Members::kOnlyKnown : JsonCallScanner::Members::kAny);
      state_ = State::kCall;
      return true;
    }
    if (is_mistral() && !made_calls_ && !in_list_ && c != '[' && c != '{') {
      state_ = State::kNamedHeader;
      return true;
    }
    if (is_code_tag_ && !made_calls_) {
      state_ = State::kCode;
      return true;
    }
    if (made_calls_) {
      commit();
      at_marker();
      leave_tools();
    } else {
      abandon();
    }
    return true;
  }

  /// What is taken between calls is given back only while there has been no call.
  bool settle() {
    if (made_calls_) commit();
    return true;
  }

  bool call() {
    if (rest().empty()) return false;
    const std::string_view text = rest();
    size_t used = 0;
    ScanStatus status = ScanStatus::kMore;
    while (used < text.size() && status == ScanStatus::kMore) {
      status = scanner_.feed(text[used]);
      if (status != ScanStatus::kBad) ++used;
      if (status != ScanStatus::kBad && ready()) break;
    }
    if (call_open()) {
      consume(used);
      raw_.clear();
    } else {
      take(used);
    }
    if (status == ScanStatus::kBad) {
      if (call_open()) arguments(scanner_.take_arguments());
      give_up();
      return true;
    }
    if (ready()) {
      begin_call(scanner_.name(), scanner_.id());
      commit();
    }
    if (call_open()) arguments(scanner_.take_arguments());
    if (status == ScanStatus::kDone) finish_call();
    return true;
  }

  /// Name and arguments are there (or have begun), and the call is one of the request's tools where that must
  /// hold.
  bool ready() const {
    if (call_open() || !scanner_.has_name() || !scanner_.has_arguments()) return false;
    return !bare_ || known_tool(scanner_.name());
  }

  void finish_call() {
    if (!call_open()) {
      // A name without arguments is a call only behind a marker.
      if (bare_ || !scanner_.has_name()) {
        give_up();
        return;
      }
      begin_call(scanner_.name(), scanner_.id());
      commit();
    }
    end_call();
    made_calls_ = true;
    state_ = State::kBetween;
  }

  void give_up() {
    if (call_open()) {
      // The arguments broke off: the call keeps what it has, the rest is content.
      end_call();
      commit();
      leave_tools();
    } else {
      abandon();
    }
  }

  bool is_mistral() const {
    return format_.tools == ToolFormat::kMistralArray || format_.tools == ToolFormat::kMistralNamed;
  }

  /// Mistral from v11 on: NAME, NAME[ARGS] or NAME[CALL_ID]ID[ARGS], then the arguments.
  bool named_header() {
    if (rest().empty()) return false;
    const char c = rest()[0];
    if (c != '{') {
      if (header_.size() >= 256 || c == '\n') {
        abandon();
        return true;
      }
      header_.push_back(c);
      take(1);
      return true;
    }
    std::string name, id;
    read_mistral_header(header_, name, id);
    if (name.empty()) {
      abandon();
      return true;
    }
    begin_call(name, id);
    commit();
    value_ = JsonScanner();
    state_ = State::kNamedArguments;
    return true;
  }

  bool named_arguments() {
    if (rest().empty()) return false;
    const std::string_view text = rest();
    size_t used = 0;
    ScanStatus status = ScanStatus::kMore;
    while (used < text.size() && status == ScanStatus::kMore) {
      status = value_.feed(text[used]);
      if (status != ScanStatus::kBad) ++used;
    }
    arguments(text.substr(0, used));
    consume(used);
    if (status == ScanStatus::kMore) return true;
    end_call();
    made_calls_ = true;
    state_ = State::kBetween;
    if (status != ScanStatus::kDone) leave_tools();
    return true;
  }

  /// <|python_tag|> with something other than JSON: it ends with the output.
  bool code() {
    if (rest().empty()) return false;
    size_t which = 0;
    switch (begins_with(style_.end, which)) {
      case Here::kUndecided:
        return false;
      case Here::kYes:
        consume(style_.end[which].size());
        run_code();
        return true;
      case Here::kNo:
        break;
    }
    code_.push_back(rest()[0]);
    take(1);
    return true;
  }

  /// NAME.call(key="value", ...) of a known tool, or code for a tool that runs code.
  void run_code() {
    const std::string code = std::exchange(code_, {});
    state_ = State::kBetween;
    std::string name, json;
    if (parse_call_syntax(code, name, json)) {
      begin_call(name, "");
      arguments(json);
    } else {
      for (const char* runner : {"python", "ipython", "code_interpreter"})
        if (known_tool(runner) && name.empty()) name = runner;
      if (name.empty()) {
        abandon();
        return;
      }
      begin_call(name, "");
      arguments("{\"code\": " + encode_json_string(code) + "}");
    }
    commit();
    end_call();
    made_calls_ = true;
  }

  bool parse_call_syntax(const std::string& code, std::string& name, std::string& json) const {
    const size_t dot = code.find(".call(");
    if (dot == std::string::npos || !known_tool(code.substr(0, dot))) return false;
    const size_t close = code.rfind(')');
    if (close == std::string::npos || close < dot + 6 ||
        code.find_first_not_of(" \n\r\t", close + 1) != std::string::npos)
      return false;
    std::string_view rest = std::string_view(code).substr(dot + 6, close - dot - 6);
    std::string out = "{";
    while (rest.find_first_not_of(" \n\r\t,") != std::string_view::npos) {
      rest.remove_prefix(rest.find_first_not_of(" \n\r\t,"));
      const size_t equals = rest.find('=');
      if (equals == std::string_view::npos || equals == 0) return false;
      const std::string key(rest.substr(0, equals));
      rest.remove_prefix(equals + 1);
      JsonScanner scanner;
      size_t used = 0;
      ScanStatus status = ScanStatus::kMore;
      while (used < rest.size() && status == ScanStatus::kMore) {
        status = scanner.feed(rest[used]);
        if (status == ScanStatus::kMore || status == ScanStatus::kDone) ++used;
      }
      const std::string value(rest.substr(0, used));
      if (status == ScanStatus::kBad || !is_json(value)) return false;
      out += (out.size() > 1 ? ", " : "") + encode_json_string(key) + ": " + value;
      rest.remove_prefix(used);
    }
    name = code.substr(0, dot);
    json = out + "}";
    return true;
  }

  JsonStyle style_;
  State state_ = State::kBetween;
  JsonCallScanner scanner_{JsonCallScanner::Members::kAny};
  bool bare_ = false;
  bool in_list_ = false;
  bool made_calls_ = false;
  bool is_code_tag_ = false;
  std::string code_;
  std::string header_;
  JsonScanner value_;
};

}  // namespace

std::unique_ptr<OutputParser> make_json_calls_parser(const OutputFormat& format, ParserOptions options) {
  return std::make_unique<JsonCallsParser>(format, std::move(options));
}

}  // namespace millrace::api
