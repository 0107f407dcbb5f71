#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace millrace::text {

/// Bytes of a Base64 text (RFC 4648, padding optional); nullopt when it is none.
std::optional<std::vector<uint8_t>> decode_base64(std::string_view text);

}  // namespace millrace::text
