// A model's chat template: Jinja2 as transformers configures it (immutable sandbox, trim_blocks,
// lstrip_blocks, loop controls, tojson without HTML escaping, raise_exception, strftime_now, {% generation
// %}), interpreted with limits.
//
// Not run, and refused when the template is parsed: include, import, extends, lipsum(), autoescape on, self,
// the filters random (another text each time) and urlize, and the methods encode, translate and maketrans.
// Integers have 64 bits; going beyond is an error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::text {

struct TemplateLimits {
  int64_t steps = 4'000'000;                ///< evaluated nodes, and work on texts in units of 256 bytes
  size_t memory_bytes = size_t{128} << 20;  ///< of all values alive at once, the context included
  size_t output_bytes = size_t{64} << 20;   ///< of the rendered text
};

/// A date and time without a zone, as strftime_now prints it.
struct LocalTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
  /// "2026-07-26", "2026-07-26T09:30" or "2026-07-26 09:30:15"; nullopt when malformed or out of range.
  static std::optional<LocalTime> parse(std::string_view text);
};

struct RenderOptions {
  TemplateLimits limits;
  std::optional<LocalTime> now;  ///< what strftime_now shows; the system's local time when empty
  /// Variables for when the context has none of that name: the vocabulary's bos_token, eos_token, ...
  std::vector<std::pair<std::string, std::string>> fallbacks;
};

struct RenderedChat {
  std::string text;
  /// Byte ranges of `text` inside {% generation %} blocks: what the assistant wrote.
  std::vector<std::pair<size_t, size_t>> generated;
};

class ChatTemplate {
 public:
  /// Errors: kInvalidFile (not a Jinja template), kUnsupported (what this interpreter refuses),
  /// kLimitExceeded; each with the line and what was found.
  static ChatTemplate parse(std::string_view source);

  /// Renders with the members of `context_json` (a JSON object) as variables.
  /// Errors: kInvalidArgument (the context is no JSON object; the template refuses the messages, in its own
  /// words and with the line), kLimitExceeded, kUnsupported.
  RenderedChat render(std::string_view context_json, const RenderOptions& options = {}) const;

  const std::string& source() const { return source_; }

 private:
  struct Parsed;
  std::string source_;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace millrace::text
