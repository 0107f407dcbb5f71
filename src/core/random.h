// PCG32 (O'Neill 2014): small, fast, the same stream on every machine for a seed. Used wherever a result must
// repeat.
#pragma once

#include <cmath>
#include <cstdint>

namespace millrace {

class Random {
 public:
  explicit Random(uint64_t seed = 0, uint64_t stream = 1) : increment_((stream << 1) | 1) {
    next();
    state_ += seed;
    next();
  }

  uint32_t next() {
    const uint64_t old = state_;
    state_ = old * 6364136223846793005ULL + increment_;
    const auto shifted = static_cast<uint32_t>(((old >> 18) ^ old) >> 27);
    const auto rotation = static_cast<uint32_t>(old >> 59);
    return (shifted >> rotation) | (shifted << ((32 - rotation) & 31));
  }
  uint64_t next64() {
    const uint64_t high = next();
    return (high << 32) | next();
  }
  /// Uniform in [0, bound); bound > 0.
  uint32_t below(uint32_t bound) {
    return static_cast<uint32_t>((static_cast<uint64_t>(next()) * bound) >> 32);
  }
  /// Uniform in [0, 1), 24 bits.
  float uniform() { return static_cast<float>(next() >> 8) * 0x1p-24f; }
  /// Uniform in [0, 1), 53 bits.
  double uniform_double() { return static_cast<double>(next64() >> 11) * 0x1p-53; }
  /// Standard normal (Box-Muller).
  float normal() {
    const double u = 1.0 - uniform_double(), v = uniform_double();
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
  }

 private:
  uint64_t state_ = 0;
  uint64_t increment_;
};

}  // namespace millrace
