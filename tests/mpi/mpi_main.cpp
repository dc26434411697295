/// \file The tests of several processes: each runs all cases that the launcher's command names.
#include <gtest/gtest.h>

#include <cstring>

#include "tinygrad/runtime/world/world.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tg::distributed::init();
  const int failed = RUN_ALL_TESTS();
  tg::distributed::finalize();
  return failed;
}
