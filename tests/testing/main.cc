#include <gtest/gtest.h>

#include <cstdio>

#include "testing/testing.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::printf("random seed %llu (set MILLRACE_TEST_SEED to repeat)\n",
              static_cast<unsigned long long>(millrace::testing::seed()));
  return RUN_ALL_TESTS();
}
