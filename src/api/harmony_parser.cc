// Formats in which every part of the output names its recipient: gpt-oss (harmony) and Functionary v2 and
// v3.2.
#include "api/json_scanner.h"
#include "api/parser_base.h"

namespace millrace::api {

namespace {

/// Longest header that is waited for.
constexpr size_t kMaxHeader = 512;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \n\r\t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \n\r\t") - first + 1);
}

/// "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>...<|call|>": a header up to
/// <|message|>, then a body up to the next marker. The prompt ends with "<|start|>assistant".
class HarmonyParser : public ParserBase {
 public:
  using ParserBase::ParserBase;

 protected:
  bool step() override {
    if (rest().empty()) return false;
    return in_header_ ? header_step() : body_step();
  }

  void close() override {
    if (in_header_ && !header_.empty()) flush_header();
  }

 private:
  enum class Body { kContent, kReasoning, kCall };

  bool header_step() {
    // A header begins with a marker or a recipient; anything else is an answer without one.
    if (header_.empty() && !expecting_) {
      size_t which = 0;
      switch (begins_with({"<|channel|>", "<|start|>", " to=", "to=", "<|message|>"}, which)) {
        case Here::kUndecided:
          return false;
        case Here::kNo:
          in_header_ = false;
          begin_body(Body::kContent);
          return true;
        case Here::kYes:
          expecting_ = true;
          break;
      }
    }
    const Found found = find({"<|message|>"});
    const size_t plain = std::min(found.at, found.safe);
    header_ += rest().substr(0, plain);
    consume(plain);
    if (header_.size() > kMaxHeader) {
      flush_header();
      return true;
    }
    if (found.at == kNowhere) return plain > 0;
    consume(std::string_view("<|message|>").size());
    read_header();
    return true;
  }

  void flush_header() {
    in_header_ = false;
    begin_body(Body::kContent);
    content(std::exchange(header_, {}));
  }

  void read_header() {
    const std::string header = std::exchange(header_, {});
    in_header_ = expecting_ = false;
    std::string_view channel, recipient;
    if (const size_t at = header.find("<|channel|>"); at != std::string::npos) {
      channel = std::string_view(header).substr(at + 11);
      channel = channel.substr(0, channel.find_first_of(" <\n"));
    }
    if (const size_t at = header.find("to="); at != std::string::npos) {
      recipient = std::string_view(header).substr(at + 3);
      recipient = recipient.substr(0, recipient.find_first_of(" <\n"));
    }
    at_marker();
    if (!recipient.empty() && recipient != "assistant" && !options_.tools.empty()) {
      if (recipient.substr(0, 10) == "functions.") recipient.remove_prefix(10);
      begin_call(std::string(recipient), "");
      begin_body(Body::kCall);
    } else {
      begin_body(channel == "analysis" ? Body::kReasoning : Body::kContent);
    }
  }

  void begin_body(Body body) {
    body_ = body;
    in_reasoning_ = body == Body::kReasoning;
  }

  bool body_step() {
    static const std::vector<std::string> kEnds = {"<|end|>", "<|return|>", "<|call|>", "<|start|>",
                                                   "<|channel|>"};
    const Found found = find(kEnds);
    const size_t plain = std::min(found.at, found.safe);
    if (plain > 0) {
      const std::string_view text = rest().substr(0, plain);
      if (body_ == Body::kCall) {
        arguments(text);
      } else if (body_ == Body::kReasoning) {
        reasoning(text);
      } else {
        content(text);
      }
      consume(plain);
      return true;
    }
    if (found.at == kNowhere) return false;
    end_call();
    take_held();
    at_marker();
    in_reasoning_ = false;
    in_header_ = true;
    header_.clear();
    // The next part's own beginning is read as its header.
    if (kEnds[found.which] != "<|channel|>" && kEnds[found.which] != "<|start|>") {
      consume(kEnds[found.which].size());
      expecting_ = false;
    } else {
      expecting_ = true;
    }
    return true;
  }

  bool in_header_ = true;
  bool expecting_ = false;
  Body body_ = Body::kContent;
  std::string header_;
};

/// v3.2: "all\ntext>>>NAME\n{...}"; v2:
/// "all\n<|content|>text\n<|from|>assistant\n<|recipient|>NAME\n<|content|>{...}". The prompt ends where the
/// first recipient is to come.
class FunctionaryParser : public ParserBase {
 public:
  FunctionaryParser(OutputFormat format, ParserOptions options)
      : ParserBase(std::move(format), std::move(options)) {
    const bool v2 = format_.tools == ToolFormat::kFunctionaryV2;
    header_end_ = v2 ? "<|content|>" : "\n";
    if (v2) {
      separators_ = {"\n<|from|>assistant\n<|recipient|>", "<|from|>assistant\n<|recipient|>",
                     "<|recipient|>", "<|stop|>"};
    } else {
      separators_ = {">>>"};
    }
  }

 protected:
  bool step() override {
    if (rest().empty()) return false;
    if (in_header_) return header_step();
    return in_call_ ? call_step() : text_step();
  }

  void close() override {
    if (in_header_) flush();
  }

 private:
  bool header_step() {
    if (raw_.empty()) {
      // Some models write the separator that the prompt already ended with.
      size_t which = 0;
      switch (begins_with(separators_, which)) {
        case Here::kUndecided:
          return false;
        case Here::kYes:
          consume(separators_[which].size());
          return true;
        case Here::kNo:
          break;
      }
    }
    const Found found = find({header_end_});
    const size_t plain = std::min(found.at, found.safe);
    raw_ += rest().substr(0, plain);
    consume(plain);
    if (raw_.size() > kMaxHeader) {
      flush();
      return true;
    }
    if (found.at == kNowhere) return plain > 0;
    const std::string name(trim(raw_));
    if (name == "all") {
      consume(header_end_.size());
      raw_.clear();
      at_marker();
      in_header_ = false;
      in_call_ = false;
      return true;
    }
    if (!known_tool(name)) {
      flush();
      return true;
    }
    consume(header_end_.size());
    raw_.clear();
    begin_call(name, "");
    at_marker();
    scanner_ = JsonScanner();
    in_header_ = false;
    in_call_ = true;
    call_done_ = false;
    return true;
  }

  /// No recipient after all: content.
  void flush() {
    in_header_ = false;
    in_call_ = false;
    content(std::exchange(raw_, {}));
  }

  bool text_step() {
    const Found found = find(separators_);
    const size_t plain = std::min(found.at, found.safe);
    if (plain > 0) {
      content(rest().substr(0, plain));
      consume(plain);
      return true;
    }
    if (found.at == kNowhere) return false;
    next_part(found.which);
    return true;
  }

  void next_part(size_t which) {
    take_held();
    consume(separators_[which].size());
    in_header_ = true;
    in_call_ = false;
  }

  bool call_step() {
    size_t which = 0;
    if (call_done_) {
      switch (begins_with(separators_, which)) {
        case Here::kUndecided:
          return false;
        case Here::kYes:
          next_part(which);
          return true;
        case Here::kNo:
          break;
      }
      const char c = rest()[0];
      if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        consume(1);
      } else {
        in_call_ = false;
      }
      return true;
    }
    const std::string_view text = rest();
    size_t used = 0;
    ScanStatus status = ScanStatus::kMore;
    while (used < text.size() && status == ScanStatus::kMore) {
      status = scanner_.feed(text[used]);
      if (status != ScanStatus::kBad) ++used;
    }
    const bool begun = scanner_.started();
    if (begun) arguments(text.substr(0, used));
    consume(used);
    if (status == ScanStatus::kMore) return true;
    end_call();
    call_done_ = true;
    if (status != ScanStatus::kDone) in_call_ = false;
    return true;
  }

  std::string header_end_;
  std::vector<std::string> separators_;
  bool in_header_ = true;
  bool in_call_ = false;
  bool call_done_ = false;
  std::string raw_;
  JsonScanner scanner_;
};

}  // namespace

std::unique_ptr<OutputParser> make_harmony_parser(const OutputFormat& format, ParserOptions options) {
  return std::make_unique<HarmonyParser>(format, std::move(options));
}

std::unique_ptr<OutputParser> make_functionary_parser(const OutputFormat& format, ParserOptions options) {
  return std::make_unique<FunctionaryParser>(format, std::move(options));
}

}  // namespace millrace::api
