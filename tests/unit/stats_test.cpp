/// \file Median and range of samples.
#include "tinygrad/base/stats.h"

#include <gtest/gtest.h>

namespace tg {
namespace {

TEST(Stats, Median) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({2, 2, 2, 7, 2, 1}), 2);
  EXPECT_THROW(median({}), ValueError);
}

TEST(Stats, Summary) {
  const Summary s = summarize({5, 1, 4, 2, 3});
  EXPECT_EQ(s.median, 3);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 5);
  EXPECT_EQ(s.runs, 5u);
}

}  // namespace
}  // namespace tg
