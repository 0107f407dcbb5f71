// Tool calls that write the name first and the arguments as JSON behind it: Mistral from v11 on, DeepSeek,
// Kimi K2, Functionary v3.1.
#include "api/json_scanner.h"
#include "api/parser_base.h"

namespace millrace::api {

namespace {

/// Longest text between a call's marker and its '{'.
constexpr size_t kMaxHeader = 512;

struct NamedStyle {
  std::vector<std::string> section;  ///< markers around all calls, dropped
  std::vector<std::string> begin;    ///< before each call
  std::vector<std::string> end;      ///< behind each call, dropped
};

NamedStyle named_style_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kDeepSeekV3:
    case ToolFormat::kDeepSeekV31:
      return {{"<｜tool▁calls▁begin｜>"},
              {"<｜tool▁call▁begin｜>"},
              {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>"}};
    case ToolFormat::kKimiK2:
      return {{"<|tool_calls_section_begin|>"},
              {"<|tool_call_begin|>"},
              {"<|tool_call_end|>", "<|tool_calls_section_end|>"}};
    default:
      return {{}, {"<function="}, {"</function>", "<|eom_id|>", "<|eot_id|>"}};
  }
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \n\r\t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \n\r\t") - first + 1);
}

/// Splits `text` at the first `mark`; false when it is not there.
bool cut(std::string_view text, std::string_view mark, std::string_view& before, std::string_view& after) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return false;
  before = text.substr(0, at);
  after = text.substr(at + mark.size());
  return true;
}

/// A function's name has no white space or brackets in it.
bool is_function_name(std::string_view name) {
  return !name.empty() && name.find_first_of(" \n\r\t{}[]<>\"") == std::string_view::npos;
}

struct Header {
  std::string name;
  std::string id;
};

/// "function<sep>NAME\n```json\n" (V3, R1) or "NAME<sep>" (V3.1).
Header deepseek_header(std::string_view text) {
  std::string_view before, after;
  if (!cut(text, "<｜tool▁sep｜>", before, after)) return {};
  after = trim(after);
  std::string_view line = after, fence;
  if (cut(after, "```json", line, fence) && !trim(fence).empty()) return {};
  line = trim(line);
  return {std::string(line.empty() ? trim(before) : line), ""};
}

/// "functions.NAME:0<|tool_call_argument_begin|>"; the whole is the call's id.
Header kimi_header(std::string_view text) {
  std::string_view id, rest;
  if (!cut(text, "<|tool_call_argument_begin|>", id, rest) || !trim(rest).empty()) return {};
  id = trim(id);
  std::string_view name = id;
  if (name.substr(0, 10) == "functions.") name.remove_prefix(10);
  const size_t colon = name.rfind(':');
  if (colon != std::string_view::npos) name = name.substr(0, colon);
  return {std::string(name), std::string(id)};
}

/// "NAME>".
Header functionary_header(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.back() != '>') return {};
  return {std::string(trim(text.substr(0, text.size() - 1))), ""};
}

Header read_header(ToolFormat format, std::string_view text) {
  Header header;
  switch (format) {
    case ToolFormat::kDeepSeekV3:
    case ToolFormat::kDeepSeekV31:
      header = deepseek_header(text);
      break;
    case ToolFormat::kKimiK2:
      header = kimi_header(text);
      break;
    default:
      header = functionary_header(text);
      break;
  }
  if (!is_function_name(header.name)) header.name.clear();
  return header;
}

class NamedCallsParser : public TextParser {
 public:
  NamedCallsParser(OutputFormat format, ParserOptions options)
      : TextParser(std::move(format), std::move(options)), style_(named_style_of(format_.tools)) {}

 protected:
  std::vector<std::string> tool_markers() override {
    std::vector<std::string> markers = style_.begin;
    markers.insert(markers.end(), style_.section.begin(), style_.section.end());
    return markers;
  }

  void enter_tools(size_t which) override {
    made_calls_ = false;
    if (which < style_.begin.size()) {
      take(style_.begin[which].size());
      begin_header();
    } else {
      take(style_.section[which - style_.begin.size()].size());
      state_ = State::kBetween;
    }
  }

  bool tool_step() override {
    switch (state_) {
      case State::kBetween:
        return between();
      case State::kHeader:
        return header();
      case State::kArguments:
        return read_arguments();
    }
    return false;
  }

 private:
  enum class State { kBetween, kHeader, kArguments };

  void begin_header() {
    header_.clear();
    state_ = State::kHeader;
  }

  bool between() {
    if (rest().empty()) return false;
    size_t which = 0;
    switch (begins_with(style_.begin, which)) {
      case Here::kUndecided:
        return false;
      case Here::kYes:
        take(style_.begin[which].size());
        begin_header();
        return true;
      case Here::kNo:
        break;
    }
    switch (begins_with(style_.end, which)) {
      case Here::kUndecided:
        return false;
      case Here::kYes:
        take(style_.end[which].size());
        settle();
        return true;
      case Here::kNo:
        break;
    }
    const char c = rest()[0];
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
      take(1);
      settle();
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

  void settle() {
    if (made_calls_) commit();
  }

  /// Everything up to the '{' of the arguments.
  bool header() {
    if (rest().empty()) return false;
    const char c = rest()[0];
    if (c == '{') {
      const Header read = read_header(format_.tools, header_);
      if (read.name.empty()) {
        fail_call();
        return true;
      }
      begin_call(read.name, read.id);
      commit();
      scanner_ = JsonScanner();
      state_ = State::kArguments;
      return true;
    }
    if (header_.size() >= kMaxHeader) {
      fail_call();
      return true;
    }
    header_.push_back(c);
    take(1);
    return true;
  }

  bool read_arguments() {
    if (rest().empty()) return false;
    const std::string_view text = rest();
    size_t used = 0;
    ScanStatus status = ScanStatus::kMore;
    while (used < text.size() && status == ScanStatus::kMore) {
      status = scanner_.feed(text[used]);
      if (status != ScanStatus::kBad) ++used;
    }
    arguments(text.substr(0, used));
    consume(used);
    if (status == ScanStatus::kMore) return true;
    end_call();
    made_calls_ = true;
    if (status == ScanStatus::kDone) {
      state_ = State::kBetween;
    } else {
      leave_tools();  // broken arguments: the call keeps what it has, the rest is content
    }
    return true;
  }

  void fail_call() {
    if (made_calls_) at_marker();
    abandon();
  }

  NamedStyle style_;
  State state_ = State::kBetween;
  bool made_calls_ = false;
  std::string header_;
  JsonScanner scanner_;
};

}  // namespace

void read_mistral_header(std::string_view text, std::string& name, std::string& id) {
  std::string_view rest, call_id;
  cut(text, "[ARGS]", text, rest);
  cut(text, "[CALL_ID]", text, call_id);
  text = trim(text);
  if (!trim(rest).empty() || !is_function_name(text)) return;
  name = std::string(text);
  id = std::string(trim(call_id));
}

std::unique_ptr<OutputParser> make_named_calls_parser(const OutputFormat& format, ParserOptions options) {
  return std::make_unique<NamedCallsParser>(format, std::move(options));
}

}  // namespace millrace::api
