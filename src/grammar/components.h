// Strongly connected components of rules that call each other.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::grammar {

/// Component of each vertex. `order` gets all vertices, callees before callers, components in one piece.
std::vector<uint32_t> components(const std::vector<std::vector<uint32_t>>& out, std::vector<uint32_t>& order);

}  // namespace millrace::grammar
