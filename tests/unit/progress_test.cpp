/// \file The text of the progress line.
#include "tinygrad/base/progress.h"

#include <gtest/gtest.h>

namespace tg {
namespace {

int columns(const std::string& s) {
  int n = 0;
  for (unsigned char c : s) n += (c & 0xC0) != 0x80;  // code points
  return n;
}

TEST(Progress, RateAndTimeLeft) {
  EXPECT_EQ(format_progress("train", 50, 200, 10, "loss 0.25", 65),
            "train:  25%|██▌       | 50/200 [00:10<00:30, 5.00it/s, loss 0.25]");
  EXPECT_NE(format_progress("", 1, 4, 8, "", 60).find("| 1/4 [00:08<00:24, 8.00s/it]"), std::string::npos);
}

TEST(Progress, FillsTheLineAndNoMore) {
  for (int width = 1; width < 200; width++)
    for (int done : {0, 1, 33, 99, 100})
      EXPECT_LE(columns(format_progress("label", done, 100, 3.5, "note", width)), width) << width;
  EXPECT_EQ(columns(format_progress("label", 10, 100, 3.5, "note", 70)), 70);
}

TEST(Progress, BeforeTheFirstStepAndAfterTheLast) {
  EXPECT_NE(format_progress("", 0, 10, 0, "", 60).find("0/10 [00:00<?, ?it/s]"), std::string::npos);
  const std::string end = format_progress("", 10, 10, 3725, "", 80);
  EXPECT_NE(end.find("100%|████████████████████████████████████████| 10/10 [1:02:05<00:00, 372.50s/it]"),
            std::string::npos)
      << end;
}

TEST(Progress, UnknownTotal) { EXPECT_EQ(format_progress("read", 7, 0, 2, "", 60), "read: 7it [00:02, 3.50it/s]"); }

TEST(Progress, Bytes) {
  EXPECT_EQ(format_progress("model", 50'000'000, 200'000'000, 10, "", 65, ProgressUnit::kBytes),
            "model:  25%|███         | 50.0 MB/200 MB [00:10<00:30, 5.00 MB/s]");
  EXPECT_EQ(format_progress("model", 7'000, 0, 2, "", 60, ProgressUnit::kBytes), "model: 7.00 KB [00:02, 3.50 KB/s]");
}

TEST(Progress, CountsWhetherItIsShownOrNot) {
  Progress p(3, "quiet", false);
  p.advance();
  p.advance(2, "note");
  EXPECT_EQ(p.done(), 3);
  EXPECT_FALSE(p.visible());
}

}  // namespace
}  // namespace tg
