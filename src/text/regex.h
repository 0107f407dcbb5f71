// Regular expressions of published tokenizers, on PCRE2's JIT with Unicode properties.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace millrace::text {

class Regex {
 public:
  struct Match {
    size_t begin, end;
  };

  /// `\s` and `\S` mean the White_Space property. Error(kUnsupported) for a pattern that does not compile;
  /// `origin` says where it stands.
  Regex(std::string_view pattern, const std::string& origin);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// First match in `text` at or behind `from`; false for none. `text` is well-formed UTF-8 and `from` the
  /// beginning of a character. Error(kLimitExceeded) when the pattern needs too many steps on this text.
  bool find(std::string_view text, size_t from, Match& match) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

/// Quotes every character that has a meaning in a pattern.
std::string quote_pattern(std::string_view text);

}  // namespace millrace::text
