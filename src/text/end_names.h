#pragma once

#include <string_view>

namespace millrace::text {

/// Whether published vocabularies give this name to a token that ends a turn, a message or a text. Files do
/// not mark such tokens otherwise, so the name is the only sign.
bool is_end_name(std::string_view token);

}  // namespace millrace::text
