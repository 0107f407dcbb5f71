#include "text/hugging_face/patterns.h"

#include "core/utf8.h"
#include "text/hugging_face/json_node.h"

namespace millrace::text {

Pattern Pattern::from_json(const JsonNode& node) {
  Pattern pattern;
  if (const auto text = node.find("String")) return literal(text->string());
  if (const auto source = node.find("Regex")) {
    pattern.source_ = source->string();
    pattern.regex_ = std::make_shared<Regex>(pattern.source_, source->place());
    return pattern;
  }
  node.bad("is no pattern, expected {\"String\": ...} or {\"Regex\": ...}");
}

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

std::vector<Range> Pattern::find_all(std::string_view text) const {
  std::vector<Range> out;
  if (!regex_) {
    if (literal_.empty()) return out;
    for (size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos; at += literal_.size())
      out.push_back({at, at + literal_.size()});
    return out;
  }
  for (size_t base = 0; base < text.size();) {
    // Well-formed stretches one by one.
    const std::string_view rest = text.substr(base);
    const size_t bad = utf8::find_invalid(rest);
    const std::string_view good = rest.substr(0, bad);
    Regex::Match match{};
    size_t last_end = std::string_view::npos;
    for (size_t from = 0; from <= good.size() && regex_->find(good, from, match);) {
      const bool empty = match.end == match.begin;
      // No empty match where the last one ended.
      if (!empty || match.begin != last_end) out.push_back({base + match.begin, base + match.end});
      last_end = match.end;
      from = match.end;
      if (!empty) continue;
      if (from >= good.size()) break;
      utf8::next(good, from);
    }
    if (bad == std::string_view::npos) break;
    base += bad + 1;
  }
  return out;
}

std::string Pattern::replace_all(std::string_view text, std::string_view content) const {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (const Range& match : find_all(text)) {
    out.append(text.substr(at, match.begin - at));
    out.append(content);
    at = match.end;
  }
  out.append(text.substr(at));
  return out;
}

}  // namespace millrace::text
