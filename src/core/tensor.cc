#include "core/tensor.h"

#include <fmt/format.h>

namespace millrace {

std::string Shape::to_string() const {
  std::string out = "[";
  for (int i = 0; i < ndim; ++i) out += fmt::format("{}{}", i ? ", " : "", dims[i]);
  return out + "]";
}

}  // namespace millrace
