// Stop strings in streamed text: text comes in as it is decoded, goes out as soon as it cannot become part of
// a stop string any more.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::text {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops, bool keep_stop = false);

  /// Adds text; returns what may be shown now. After a match nothing more comes out.
  std::string push(std::string_view text);
  /// The rest at the end of the stream, when no stop string came.
  std::string finish();
  /// A stop string was seen: its index, or -1.
  int matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  bool keep_stop_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace millrace::text
