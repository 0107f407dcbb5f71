// Patterns of Replace and Split: a literal string or a regular expression.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/regex.h"

namespace millrace::text {

class JsonNode;

struct Range {
  size_t begin, end;
};

class Pattern {
 public:
  /// From {"String": "..."} or {"Regex": "..."}.
  static Pattern from_json(const JsonNode& node);
  static Pattern literal(std::string text);

  /// Matches in order, without overlap. Ill-formed bytes match nothing.
  std::vector<Range> find_all(std::string_view text) const;
  std::string replace_all(std::string_view text, std::string_view content) const;
  /// The regular expression as written, empty for a literal.
  const std::string& source() const { return source_; }

 private:
  std::string literal_;
  std::string source_;
  std::shared_ptr<Regex> regex_;
};

}  // namespace millrace::text
