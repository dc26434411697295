/// \file What a cache loses between uses, by the strides of a loop nest.
#include "tinygrad/codegen/cost/cache_model.h"

#include <gtest/gtest.h>

namespace tg {
namespace {
constexpr Cache kL1{64, 8, 2, 1, 3, 10};  // 32 KB

/// `rows` x 16 floats, `pitch` floats apart, read again by each of `again` outer iterations; axes: again, rows, row.
double cycles(double again, double rows, int64_t pitch) {
  MemoryWalk w;
  w.mask = 6;
  w.scope = 7;
  w.stride = {0, pitch, 1};
  w.itemsize = 4;
  w.sort_strides();
  const LoopNest s{{again, rows, 16}, {1, 1, 16}, {again, rows, 1}, {0, 1, 2}};
  return refill_cycles({&w}, s, kL1);
}

TEST(CacheModel, WhatFitsComesOnce) { EXPECT_DOUBLE_EQ(cycles(100, 64, 16), cycles(1, 64, 16)); }
TEST(CacheModel, WhatDoesNotFitComesAgain) { EXPECT_NEAR(cycles(100, 4096, 16) / cycles(1, 4096, 16), 100, 1e-9); }
TEST(CacheModel, RowsAPageApartShareTheirSets) {
  // 64 lines: nothing when they are spread, eight times the ways when all fall into one set.
  EXPECT_GT(cycles(100, 64, 1024), 50 * cycles(100, 64, 1024 + 16));
  EXPECT_DOUBLE_EQ(cycles(100, 4, 1024), cycles(1, 4, 1024)) << "a few rows fit into the ways of a set";
}
TEST(CacheModel, AxesOfOneStrideSlideOverEachOther) {
  // x + k: 16 positions and 3 taps touch 18 floats.
  MemoryWalk w;
  w.mask = 3;
  w.scope = 3;
  w.stride = {1, 1};
  w.itemsize = 4;
  w.sort_strides();
  EXPECT_EQ(w.by_stride.size(), 1u);
  const LoopNest s{{16, 3}, {16, 3}, {1, 1}, {0, 1}};
  EXPECT_LT(refill_cycles({&w}, s, kL1), 2 * 3 + 1.0);
}
TEST(CacheModel, StoresAndNothingCostNothing) {
  EXPECT_EQ(refill_cycles({}, LoopNest{{4}, {1}, {4}, {0}}, kL1), 0);
  MemoryWalk w;
  w.store = true;
  w.mask = w.scope = 1;
  w.stride = {1 << 20};
  w.sort_strides();
  EXPECT_EQ(refill_cycles({&w}, LoopNest{{4}, {1}, {4}, {0}}, kL1), 0);
}
}  // namespace
}  // namespace tg
