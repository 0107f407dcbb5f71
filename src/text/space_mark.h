// U+2581, which SentencePiece and its descendants write for a space.
#pragma once

#include <string_view>

namespace millrace::text {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

}  // namespace millrace::text
