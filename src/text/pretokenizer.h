// Cuts a text into the words that byte-pair merges never cross. A rule is a list of stages; each stage cuts
// every part that the stages before it left, at the borders of its matches (matches and the gaps between them
// become parts).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/scanners.h"

namespace millrace::text {

class PreStage {
 public:
  virtual ~PreStage() = default;
  /// Appends the ends of the parts of `text` (offsets into it, rising, the last one text.size()).
  virtual void cut(std::string_view text, std::vector<uint32_t>& ends) const = 0;
};

/// Stage for a pattern: a scanner where one is known to be equal, PCRE2 for the rest.
std::unique_ptr<PreStage> make_stage(std::string_view pattern, const std::string& origin);
/// The same, always through PCRE2: the reference that tests hold scanners against.
std::unique_ptr<PreStage> make_regex_stage(std::string_view pattern, const std::string& origin);
/// Scanner of a pattern, where there is one.
std::optional<ScanRule> scan_rule_of(std::string_view pattern);

/// What a `pre` name of a GGUF vocabulary stands for.
struct PreRule {
  std::vector<std::string_view> patterns;  ///< stages in order
  bool whole_words = false;                ///< a word that is a token as it stands is not built by merges
  bool add_bos = false;                    ///< where the file says nothing
  bool plain_utf8 = false;  ///< tokens are UTF-8 with U+2581 for spaces, not GPT-2's byte alphabet
};

/// nullptr for an unknown name.
const PreRule* find_pre_rule(std::string_view name);
/// Every name, for tests and messages.
std::vector<std::string_view> pre_rule_names();

class PreTokenizer {
 public:
  PreTokenizer() = default;
  PreTokenizer(const std::vector<std::string_view>& patterns, const std::string& origin);

  /// Calls visit(word) for every word of `text`, in order; together they are the text. Ill-formed UTF-8 is
  /// cut out first: each run of ill-formed bytes is a word, and patterns never see across one.
  template <typename Visit>
  void split(std::string_view text, const Visit& visit) const;

  /// The single scanner of the rule, where it is one.
  const std::optional<ScanRule>& scan_rule() const { return scan_; }

 private:
  /// Ends of the words of well-formed `text`.
  void cut(std::string_view text, std::vector<uint32_t>& ends) const;
  /// Length of the well-formed beginning of `text`, and of the ill-formed run behind it.
  static std::pair<size_t, size_t> next_run(std::string_view text);

  std::optional<ScanRule> scan_;
  std::vector<std::unique_ptr<PreStage>> stages_;
};

template <typename Visit>
void PreTokenizer::split(std::string_view text, const Visit& visit) const {
  std::vector<uint32_t> ends;
  while (!text.empty()) {
    const std::pair<size_t, size_t> run = next_run(text);
    const std::string_view good = text.substr(0, run.first);
    if (scan_) {
      for (size_t at = 0; at < good.size();) {
        const size_t end = scan_word(*scan_, good, at);
        visit(good.substr(at, end - at));
        at = end;
      }
    } else if (!good.empty()) {
      ends.clear();
      cut(good, ends);
      size_t at = 0;
      for (const uint32_t end : ends) {
        visit(good.substr(at, end - at));
        at = end;
      }
    }
    if (run.second != 0) visit(text.substr(run.first, run.second));
    text.remove_prefix(run.first + run.second);
  }
}

}  // namespace millrace::text
