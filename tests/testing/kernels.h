// What tests of kernels and ops share: the instruction sets to try and random inputs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cpu.h"
#include "core/random.h"

namespace millrace::testing {

/// Every instruction-set level that this machine runs, the slowest first.
inline std::vector<IsaLevel> isa_levels() {
  std::vector<IsaLevel> all{IsaLevel::kScalar};
  for (const IsaLevel level :
       {IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmxInt8, IsaLevel::kAmx, IsaLevel::kAmxFp16})
    if (fastest_isa() >= level) all.push_back(level);
  return all;
}

/// Names a test's parameter, which may have letters, digits and underscores.
inline std::string isa_test_name(const ::testing::TestParamInfo<IsaLevel>& info) {
  std::string name(isa_name(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// `n` normal values of the given spread (standard deviation) about `shift`.
inline std::vector<float> random_floats(Random& random, int64_t n, float spread = 1.0f, float shift = 0.0f) {
  std::vector<float> x(static_cast<size_t>(n));
  for (float& f : x) f = shift + spread * random.normal();
  return x;
}

}  // namespace millrace::testing
