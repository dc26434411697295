/// \file Bounds of indices over loops, some of them as long as others say.
#include "tinygrad/schedule/index_check.h"

#include <gtest/gtest.h>

#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr int64_t kSize = 500;

class IndexCheckTest : public ::testing::Test {
 protected:
  UOp whole(int64_t v) { return UOp::constant(v); }
  UOp loop(UOp size) { return UOp::range(size, RangeArg{{next_++}, AxisType::kLoop}); }
  static IndexCheck::Kind kind(UOp index, int64_t size) { return check_index(index, UOp(), size).kind; }

  GraphScope graph_;
  int32_t next_ = 0;
};

TEST_F(IndexCheckTest, Triangles) {
  const UOp i = loop(whole(kSize)), below = loop(whole(kSize - 1) - i), upto = loop(i + 1);
  EXPECT_EQ(kind(i + below, kSize), IndexCheck::kInside);
  EXPECT_EQ(kind(i + below + 1, kSize), IndexCheck::kInside);
  EXPECT_NE(kind(i + below + 2, kSize), IndexCheck::kInside);
  EXPECT_EQ(kind(i - upto, kSize), IndexCheck::kInside);
  EXPECT_NE(kind(i - upto + -1, kSize), IndexCheck::kInside);
}

TEST_F(IndexCheckTest, LoopsInTrianglesInTriangles) {
  const UOp i = loop(whole(kSize)), j = loop(i + 1), k = loop(j + 1), rest = loop(whole(kSize) - i);
  EXPECT_EQ(kind(i - j + k, kSize), IndexCheck::kInside);
  EXPECT_EQ(kind((i - k) * 3 + rest, 3 * kSize), IndexCheck::kInside);
  EXPECT_NE(kind((i - k) * 3 + rest, 3 * kSize - 3), IndexCheck::kInside);
}

TEST_F(IndexCheckTest, SizesFromMemoryBoundNothing) {
  const UOp flags = UOp::make(Ops::PARAM, dtypes::int32, {UOp::shape_stack(std::vector<int64_t>{1})},
                              ParamArg{0, AddrSpace::kGlobal, "", "", 0, 0});
  const UOp read = flags.index({whole(0)}).load(),
            some = loop(read.ne(UOp::constant(0, dtypes::int32)).where(whole(16), whole(0)));
  const UOp i = loop(whole(kSize)), any = loop(read.cast(dtypes::weakint));
  EXPECT_EQ(kind(i * 16 + some, 16 * kSize), IndexCheck::kInside);
  EXPECT_NE(kind(i * 16 + some, 16 * kSize - 1), IndexCheck::kInside);
  EXPECT_EQ(kind(i + any, kSize), IndexCheck::kUnknown);
}
}  // namespace
}  // namespace tg
