// Tokens to a parsed template. What Jinja2 refuses is kInvalidFile, what Jinja2 has and this interpreter
// refuses (include, import, extends, lipsum, unknown filters and tests outside conditions) is kUnsupported;
// both with the line.
#pragma once

#include <string_view>

#include "text/template/ast.h"

namespace millrace::text::jinja {

Template parse_template(std::string_view source);

}  // namespace millrace::text::jinja
