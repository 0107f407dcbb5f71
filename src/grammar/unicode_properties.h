// Unicode properties by the names that regular expressions use for them.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/sets.h"

namespace millrace::grammar {

/// What stands between the braces of \p{...}: a general category (Lu, Letter, gc=Nd), a script (Script=Greek,
/// sc=Han), or a property like Alphabetic. nullopt for names that are not known.
std::optional<CodepointSet> unicode_property(std::string_view name);

}  // namespace millrace::grammar
