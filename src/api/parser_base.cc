#include "api/parser_base.h"

#include "api/json_scanner.h"

namespace millrace::api {

ParserBase::ParserBase(OutputFormat format, ParserOptions options)
    : format_(std::move(format)), options_(std::move(options)) {
  in_reasoning_ = options_.starts_in_reasoning && !format_.reasoning.empty();
  if (in_reasoning_) at_marker();
}

void ParserBase::push(std::string_view text, std::vector<OutputEvent>& events) {
  events_ = &events;
  in_ += text;
  run();
}

void ParserBase::finish(std::vector<OutputEvent>& events) {
  events_ = &events;
  final_ = true;
  run();
  close();
  if (call_open_) end_call();
  // White space at the very end belongs to a plain answer; behind markers it was dropped.
  if (!in_reasoning_ && (wrote_content_ ? !skip_blank_ : !passed_marker_))
    text_event(OutputEvent::Kind::kContent, take_held());
  held_.clear();
}

void ParserBase::run() {
  while (step()) {
    if (pos_ > 4096 && pos_ > in_.size() / 2) {
      in_.erase(0, pos_);
      pos_ = 0;
    }
  }
}

ParserBase::Found ParserBase::find(const std::vector<std::string>& markers) const {
  const std::string_view text = rest();
  Found found;
  for (size_t i = 0; i < markers.size(); ++i) {
    const size_t at = text.find(markers[i]);
    if (at == kNowhere) continue;
    if (at < found.at || (at == found.at && markers[i].size() > markers[found.which].size())) {
      found.at = at;
      found.which = i;
    }
  }
  found.safe = text.size();
  if (final_) return found;
  // The first place where a marker is cut off by the end of the text.
  for (const std::string& marker : markers) {
    const size_t longest = std::min(marker.size() - 1, text.size());
    for (size_t n = longest; n > 0; --n) {
      if (text.substr(text.size() - n) != std::string_view(marker).substr(0, n)) continue;
      found.safe = std::min(found.safe, text.size() - n);
      break;
    }
  }
  // A whole marker counts only when no other could begin before it, or at the same place and be longer.
  if (found.at != kNowhere && found.safe <= found.at) found.at = kNowhere;
  return found;
}

ParserBase::Here ParserBase::begins_with(const std::vector<std::string>& markers, size_t& which) const {
  const std::string_view text = rest();
  bool undecided = false, yes = false;
  for (size_t i = 0; i < markers.size(); ++i) {
    const std::string_view marker = markers[i];
    if (text.substr(0, marker.size()) == marker) {
      if (!yes || marker.size() > markers[which].size()) which = i;
      yes = true;
    } else if (!final_ && text.size() < marker.size() && marker.substr(0, text.size()) == text) {
      undecided = true;
    }
  }
  if (undecided) return Here::kUndecided;
  return yes ? Here::kYes : Here::kNo;
}

OutputEvent& ParserBase::event(OutputEvent::Kind kind, bool join) {
  const bool same = join && !events_->empty() && events_->back().kind == kind &&
                    events_->back().index == std::max(calls_ - 1, 0);
  const bool plain = kind == OutputEvent::Kind::kContent || kind == OutputEvent::Kind::kReasoning;
  if (same || (join && plain && !events_->empty() && events_->back().kind == kind)) return events_->back();
  OutputEvent& e = events_->emplace_back();
  e.kind = kind;
  e.index = plain ? 0 : std::max(calls_ - 1, 0);
  return e;
}

void ParserBase::text_event(OutputEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  event(kind, true).text += text;
  if (kind == OutputEvent::Kind::kContent) wrote_content_ = true;
}

void ParserBase::content(std::string_view text) {
  if (skip_blank_) {
    size_t n = 0;
    while (n < text.size() && is_blank(text[n])) ++n;
    text.remove_prefix(n);
    if (text.empty()) return;
    skip_blank_ = false;
  }
  size_t end = text.size();
  while (end > 0 && is_blank(text[end - 1])) --end;
  if (end > 0) {
    text_event(OutputEvent::Kind::kContent, take_held());
    text_event(OutputEvent::Kind::kContent, text.substr(0, end));
  }
  held_ += text.substr(end);
}

void ParserBase::reasoning(std::string_view text) {
  if (skip_blank_) {
    size_t n = 0;
    while (n < text.size() && is_blank(text[n])) ++n;
    text.remove_prefix(n);
    if (text.empty()) return;
    skip_blank_ = false;
  }
  size_t end = text.size();
  while (end > 0 && is_blank(text[end - 1])) --end;
  if (end > 0) {
    text_event(OutputEvent::Kind::kReasoning, take_held());
    text_event(OutputEvent::Kind::kReasoning, text.substr(0, end));
  }
  held_ += text.substr(end);
}

void ParserBase::begin_call(const std::string& name, const std::string& id) {
  if (call_open_) end_call();
  held_.clear();
  passed_marker_ = true;
  const int index = calls_++;
  OutputEvent& e = event(OutputEvent::Kind::kToolCallBegin, false);
  e.index = index;
  e.name = name;
  e.id = !id.empty() ? id : options_.make_id ? options_.make_id(index) : "call_" + std::to_string(index);
  call_open_ = true;
  call_has_arguments_ = false;
}

void ParserBase::arguments(std::string_view json) {
  if (json.empty()) return;
  call_has_arguments_ = true;
  event(OutputEvent::Kind::kToolArguments, true).text += json;
}

void ParserBase::end_call() {
  if (!call_open_) return;
  if (!call_has_arguments_) arguments("{}");
  call_open_ = false;
  event(OutputEvent::Kind::kToolCallEnd, false);
}

const Tool* ParserBase::find_tool(std::string_view name) const {
  for (const Tool& tool : options_.tools)
    if (tool.name == name) return &tool;
  return nullptr;
}

bool ParserBase::known_tool(std::string_view name) const { return find_tool(name) != nullptr; }

// --- TextParser ---

void TextParser::prepare() {
  if (prepared_) return;
  prepared_ = true;
  if (tools_enabled()) markers_ = tool_markers();
  num_tool_markers_ = markers_.size();
  has_reasoning_ = !format_.reasoning.empty() && !format_.reasoning.begin.empty();
  if (has_reasoning_) markers_.push_back(format_.reasoning.begin);
  markers_.insert(markers_.end(), format_.dropped.begin(), format_.dropped.end());
}

bool TextParser::step() {
  prepare();
  if (in_tools_) return tool_step();
  if (rest().empty()) return false;
  return in_reasoning_ ? reasoning_step() : text_step();
}

bool TextParser::text_step() {
  const Found found = find(markers_);
  const size_t plain = std::min(found.at, found.safe);
  if (plain > 0) {
    content(rest().substr(0, plain));
    consume(plain);
    return true;
  }
  if (found.at == kNowhere) return false;
  if (found.which < num_tool_markers_) {
    raw_ = take_held();
    in_tools_ = true;
    enter_tools(found.which);
    return true;
  }
  consume(markers_[found.which].size());
  if (has_reasoning_ && found.which == num_tool_markers_) {
    take_held();
    in_reasoning_ = true;
  }
  at_marker();
  return true;
}

bool TextParser::reasoning_step() {
  const Found found = find({format_.reasoning.end});
  const size_t plain = std::min(found.at, found.safe);
  if (plain > 0) {
    reasoning(rest().substr(0, plain));
    consume(plain);
    return true;
  }
  if (found.at == kNowhere) return false;
  consume(format_.reasoning.end.size());
  take_held();
  in_reasoning_ = false;
  at_marker();
  reasoning_ended();
  return true;
}

void TextParser::abandon() {
  in_tools_ = false;
  // Given back as it was, its white space included.
  content(std::exchange(raw_, {}));
}

void TextParser::close() {
  if (!in_tools_) return;
  tool_close();
  if (call_open()) {
    end_call();
    raw_.clear();
  }
  if (!raw_.empty()) abandon();
}

}  // namespace millrace::api
