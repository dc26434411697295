/// \file Lines for people in a process of no world: nothing is put before them.
#include "tinygrad/base/output.h"

#include <gtest/gtest.h>

namespace tg {
namespace {
TEST(Output, LinesOfAProcessAlone) {
  testing::internal::CaptureStdout();
  print_lines("a\nb");
  print_lines("");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a\nb\n");
  testing::internal::CaptureStderr();
  note_lines("c\n\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "c\n\n");
  EXPECT_TRUE(shows_progress());
}
}  // namespace
}  // namespace tg
