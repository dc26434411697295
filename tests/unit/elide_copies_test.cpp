/// \file Results that are asked for and used elsewhere, too, are stored once; updates run behind what they read.
#include "schedule_util.h"

namespace tg::test {
namespace {
std::shared_ptr<const Schedule> schedule_of(const UOps& roots) {
  check(roots);
  return create_schedule(roots).schedule;
}
int64_t intermediates(const Schedule& s) { return s.memory().intermediates; }

TEST(ElideCopies, AProductIsStoredWhereItsTransposeGoes) {
  GraphScope g;
  const UOp p = matmul(buffer({8, 16}), buffer({16, 24})), t = contiguous(permute(p, {1, 0}));
  const auto s = schedule_of({t, contiguous(p * p + 1.0)});
  EXPECT_EQ(s->calls.size(), 2u);
  EXPECT_EQ(intermediates(*s), 0);
  EXPECT_EQ(schedule_of({contiguous(p), contiguous(p * p + 1.0)})->calls.size(), 2u) << "in its own order";
  const auto both = schedule_of({t, contiguous(sum(p * 2.0, {0})), contiguous(p + 1.0)});
  EXPECT_EQ(both->calls.size(), 3u) << "two other readers";
}

TEST(ElideCopies, OnlyWhereAllReadersFindTheirElements) {
  GraphScope g;
  const UOp p = matmul(buffer({8, 16}), buffer({16, 24})), t = contiguous(permute(p, {1, 0}));
  const auto reads = [&](UOp other) { return schedule_of({t, contiguous(other)})->calls.size(); };
  EXPECT_EQ(reads(shrink(p, {0, 0}, {4, 24}) + 1.0), 3u) << "a part of it";
  EXPECT_EQ(reads(flip(p, {0}) + 1.0), 3u) << "from the end";
  EXPECT_EQ(reads(reshape(p, {192}) + 1.0), 3u) << "in a row";
  EXPECT_EQ(schedule_of({contiguous(permute(p, {1, 0}).cast(dtypes::float64)), contiguous(p + 1.0)})->calls.size(), 3u)
      << "of another type";
}

TEST(ElideCopies, ContentsThatAreOverwrittenStay) {
  GraphScope g;
  const UOp p = matmul(buffer({8, 16}), buffer({16, 8})), x = buffer({8, 8});
  const UOps roots{assign(x, permute(p, {1, 0})), contiguous(x + p)};
  EXPECT_EQ(create_schedule(roots).schedule->calls.size(), 3u) << "x is read as it was before";
}

TEST(Order, UpdatesRunBehindTheGradientThatTheyRead) {
  GraphScope g;
  const UOp a = buffer({8, 16});
  std::vector<UOp> means, squares, weights;
  for (int i = 0; i < 3; i++) {
    const UOp grad = contiguous(matmul(a, buffer({16, 8}))), m = buffer({8, 8}), v = buffer({8, 8}), w = buffer({8, 8});
    means.push_back(assign(m, m * 0.9 + grad));
    squares.push_back(assign(v, v * 0.9 + grad * grad));
    weights.push_back(assign(w, w + means.back() * squares.back()));
  }
  UOps roots = means;
  roots.insert(roots.end(), squares.begin(), squares.end());
  roots.insert(roots.end(), weights.begin(), weights.end());
  const BoundSchedule s = create_schedule(roots);
  std::vector<int64_t> order;  // the buffers of w, as they are written
  for (size_t c = 0; c < s.schedule->calls.size(); c++) {
    const auto written = static_cast<size_t>(s.schedule->calls[c].buffers[0]);
    if (written >= s.inputs.size()) continue;
    for (size_t i = 0; i < weights.size(); i++)
      if (s.inputs[written] == base_of(weights[i].src(0))) order.push_back(static_cast<int64_t>(c));
  }
  EXPECT_EQ(order, (std::vector<int64_t>{3, 7, 11})) << "each behind a product and two updates";
}
}  // namespace
}  // namespace tg::test
