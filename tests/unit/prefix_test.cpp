/// \file Chunks of a running sum: what is one, and that its instances share their additions.
#include "tinygrad/codegen/plan/prefix.h"

#include "kernels.h"

namespace tg::testing {
namespace {
/// (rows, chunks, c, inner) -> the reduce of each chunk up to an element, or from it on, plus a number for the chunk.
KernelPtr running(int64_t rows, int64_t chunks, int64_t c, int64_t inner, Ops op = Ops::ADD, bool from_it_on = false) {
  KernelMaker k;
  const int64_t n = rows * chunks * c * inner;
  UOp x = k.param(1, n), first = k.param(2, rows * chunks), out = k.param(0, n);
  UOp r = k.loop(rows), b = k.loop(chunks), o = k.loop(c), i = k.loop(inner), j = k.red(c), chunk = r * chunks + b;
  UOp inside = from_it_on ? o + j < c : (o + j).ge(UOp::constant(c - 1, dtypes::weakint)),
      at = from_it_on ? o + j : o + j - (c - 1);
  UOp v = inside.where(x.index({((chunk * c + at) * inner + i).valid(inside)}).load(),
                       UOp::constant(op == Ops::MUL ? 1.0 : 0.0, dtypes::float32));
  UOp sum = UOp::alu(op, {v.reduce(op, UOps{j}), first.index({chunk}).load()});
  return k.finish(out.index({(chunk * c + o) * inner + i}).store(sum).end(UOps{r, b, o, i}));
}
int64_t vector_operations(const Program& p, Ops op) {
  ArenaScope scope(*p.arena);
  return std::count_if(p.insts.begin(), p.insts.end(), [&](UOp u) { return u.is(op) && u.dtype().is_float(); });
}
bool is_prefix(const KernelPtr& k, const Renderer& r) {
  ArenaScope scope(*k->arena);
  return prefix_axes(KernelAxes(k->sink, r), r).has_value();
}

TEST(Prefix, PositionsShareTheirAdditions) {
  const TestRenderer r(64);
  for (int64_t inner : {1, 64})
    for (int64_t c : {8, 16, 20})
      for (Ops op : {Ops::ADD, Ops::MUL})
        EXPECT_LT(vector_operations(*to_program(*running(32, 64, c, inner, op), r), op), 6 * c)
            << c << " " << inner << " of c * c / 2";
}

TEST(Prefix, MatchesReference) {
  for (int bytes : {16, 32, 64})
    for (const auto& [rows, chunks, c, inner] :
         std::vector<std::array<int64_t, 4>>{{3, 20, 16, 1}, {40, 3, 9, 1}, {2, 3, 8, 33}, {5, 1, 24, 16}})
      for (bool from_it_on : {false, true}) {
        check_kernel(running(rows, chunks, c, inner, Ops::ADD, from_it_on), TestRenderer(bytes), {});
        check_kernel(running(rows, chunks, c, inner, Ops::MUL, from_it_on), TestRenderer(bytes), {});
      }
}

TEST(Prefix, WhatIsNone) {
  const TestRenderer r(64);
  EXPECT_TRUE(is_prefix(running(32, 64, 16, 1), r));
  EXPECT_TRUE(is_prefix(running(4, 8, 16, 64), r));
  EXPECT_FALSE(is_prefix(running(32, 64, 32, 1), r)) << "its elements are not in registers";
  EXPECT_FALSE(is_prefix(running(2, 3, 16, 1), r)) << "no axis for the lanes";
  EXPECT_FALSE(is_prefix(running(4, 8, 16, 3), r)) << "vectors lie across memory";
  EXPECT_FALSE(is_prefix(matmul(16, 16, 16, false, false), r));
  // A product of triangles compares the same axes, but what it loads does not slide.
  KernelMaker k;
  UOp a = k.param(1, 64 * 16 * 16), w = k.param(2, 64 * 16), out = k.param(0, 64 * 16), m = k.loop(64), o = k.loop(16),
      j = k.red(16);
  UOp v = (o < j).where(UOp::constant(0.0, dtypes::float32),
                        a.index({(m * 16 + o) * 16 + j}).load() * w.index({m * 16 + j}).load());
  EXPECT_FALSE(is_prefix(k.finish(out.index({m * 16 + o}).store(v.reduce(Ops::ADD, UOps{j})).end(UOps{m, o})), r));
}
}  // namespace
}  // namespace tg::testing
