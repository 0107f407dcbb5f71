// What all output parsers share: the buffer of undecided text, the search for markers, the events.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/output_parser.h"

namespace millrace::api {

class ParserBase : public OutputParser {
 public:
  ParserBase(OutputFormat format, ParserOptions options);

  void push(std::string_view text, std::vector<OutputEvent>& events) final;
  void finish(std::vector<OutputEvent>& events) final;
  bool in_reasoning() const override { return in_reasoning_; }

 protected:
  static constexpr size_t kNowhere = std::string_view::npos;

  /// Consumes some of rest() and returns true, or returns false when more text is needed. Whatever it decides
  /// may depend only on the text from where it stands, never on how much of it is there: it must wait while a
  /// marker could still begin or go on, unless final().
  virtual bool step() = 0;
  /// At the end of the text, after the last step.
  virtual void close() {}

  bool final() const { return final_; }
  std::string_view rest() const { return std::string_view(in_).substr(pos_); }
  void consume(size_t bytes) { pos_ += bytes; }

  struct Found {
    size_t at = kNowhere;  ///< of the first marker; kNowhere: none
    size_t which = 0;
    size_t safe = 0;  ///< bytes of rest() before which no marker can begin
  };
  Found find(const std::vector<std::string>& markers) const;

  enum class Here { kNo, kYes, kUndecided };
  /// Whether rest() begins with one of the markers (the longest wins); `which` tells it.
  Here begins_with(const std::vector<std::string>& markers, size_t& which) const;

  // Content and reasoning: white space is held until it is known whether a marker follows.
  void content(std::string_view text);
  void reasoning(std::string_view text);
  /// White space held since the last content; it becomes part of what a failed tool call gives back.
  std::string take_held() { return std::exchange(held_, {}); }
  /// A marker was passed: white space after it is dropped.
  void at_marker() { skip_blank_ = passed_marker_ = true; }

  // Tool calls.
  void begin_call(const std::string& name, const std::string& id);
  void arguments(std::string_view json);
  void end_call();
  bool call_open() const { return call_open_; }
  int calls() const { return calls_; }
  bool known_tool(std::string_view name) const;
  const Tool* find_tool(std::string_view name) const;

  OutputFormat format_;
  ParserOptions options_;
  bool in_reasoning_ = false;

 private:
  void run();
  OutputEvent& event(OutputEvent::Kind kind, bool join);
  void text_event(OutputEvent::Kind kind, std::string_view text);

  std::string in_;
  size_t pos_ = 0;
  bool final_ = false;
  std::string held_;
  bool skip_blank_ = false;
  bool wrote_content_ = false;
  bool passed_marker_ = false;
  int calls_ = 0;
  bool call_open_ = false;
  bool call_has_arguments_ = false;
  std::vector<OutputEvent>* events_ = nullptr;
};

/// Reasoning blocks and dropped markers around what a subclass knows about tool calls.
class TextParser : public ParserBase {
 public:
  using ParserBase::ParserBase;

 protected:
  bool step() final;
  void close() final;
  bool tools_enabled() const { return !options_.tools.empty(); }

  /// Markers that begin tool calls; called once.
  virtual std::vector<std::string> tool_markers() { return {}; }
  /// A tool marker begins rest(). The subclass consumes from there in tool_step() until it calls
  /// leave_tools().
  virtual void enter_tools(size_t which) {}
  virtual bool tool_step() { return false; }
  virtual void tool_close() {}
  /// A reasoning block has just ended.
  virtual void reasoning_ended() {}

  /// Back to content; what comes next is read as content again.
  void leave_tools() { in_tools_ = false; }
  /// Gives up a call that has not begun: its text so far is content.
  void abandon();
  /// Consumes bytes that belong to a call that may still be given up.
  void take(size_t bytes) {
    raw_ += rest().substr(0, bytes);
    consume(bytes);
  }
  /// The call (or marker) has been understood: nothing will be given back.
  void commit() { raw_.clear(); }

  std::string raw_;
  bool in_tools_ = false;

 private:
  void prepare();
  bool text_step();
  bool reasoning_step();

  bool prepared_ = false;
  std::vector<std::string> markers_;  ///< tool markers, then reasoning begin, then dropped ones
  size_t num_tool_markers_ = 0;
  bool has_reasoning_ = false;
};

/// "NAME", "NAME[ARGS]" or "NAME[CALL_ID]ID[ARGS]"; an empty name when `text` is none of these.
void read_mistral_header(std::string_view text, std::string& name, std::string& id);

/// Formats whose calls are JSON objects with a name: markers begin and end them, lists are allowed.
std::unique_ptr<OutputParser> make_json_calls_parser(const OutputFormat& format, ParserOptions options);
/// Formats that write the name, then the arguments as JSON.
std::unique_ptr<OutputParser> make_named_calls_parser(const OutputFormat& format, ParserOptions options);
/// Formats that write every argument in tags of its own.
std::unique_ptr<OutputParser> make_tagged_calls_parser(const OutputFormat& format, ParserOptions options);
/// Formats in which every part has a recipient: gpt-oss and Functionary v2 and v3.2.
std::unique_ptr<OutputParser> make_harmony_parser(const OutputFormat& format, ParserOptions options);
std::unique_ptr<OutputParser> make_functionary_parser(const OutputFormat& format, ParserOptions options);

}  // namespace millrace::api
