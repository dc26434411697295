/// \file The table of environment variables: parsing, older spellings, scoped overrides, threads, printing.
#include "tinygrad/base/env.h"

#include <gtest/gtest.h>

namespace tg {
TEST(Env, ContextOverridesAndRestores) {
  const int64_t before = env::DEBUG.get();
  {
    Context ctx{{"DEBUG", 2}, {"CC", "tcc"}};
    EXPECT_EQ(env::DEBUG.get(), 2);
    EXPECT_EQ(env::CC.get(), "tcc");
    {
      Context inner{{"DEBUG", 5}};
      EXPECT_EQ(env::DEBUG.get(), 5);
      EXPECT_EQ(env::CC.get(), "tcc");
    }
    EXPECT_EQ(env::DEBUG.get(), 2);
  }
  EXPECT_EQ(env::DEBUG.get(), before);
}
TEST(Env, ContextTakesDoubleBraces) {
  Context ctx{{{"DEBUG", 2}, {"NOOPT", 1}}};
  EXPECT_EQ(env::DEBUG.get(), 2);
  EXPECT_EQ(env::NOOPT.get(), 1);
  Context one{{{"NOOPT", 0}}};
  EXPECT_EQ(env::NOOPT.get(), 0);
}
}  // namespace tg
