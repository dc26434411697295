/// \file Poolings and their gradients: windows side by side, elements that neighbouring lanes share.
#include "kernels.h"
#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/opt.h"

namespace tg::testing {
namespace {
UOp is_top(UOp x, UOp top) { return x.ne(top).logical_not().cast(dtypes::float32); }

/// Which elements are the greatest of their window, of n images of h x h with windows of f x f side by side.
KernelPtr pool_gradient(int64_t n, int64_t h, int64_t f) {
  KernelMaker k;
  const int64_t o = h / f;
  UOp x = k.param(1, n * h * h), top = k.param(2, n * o * o), out = k.param(0, n * h * h), c = k.loop(n), i = k.loop(h), j = k.loop(h);
  UOp at = (c * h + i) * h + j, of = (c * o + i / f) * o + j / f;
  return k.finish(out.index({at}).store(is_top(x.index({at}).load(), top.index({of}).load())).end(UOps{c, i, j}));
}
/// How many elements of each window are its greatest, windows of f x f in steps of `step`.
KernelPtr pool_ties(int64_t n, int64_t h, int64_t f, int64_t step) {
  KernelMaker k;
  const int64_t o = (h - f) / step + 1;
  UOp x = k.param(1, n * h * h), top = k.param(2, n * o * o), out = k.param(0, n * o * o), c = k.loop(n), i = k.loop(o), j = k.loop(o);
  UOp p = k.red(f), q = k.red(f), at = (c * o + i) * o + j;
  UOp v = x.index({(c * h + i * step + p) * h + j * step + q}).load();
  return k.finish(out.index({at}).store(is_top(v, top.index({at}).load()).reduce(Ops::ADD, UOps{p, q})).end(UOps{c, i, j}));
}

TEST(Pooling, RangesOfWhatIsStoredStayWholeWhereLanesShareElements) {
  const KernelPtr k = pool_gradient(4, 20, 2);
  ArenaScope scope(*k->arena);
  UOp sink = simplify_ranges(k->sink);
  int whole = 0;
  for (UOp u : sink.toposort()) whole += u.is(Ops::RANGE) && u.src(0).is_const_int(20);
  EXPECT_EQ(whole, 1);  // columns; rows are apart
}

TEST(Pooling, GradientsKeepTheMeaning) {
  for (int bytes : {16, 32, 64})
    for (int64_t f : {2, 3, 4})
      for (int64_t h : {12, 24, 36}) {
        check_kernel(pool_gradient(3, h, f), TestRenderer(bytes), {});
        check_kernel(pool_ties(3, h, f, f), TestRenderer(bytes), {});
        check_kernel(pool_ties(3, h + 1, f, 2), TestRenderer(bytes), {});
      }
}

TEST(Pooling, WindowsAreUnrolledAndStoredAlongMemory) {
  const TestRenderer r(64);
  for (auto [h, f, step] : {std::array<int64_t, 3>{20, 2, 2}, {113, 3, 2}}) {
    const auto p = to_program(*pool_ties(512, h, f, step), r);
    EXPECT_GE(std::count_if(p->applied_opts.begin(), p->applied_opts.end(), [](const Opt& o) { return o.op == OptOp::kUnroll; }), 1) << h;
  }
  const auto p = to_program(*pool_gradient(512, 20, 2), r);
  ArenaScope scope(*p->arena);
  for (UOp u : p->linear)
    if (u.is(Ops::STORE)) { EXPECT_EQ(classify(u.src(0)).kind, Lanes::kUnit); }
}
}  // namespace
}  // namespace tg::testing
