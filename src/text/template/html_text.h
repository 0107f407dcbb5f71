// Text out of HTML, as Python's html and markupsafe read it.
#pragma once

#include <string>
#include <string_view>

namespace millrace::text::jinja {

/// html.unescape: named and numeric character references become characters.
std::string unescape_html(std::string_view text);

/// Markup.striptags: without comments and tags, runs of white space as one space, references resolved.
std::string strip_tags(std::string_view text);

}  // namespace millrace::text::jinja
