/// \file The tests of several processes: each runs all cases that the launcher's command names. `test_mpi --tiny-model
/// FILE` writes a language model for scripts that need one.
#include <gtest/gtest.h>

#include <fstream>
#include <string_view>

#include "helpers/tiny_chat_model.h"
#include "tinygrad/runtime/world/world.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--tiny-model") {
    std::ofstream(argv[2], std::ios::binary) << tg::test::tiny_chat_model();
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  tg::distributed::init();
  const int failed = RUN_ALL_TESTS();
  tg::distributed::finalize();
  return failed;
}
