#include "text/stop_strings.h"

#include <algorithm>

namespace millrace::text {

StopStrings::StopStrings(std::vector<std::string> stops, bool keep_stop)
    : stops_(std::move(stops)), keep_stop_(keep_stop) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

std::string StopStrings::push(std::string_view text) {
  if (matched_ >= 0) return "";
  held_ += text;
  size_t first = std::string::npos;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t at = held_.find(stops_[i]);
    if (at < first) {
      first = at;
      matched_ = static_cast<int>(i);
    }
  }
  if (matched_ >= 0) {
    std::string out =
        held_.substr(0, first + (keep_stop_ ? stops_[static_cast<size_t>(matched_)].size() : 0));
    held_.clear();
    return out;
  }
  // Hold back the longest end of the text that begins a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
        keep = n;
        break;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::finish() {
  std::string out;
  if (matched_ < 0) out.swap(held_);
  return out;
}

}  // namespace millrace::text
