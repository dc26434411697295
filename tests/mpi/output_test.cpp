/// \file What several processes print: lines begin with the rank and stay whole, one process shows progress.
#include "tinygrad/base/output.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tinygrad/base/context.h"
#include "tinygrad/base/progress.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using distributed::rank;

void expect_prefixed(const std::string& text, size_t lines_at_least) {
  const std::string prefix = str('[', rank(), "] ");
  std::istringstream in(text);
  size_t lines = 0;
  for (std::string line; std::getline(in, line); lines++) EXPECT_EQ(line.substr(0, prefix.size()), prefix) << line;
  EXPECT_GE(lines, lines_at_least);
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(WorldOutput, LinesBeginWithTheRank) {
  const Mesh mesh({{"data", -1}});
  const Context debug{{"DEBUG", 4}, {"CACHELEVEL", 0}};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Tensor::arange(40).cast(dtypes::float32).contiguous().shard(mesh, {"data"}).sum().realize();
  const std::string out = testing::internal::GetCapturedStdout(), notes = testing::internal::GetCapturedStderr();
  expect_prefixed(out, 4);
  EXPECT_NE(out.find("*** world"), std::string::npos) << out;
  expect_prefixed(notes, 2);  // the schedule
}

TEST(WorldOutput, TextOfSeveralLinesIsOnePiece) {
  testing::internal::CaptureStdout();
  print_lines("a\n\nb");
  const std::string p = str('[', rank(), "] ");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), str(p, "a\n", p, "\n", p, "b\n"));
}

TEST(WorldOutput, OneProcessShowsProgress) {
  EXPECT_EQ(shows_progress(), rank() == 0);
  testing::internal::CaptureStderr();
  { Progress(3, "steps").advance(); }
  EXPECT_FALSE(Progress(3, "steps").visible()) << "standard error is no terminal";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tg
