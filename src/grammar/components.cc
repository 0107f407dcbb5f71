#include "grammar/components.h"

#include <algorithm>

namespace millrace::grammar {
namespace {

constexpr uint32_t kUnseen = ~uint32_t{0};

}  // namespace

// Tarjan's algorithm, with an explicit stack.
std::vector<uint32_t> components(const std::vector<std::vector<uint32_t>>& out,
                                 std::vector<uint32_t>& order) {
  const auto n = static_cast<uint32_t>(out.size());
  std::vector<uint32_t> component(n, kUnseen), low(n, 0), number(n, 0), stack;
  std::vector<std::pair<uint32_t, size_t>> frames;
  uint32_t counter = 0, num_components = 0;
  for (uint32_t root = 0; root < n; ++root) {
    if (number[root]) continue;
    frames.push_back({root, 0});
    while (!frames.empty()) {
      auto& [v, i] = frames.back();
      if (i == 0 && !number[v]) {
        number[v] = low[v] = ++counter;
        stack.push_back(v);
      }
      if (i < out[v].size()) {
        const uint32_t w = out[v][i++];
        if (!number[w]) {
          frames.push_back({w, 0});
        } else if (component[w] == kUnseen) {
          low[v] = std::min(low[v], number[w]);
        }
        continue;
      }
      if (low[v] == number[v]) {
        for (;;) {
          const uint32_t w = stack.back();
          stack.pop_back();
          component[w] = num_components;
          order.push_back(w);
          if (w == v) break;
        }
        ++num_components;
      }
      const uint32_t done = v;
      frames.pop_back();
      if (!frames.empty()) low[frames.back().first] = std::min(low[frames.back().first], low[done]);
    }
  }
  return component;
}

}  // namespace millrace::grammar
