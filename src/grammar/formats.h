// The `format` names of JSON Schema as regular expressions over whole strings.
#pragma once

#include <string_view>

namespace millrace::grammar {

enum class FormatKind { kRegex, kRefused, kUnknown };

struct FormatRule {
  FormatKind kind = FormatKind::kUnknown;
  const char* regex = nullptr;
};

/// kUnknown: not a name of the specification, which then demands nothing.
FormatRule find_format(std::string_view name);

}  // namespace millrace::grammar
